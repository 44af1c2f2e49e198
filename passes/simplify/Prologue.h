//===- Prologue.h - operations on weights alone -----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SIMPLIFY_PROLOGUE_H
#define GRIDLOOM_PASSES_SIMPLIFY_PROLOGUE_H

#include "dialects/loom/Loom.h"

namespace gridloom {

/// Operations to be computed at load, in order: they depend on weights and constants alone, at
/// least one weight, something that is not such an operation uses them, and they are more than
/// weights repeated or reshaped, which costs nothing where it is used.
llvm::SmallVector<mlir::Operation *> getHoistable(mlir::Block &block);

/// The type of the whole weight or derived tensor that `symbol` declares.
mlir::RankedTensorType getWholeType(mlir::Operation *symbol);
/// Reads it in the body of another derived tensor: what is derived is computed there anew.
mlir::Value readWhole(mlir::OpBuilder &builder, mlir::Operation *symbol);
/// Erases what functions compute and nothing uses.
void eraseDeadOps(mlir::ModuleOp module);
/// Erases weights and derived tensors that nothing uses, also through each other.
void eraseUnusedWeights(mlir::ModuleOp module);
/// The weights and derived tensors that nothing uses.
llvm::SmallVector<mlir::Operation *> getUnusedWeights(mlir::ModuleOp module);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SIMPLIFY_PROLOGUE_H
