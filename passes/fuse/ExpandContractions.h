//===- ExpandContractions.h - contractions without a library ----*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_FUSE_EXPANDCONTRACTIONS_H
#define GRIDLOOM_PASSES_FUSE_EXPANDCONTRACTIONS_H

#include "dialects/loom/Loom.h"

namespace gridloom {

/// Replaces `dot` by a sum of products, which becomes one kernel: right for every type and shape,
/// without a matrix multiplication's reuse of what it loads.
void expandContraction(loom::DotGeneralOp dot);

/// Whether libraries have contractions of these element types: f32, or f16 or bf16 to the same type
/// or to f32.
bool isInLibrary(loom::DotGeneralOp dot);

/// `value` with the listed dimensions in this order; itself when they are.
mlir::Value transposeTo(mlir::OpBuilder &builder, mlir::Value value, llvm::ArrayRef<int64_t> order);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_FUSE_EXPANDCONTRACTIONS_H
