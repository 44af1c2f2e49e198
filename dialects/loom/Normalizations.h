//===- Normalizations.h - formulas of softmax and norms ---------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_DIALECTS_LOOM_NORMALIZATIONS_H
#define GRIDLOOM_DIALECTS_LOOM_NORMALIZATIONS_H

#include "dialects/loom/Loom.h"

namespace gridloom::loom {

/// Operations that each user of a formula builds differently.
struct NormalizationForm {
  /// Reduces dimension `dim` of `x`; the result lacks it.
  llvm::function_ref<mlir::Value(mlir::Value x, dist::ReductionKind kind, int64_t dim)> reduce;
  /// Kernels divide once per row and multiply the row's elements by the inverse, which is faster
  /// and rounds once more. Programs divide every element, as the operations are defined.
  bool dividesOnce = false;
};

/// exp(x - max) / sum of it, along `dim` of `input`; the result has the input's type. Computes
/// 16-bit floats in f32.
mlir::Value buildSoftmax(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value input,
                         int64_t dim, const NormalizationForm &form);

/// The result of `op`, a layer_norm or rms_norm, for the `operands` of one device; `size` is the
/// size of the last dimension over all devices together. The result has the input's type. Computes
/// 16-bit floats in f32.
mlir::Value buildRowNorm(mlir::OpBuilder &builder, mlir::Operation *op, mlir::ValueRange operands,
                         int64_t size, const NormalizationForm &form);

} // namespace gridloom::loom

#endif // GRIDLOOM_DIALECTS_LOOM_NORMALIZATIONS_H
