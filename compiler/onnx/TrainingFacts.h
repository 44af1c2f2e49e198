//===- TrainingFacts.h - what a file says of training -----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_ONNX_TRAININGFACTS_H
#define GRIDLOOM_COMPILER_ONNX_TRAININGFACTS_H

#include "compiler/onnx/EqualWeights.h"

namespace gridloom::onnx_import {

/// Facts that the file shows and the imported program does not.
struct TrainingFacts {
  struct Tensor {
    std::string name;
    bool isFloat = false, isScalar = false;
  };
  std::vector<Tensor> initializers; ///< in the order of the file
  std::vector<EqualWeights> equal;
  int64_t biasedConvolutions = 0;     ///< Conv nodes of the main graph with a bias
  bool hasBatchNormalization = false; ///< in the main graph
  bool hasDropout = false;
};

/// The error is one line; empty on success.
std::string readTrainingFacts(const std::string &path, TrainingFacts &facts);

} // namespace gridloom::onnx_import

#endif // GRIDLOOM_COMPILER_ONNX_TRAININGFACTS_H
