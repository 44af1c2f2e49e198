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

/// The sources by which a function is differentiated: names, each with all values of that name.
using GradientSources = llvm::MapVector<mlir::StringAttr, llvm::SmallVector<mlir::Value>>;

/// Reverse mode over one function (Griewank and Walther 2008, section 3.2). Builds operations
/// before the function's terminator.
class Gradients {
public:
  /// `of`: what is differentiated, for errors: "output 'y'".
  Gradients(mlir::func::FuncOp function, std::string of, const GradientSources &sources)
      : function(function), of(std::move(of)), sources(sources) {}

  /// A value that is differentiated, and its cotangent, of its type.
  struct Seed {
    mlir::Value value, cotangent;
  };
  /// Builds the cotangents of the sources that the seeds depend on, each summed over all values of
  /// its name. `readsInside`: whether a body that an operation runs reads a source. Fails with a
  /// diagnostic at an operation that has no derivative, or if no source is reached.
  mlir::FailureOr<llvm::MapVector<mlir::StringAttr, mlir::Value>>
  build(llvm::ArrayRef<Seed> seeds, llvm::function_ref<bool(mlir::Operation *)> readsInside);

  /// An operation without a derivative on a path from a source to a seed.
  struct Obstacle {
    mlir::Operation *op;
    llvm::StringRef what; ///< from DerivativeInterface::findObstacle, else the operation's name
  };
  /// All obstacles of `build`, the last first; its error names the first of them.
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
  /// Operations on a path from a source to a seed, last first.
  llvm::SmallVector<mlir::Operation *> path;
  llvm::SmallVector<Obstacle> obstacles; ///< operations of the path without a derivative
};

/// Whether a derivative may flow from the operation's operands to its results.
bool carriesDerivative(mlir::Operation *op);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_DIFFERENTIATE_GRADIENTS_H
