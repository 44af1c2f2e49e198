//===- StateUpdates.h - updates of states in a program ----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SCHEDULE_STATEUPDATES_H
#define GRIDLOOM_PASSES_SCHEDULE_STATEUPDATES_H

#include "dialects/plan/Plan.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace gridloom {

/// The value whose bytes `value` is under another shape.
mlir::Value getRootValue(mlir::Value value);

/// Whether the value is a state's former value, an argument.
bool isState(mlir::Value value);

/// A state whose next value an operation of the function computes.
struct StateUpdate {
  mlir::StringAttr state;
  mlir::Value next;        ///< a result of `writer`, the state's next value up to its shape
  mlir::Operation *writer; ///< a kernel or library call
  /// Operations of the block that read the former value, except a writer that may run in place;
  /// includes the terminator if it returns that value.
  llvm::SmallVector<mlir::Operation *> readers;
};

/// The updates of a stage's function, in the order of its results; none in bodies.
llvm::SmallVector<StateUpdate> findStateUpdates(mlir::func::FuncOp func);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SCHEDULE_STATEUPDATES_H
