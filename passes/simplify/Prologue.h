//===- Prologue.h - operations on weights alone -----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SIMPLIFY_PROLOGUE_H
#define GRIDLOOM_PASSES_SIMPLIFY_PROLOGUE_H

#include "dialects/loom/Loom.h"

namespace gridloom {

/// The operations to be computed at load, in order: they depend on weights and constants only, on
/// at least one weight, are used by something that is not such an operation, and do more than
/// repeat or reshape weights, which costs nothing at the use.
llvm::SmallVector<mlir::Operation *> getHoistable(mlir::Block &block);

/// The type of the whole weight or derived tensor that `symbol` declares.
mlir::RankedTensorType getWholeType(mlir::Operation *symbol);
/// Reads the whole tensor in the body of a derived tensor; a derived one is computed there again.
mlir::Value readWhole(mlir::OpBuilder &builder, mlir::Operation *symbol);
/// Erases operations of functions whose results are not used.
void eraseDeadOps(mlir::ModuleOp module);
/// Erases weights and derived tensors that are not used, also through each other.
void eraseUnusedWeights(mlir::ModuleOp module);
/// The weights and derived tensors that nothing uses.
llvm::SmallVector<mlir::Operation *> getUnusedWeights(mlir::ModuleOp module);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SIMPLIFY_PROLOGUE_H
