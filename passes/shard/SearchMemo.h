//===- SearchMemo.h - what a search has found --------------------*- C++ -*-===//
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

/// The splits that a search has found of a program, for whoever splits it by the same options
/// again: in another context, too.
struct SearchMemo {
  bool isKnown = false;
  std::string order; ///< of what is split, which the solution goes by
  StageStarts starts;
  std::vector<std::string> batch; ///< axes that split what is cut into micro-batches
  solver::Solution solution;
  double seconds = 0; ///< of a step
};

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SHARD_SEARCHMEMO_H
