//===- RepeatedLayers.h - a program with fewer equal layers ------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_PLANNER_REPEATEDLAYERS_H
#define GRIDLOOM_COMPILER_PLANNER_REPEATEDLAYERS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <optional>

namespace gridloom {

/// The layers of a program: consecutive stretches of operations, equally many in each function,
/// that differ only in the names of weights, inputs and outputs. Each reads the layer before it in
/// the same way.
class Layers {
public:
  /// The layers of a simplified program that cover most of it. nullopt if a function has none, or
  /// if functions have different numbers of layers.
  static std::optional<Layers> find(mlir::ModuleOp module);

  int64_t getCount() const { return count; }
  /// A copy of the program with only the first `kept` layers; readers of the last layer read the
  /// last kept one. Null if that is not a valid program.
  mlir::OwningOpRef<mlir::ModuleOp> keep(int64_t kept) const;

private:
  /// Layers of one function, by positions among its operations with operands.
  struct Chain {
    size_t begin, period, count;
    size_t getEnd() const { return begin + count * period; }
  };

  explicit Layers(mlir::ModuleOp module) : module(module) {}
  static bool shorten(mlir::func::FuncOp func, const Chain &chain, size_t kept);

  mlir::ModuleOp module;
  llvm::SmallVector<std::optional<Chain>> chains; ///< by function; nullopt for bodies
  int64_t count = 0;
};

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_PLANNER_REPEATEDLAYERS_H
