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
    int64_t slotBytes = 0; ///< what the optimizer would keep of it
  };
  std::vector<Weight> weights; ///< in the order of the model

  /// A weight that is another one by --tie.
  struct Tie {
    std::string name, to;
    bool isTransposed = false;
  };
  std::vector<Tie> ties;

  /// An operation that has no derivative, and that trained weights reach the losses through.
  struct Block {
    std::string node, what;           ///< the ONNX node, and the operation
    std::vector<std::string> weights; ///< that it lies behind: frozen, they let the rest be trained
  };
  std::vector<Block> blocks;
  /// Loops and branches, with which nothing can be trained: ONNX nodes.
  std::vector<std::string> controls;

  /// A node that would compute something else in training mode.
  struct Evaluated {
    std::string op, node;
  };
  std::vector<Evaluated> evaluated;

  /// What the options say, else what the outputs make plain; empty where they do not.
  std::vector<std::string> losses;
  bool isLossGuessed = false;
  std::string lossRemark; ///< why it is guessed so, or is not
  /// Losses that stand for all float outputs, where there is none to guess.
  std::vector<std::string> anyLosses;
};

} // namespace gridloom

#endif // GRIDLOOM_PASSES_TRAIN_SURVEYDATA_H
