//===- Adjoints.h - cotangents of a function's values -----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_DIFFERENTIATE_ADJOINTS_H
#define GRIDLOOM_PASSES_DIFFERENTIATE_ADJOINTS_H

#include "passes/differentiate/Term.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace gridloom {

/// The cotangents of a function's values during reverse differentiation. Operations are built at
/// the builder's place.
class Adjoints {
public:
  /// `varied`: the values that depend on the sources of the differentiation.
  Adjoints(mlir::OpBuilder &builder, const llvm::DenseSet<mlir::Value> &varied)
      : builder(builder), varied(varied) {}

  /// Whether the value needs a cotangent.
  bool wants(mlir::Value value) const { return varied.contains(value); }
  /// Adds what `make` builds, of the value's type, to its cotangent; does nothing if it needs none.
  void add(mlir::Value value, llvm::function_ref<mlir::Value()> make);
  /// The sum of what was added; null if nothing was.
  mlir::Value get(mlir::Value value) const { return cotangents.lookup(value); }

  /// Operations built from here on are located at NODE.grad, as part of the derivative of what is
  /// located at `of`.
  void enter(mlir::Location of);
  /// A value in a formula of the node that was entered last.
  Term term(mlir::Value value) { return {builder, loc, value}; }

private:
  mlir::OpBuilder &builder;
  const llvm::DenseSet<mlir::Value> &varied;
  mlir::Location loc = builder.getUnknownLoc();
  llvm::DenseMap<mlir::Value, mlir::Value> cotangents;
};

} // namespace gridloom

#include "passes/differentiate/DerivativeInterface.h.inc"

#endif // GRIDLOOM_PASSES_DIFFERENTIATE_ADJOINTS_H
