//===- Contraction.h - contractions as sums of products ---------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_DIALECTS_LOOM_CONTRACTION_H
#define GRIDLOOM_DIALECTS_LOOM_CONTRACTION_H

#include "dialects/loom/Loom.h"

namespace gridloom::loom {

/// Rows that a kernel multiplies while it reads a matrix once: its threads have sums of all.
inline constexpr int64_t kMaxProductRows = 4;

/// Replaces `dot` by a sum of products, which becomes one kernel: right for every type and shape,
/// without a matrix multiplication's reuse of what it loads. Products and sums are of elements
/// `sum`; null: of the result's, or f32 where these are 16-bit floats.
void expandContraction(DotGeneralOp dot, mlir::Type sum = {});

/// `value` with the listed dimensions in this order; itself when they are.
mlir::Value transposeTo(mlir::OpBuilder &builder, mlir::Value value, llvm::ArrayRef<int64_t> order);

/// `value` with elements of this type; itself when they are.
mlir::Value convertTo(mlir::OpBuilder &builder, mlir::Value value, mlir::Type element);

} // namespace gridloom::loom

#endif // GRIDLOOM_DIALECTS_LOOM_CONTRACTION_H
