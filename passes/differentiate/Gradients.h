//===- Gradients.h - reverse mode over a function ---------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_DIFFERENTIATE_GRADIENTS_H
#define GRIDLOOM_PASSES_DIFFERENTIATE_GRADIENTS_H

#include "passes/differentiate/Adjoints.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/MapVector.h"

namespace gridloom {

/// What a function is differentiated by: names, each with all values that have it.
using GradientSources = llvm::MapVector<mlir::StringAttr, llvm::SmallVector<mlir::Value>>;

/// Reverse mode over one function (Griewank and Walther 2008, section 3.2). What it builds stands
/// before the function's terminator.
class Gradients {
public:
  /// `of` is what is differentiated, for errors: "output 'y'".
  Gradients(mlir::func::FuncOp function, std::string of, const GradientSources &sources)
      : function(function), of(std::move(of)), sources(sources) {}

  /// A value that is differentiated, and what its elements count: of its type.
  struct Seed {
    mlir::Value value, cotangent;
  };
  /// Builds the cotangents of the sources that the seeds depend on, each the sum over all values of
  /// its name. `readsInside` says whether a body that an operation runs reads a source. Fails with
  /// a diagnostic at the operation that has no derivative, or where no source is reached.
  mlir::FailureOr<llvm::MapVector<mlir::StringAttr, mlir::Value>>
  build(llvm::ArrayRef<Seed> seeds, llvm::function_ref<bool(mlir::Operation *)> readsInside);

  /// An operation without a derivative that a change of a source reaches a seed through.
  struct Obstacle {
    mlir::Operation *op;
    llvm::StringRef what; ///< as DerivativeInterface::findObstacle says it, or the operation's name
  };
  /// All that `build` would refuse, last first; it names the first of them.
  llvm::SmallVector<Obstacle>
  findObstacles(llvm::ArrayRef<mlir::Value> seeds,
                llvm::function_ref<bool(mlir::Operation *)> readsInside);

private:
  void findVaried(llvm::function_ref<bool(mlir::Operation *)> readsInside);
  void findPath(llvm::ArrayRef<mlir::Value> seeds);
  llvm::LogicalResult checkPath() const;
  bool isReached(llvm::ArrayRef<mlir::Value> values) const;

  mlir::func::FuncOp function;
  std::string of;
  const GradientSources &sources;
  llvm::DenseSet<mlir::Value> varied, used;
  /// Operations that a change of a source reaches the seeds through, last first.
  llvm::SmallVector<mlir::Operation *> path;
  llvm::SmallVector<Obstacle> obstacles; ///< those of the path without a derivative
};

/// Whether a result of the operation may change with its operands as a derivative sees it.
bool carriesDerivative(mlir::Operation *op);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_DIFFERENTIATE_GRADIENTS_H
