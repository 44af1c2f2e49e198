//===- TrainOptions.h - options of compile --train --------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_TRAIN_TRAINOPTIONS_H
#define GRIDLOOM_PASSES_TRAIN_TRAINOPTIONS_H

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gridloom {

/// Texts of the command line, as kLossGrammar, kOptimizerGrammar and the like describe them. Plain
/// data, free of MLIR.
struct TrainOptions {
  bool isOn = false;
  std::vector<std::string> losses, metrics, parameters, inits, ties;
  std::string optimizer, clip;
  std::string lossScale;        ///< empty: the precision's default
  std::optional<uint64_t> seed; ///< of inits; default 0
  long accumulate = 0;          ///< other name for micro-batches; 0: not given
};

} // namespace gridloom

#endif // GRIDLOOM_PASSES_TRAIN_TRAINOPTIONS_H
