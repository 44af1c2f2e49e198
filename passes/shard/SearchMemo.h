//===- SearchMemo.h - result of a search, for reuse --------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SHARD_SEARCHMEMO_H
#define GRIDLOOM_PASSES_SHARD_SEARCHMEMO_H

#include "compiler/solver/Solver.h"
#include "passes/shard/StageCuts.h"

#include <string>
#include <vector>

namespace gridloom {

/// The splits that a search found, for whoever compiles the same program with the same options
/// again, even in another context.
struct SearchMemo {
  bool isKnown = false;
  std::string order; ///< SplitProblem::describeOrder of the program solved
  StageStarts starts;
  std::vector<std::string> batch; ///< axes that split the dimension cut into micro-batches
  solver::Solution solution;
  double seconds = 0; ///< estimated time of a step
};

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SHARD_SEARCHMEMO_H
