//===- Normalizations.h - formulas of softmax and layer_norm ----*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_DIALECTS_LOOM_NORMALIZATIONS_H
#define GRIDLOOM_DIALECTS_LOOM_NORMALIZATIONS_H

#include "dialects/loom/Loom.h"

namespace gridloom::loom {

/// The operations that each user of a formula builds in its own way.
struct NormalizationForm {
  /// Reduces dimension `dim` of `x`; the result lacks it.
  llvm::function_ref<mlir::Value(mlir::Value x, dist::ReductionKind kind, int64_t dim)> reduce;
  /// Kernels divide once a row and multiply the row's elements by the inverse, which is faster and
  /// rounds once more. Programs divide every element, as the operations are defined.
  bool dividesOnce = false;
};

/// exp(x - max) / sum of it, along `dim` of `input`, whose type the result has. 16-bit floats are
/// computed in f32.
mlir::Value buildSoftmax(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value input,
                         int64_t dim, const NormalizationForm &form);

/// (x - mean) / sqrt(variance + epsilon) * scale + bias along the last dimension, which has `size`
/// elements on all devices together. `operands` are the input, whose type the result has, the
/// scale and, where there is one, the bias. 16-bit floats are computed in f32.
mlir::Value buildLayerNorm(mlir::OpBuilder &builder, mlir::Location loc, mlir::ValueRange operands,
                           int64_t size, double epsilon, const NormalizationForm &form);

} // namespace gridloom::loom

#endif // GRIDLOOM_DIALECTS_LOOM_NORMALIZATIONS_H
