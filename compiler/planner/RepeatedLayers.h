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

/// The layers of a program: stretches of operations one after another, as many in each function,
/// that are the same but for the names of their weights, inputs and outputs. Each reads the one
/// before it as that one reads its own.
class Layers {
public:
  /// Those of a simplified program that cover most of it. Nothing where a function has none, or
  /// where not all functions have as many.
  static std::optional<Layers> find(mlir::ModuleOp module);

  int64_t getCount() const { return count; }
  /// A copy of the program with the first `kept` layers alone; what reads the last layer reads the
  /// last of these. Null where that is no program.
  mlir::OwningOpRef<mlir::ModuleOp> keep(int64_t kept) const;

private:
  /// In one function, by positions of operations that read something.
  struct Chain {
    size_t begin, period, count;
    size_t getEnd() const { return begin + count * period; }
  };

  explicit Layers(mlir::ModuleOp module) : module(module) {}
  static bool shorten(mlir::func::FuncOp func, const Chain &chain, size_t kept);

  mlir::ModuleOp module;
  llvm::SmallVector<std::optional<Chain>> chains; ///< by function; none of bodies
  int64_t count = 0;
};

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_PLANNER_REPEATEDLAYERS_H
