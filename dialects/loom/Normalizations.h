//===- Normalizations.h - formulas of softmax and norms ---------*- C++ -*-===//
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

/// What `op`, a layer_norm or rms_norm, computes of `operands`, those of one device; on all devices
/// together, the last dimension has `size` elements. The result has the input's type. 16-bit
/// floats are computed in f32.
mlir::Value buildRowNorm(mlir::OpBuilder &builder, mlir::Operation *op, mlir::ValueRange operands,
                         int64_t size, const NormalizationForm &form);

} // namespace gridloom::loom

#endif // GRIDLOOM_DIALECTS_LOOM_NORMALIZATIONS_H
