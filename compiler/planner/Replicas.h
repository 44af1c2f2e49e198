//===- Replicas.h - copies of programs for several threads -------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_PLANNER_REPLICAS_H
#define GRIDLOOM_COMPILER_PLANNER_REPLICAS_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"

#include "llvm/ADT/DenseMap.h"

#include <memory>
#include <vector>

namespace gridloom {

/// Runs tasks on several threads. Each thread but the first has its own context, with copies of the
/// programs that its tasks ask for, so threads share nothing and never wait.
class Replicas {
public:
  /// `numThreads` is at least 1.
  explicit Replicas(unsigned numThreads);
  ~Replicas();

  /// Maps a program to the copy of the task's thread; the same copy at each call.
  using GetProgram = llvm::function_ref<mlir::ModuleOp(mlir::ModuleOp)>;
  /// Runs task(0) to task(count - 1), each once, in any order. Tasks get `programs` from GetProgram
  /// and must not change them. A thread takes tasks first for which `getHome` names its context;
  /// null: no task has one.
  void run(size_t count, llvm::ArrayRef<mlir::ModuleOp> programs,
           llvm::function_ref<void(size_t, GetProgram)> task,
           llvm::function_ref<mlir::MLIRContext *(size_t)> getHome = nullptr);

private:
  struct Worker;

  std::vector<std::unique_ptr<Worker>> workers;         ///< all threads but the first
  llvm::DenseMap<mlir::Operation *, std::string> texts; ///< bytecode, by program
};

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_PLANNER_REPLICAS_H
