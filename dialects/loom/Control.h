//===- Control.h - functions that loops and branches run --------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_DIALECTS_LOOM_CONTROL_H
#define GRIDLOOM_DIALECTS_LOOM_CONTROL_H

#include "dialects/loom/Loom.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

namespace gridloom::loom {

/// Whether a function is the body of a loop or branch, not a specialisation of an entry.
inline bool isBody(mlir::func::FuncOp function) { return function->hasAttr(kBody); }
inline bool isControl(mlir::Operation *op) { return mlir::isa<WhileOp, IfOp>(op); }

/// A body that an operation runs, with the operation's tensors for its arguments and results.
struct BodyLink {
  mlir::func::FuncOp body;
  /// For each argument the operand that initialises it.
  llvm::SmallVector<unsigned> operands;
  /// For each result of the body the operation's result; nullopt for a loop's condition.
  llvm::SmallVector<std::optional<unsigned>> results;
};

/// The bodies of a loop (one) or branch (two: then, else); none for any other operation.
llvm::SmallVector<BodyLink, 2> getBodies(mlir::Operation *op);

/// Calls `visit` for the bodies that `function` runs, outer before inner.
void forEachBody(mlir::func::FuncOp function,
                 llvm::function_ref<void(mlir::Operation *, mlir::func::FuncOp)> visit);

/// The bodies that no entry runs, also through other bodies.
llvm::SmallVector<mlir::func::FuncOp> getUnusedBodies(mlir::ModuleOp module);

} // namespace gridloom::loom

#endif // GRIDLOOM_DIALECTS_LOOM_CONTROL_H
