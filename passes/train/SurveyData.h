//===- SurveyData.h - what can be trained of a model ------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Plain data, free of MLIR.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_TRAIN_SURVEYDATA_H
#define GRIDLOOM_PASSES_TRAIN_SURVEYDATA_H

#include <cstdint>
#include <string>
#include <vector>

namespace gridloom {

struct TrainSurvey {
  /// A weight that the program reads.
  struct Weight {
    std::string name;
    std::string role;     ///< "matmul weight", "bias", ...: by how the program uses it
    std::string obstacle; ///< why it stays as it is; empty: it is trained
    int64_t elements = 0;
    int64_t bytes = 0;
    int64_t slotBytes = 0; ///< bytes that the optimizer would keep for it
  };
  std::vector<Weight> weights; ///< in the order of the model

  /// A weight that --tie makes the same as another.
  struct Tie {
    std::string name, to;
    bool isTransposed = false;
  };
  std::vector<Tie> ties;

  /// An operation without a derivative between trained weights and the losses.
  struct Block {
    std::string node, what;           ///< the ONNX node, and the operation
    std::vector<std::string> weights; ///< behind it: if they are frozen, the rest can be trained
  };
  std::vector<Block> blocks;
  /// Loops and branches, which prevent training: ONNX nodes.
  std::vector<std::string> controls;

  /// A node that would compute something else in training mode.
  struct Evaluated {
    std::string op, node;
  };
  std::vector<Evaluated> evaluated;

  /// From the options, else what the outputs make obvious; empty if they do not.
  std::vector<std::string> losses;
  bool isLossGuessed = false;
  std::string lossRemark; ///< why this loss, or none, was guessed
  /// Losses that stand for all float outputs if none can be guessed.
  std::vector<std::string> anyLosses;
};

} // namespace gridloom

#endif // GRIDLOOM_PASSES_TRAIN_SURVEYDATA_H
