//===- EqualWeights.h - weights that hold the same numbers ------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Exporters write a weight that two layers share once for each of them. Values are read through the
// mapped file, a part at a time.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_ONNX_EQUALWEIGHTS_H
#define GRIDLOOM_COMPILER_ONNX_EQUALWEIGHTS_H

#include "compiler/onnx/ModelReader.h"

#include <optional>

namespace gridloom::onnx_import {

struct EqualWeights {
  std::string first, second;
  bool isTransposed = false; ///< the second is the first one's transpose
};

/// Pairs of float initializers with equal bits, in file order; each is the second of at most one
/// pair. Skips tensors of one element and those whose elements are all equal, such as zeros: their
/// equality means nothing. The error is one line; empty on success.
std::string findEqualWeights(const Model &model, std::vector<EqualWeights> &pairs);

/// Where two initializers differ first.
struct WeightDifference {
  std::vector<int64_t> index; ///< in the first
  double first = 0, second = 0;
};
/// Compares the bits of two float initializers of equal shapes or, with `isTransposed`, of the
/// second one's transpose with the first. Nothing where they are equal. The error is one line;
/// empty on success.
std::string compareWeights(const Model &model, const EqualWeights &pair,
                           std::optional<WeightDifference> &difference);

} // namespace gridloom::onnx_import

#endif // GRIDLOOM_COMPILER_ONNX_EQUALWEIGHTS_H
