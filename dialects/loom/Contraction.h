//===- Contraction.h - contractions as sums of products ---------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_DIALECTS_LOOM_CONTRACTION_H
#define GRIDLOOM_DIALECTS_LOOM_CONTRACTION_H

#include "dialects/loom/Loom.h"

namespace gridloom::loom {

/// Rows that a kernel multiplies while it reads a matrix once; threads keep the sums of all rows.
inline constexpr int64_t kMaxProductRows = 4;

/// Replaces `dot` by a sum of products, which becomes one kernel: correct for every type and shape,
/// but without the data reuse of a matrix multiplication. Products and sums have element type
/// `sum`; if that is null, the result's, or f32 for 16-bit floats.
void expandContraction(DotGeneralOp dot, mlir::Type sum = {});

/// `value` with its dimensions in this order; unchanged if they are already.
mlir::Value transposeTo(mlir::OpBuilder &builder, mlir::Value value, llvm::ArrayRef<int64_t> order);

/// `value` converted to this element type; unchanged if it has it already.
mlir::Value convertTo(mlir::OpBuilder &builder, mlir::Value value, mlir::Type element);

} // namespace gridloom::loom

#endif // GRIDLOOM_DIALECTS_LOOM_CONTRACTION_H
