//===- KeptPrograms.h - programs kept from weighing to trying out -*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_PLANNER_KEPTPROGRAMS_H
#define GRIDLOOM_COMPILER_PLANNER_KEPTPROGRAMS_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SmallVector.h"

#include <mutex>

namespace gridloom {

/// Programs of candidates as the fuse phase leaves them, so that those worth trying out need not be
/// compiled to there again. Keeps the ones with the least sums of each context. For several
/// threads, each with a context of its own.
class KeptPrograms {
public:
  /// Keeps the program of a candidate whose sum is `seconds`, unless those kept in its context have
  /// smaller ones. To be called by the context's thread.
  void keep(size_t candidate, double seconds, mlir::OwningOpRef<mlir::ModuleOp> program);
  /// Takes a candidate's program in this context; null if none is kept.
  mlir::OwningOpRef<mlir::ModuleOp> take(size_t candidate, mlir::MLIRContext *context);
  /// Drops a candidate's program. To be called while no other thread runs.
  void drop(size_t candidate);
  /// The context of a candidate's program; null if none is kept.
  mlir::MLIRContext *findContext(size_t candidate);

private:
  struct Kept {
    size_t candidate;
    double seconds;
    mlir::OwningOpRef<mlir::ModuleOp> program;
  };
  /// Guards the lists. Programs are destroyed by their context's thread, or the only one that runs.
  std::mutex mutex;
  llvm::MapVector<mlir::MLIRContext *, llvm::SmallVector<Kept, 0>> lists;
};

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_PLANNER_KEPTPROGRAMS_H
