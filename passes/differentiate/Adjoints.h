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

/// The cotangents of a function's values while it is differentiated in reverse. Operations are
/// built at the builder's place.
class Adjoints {
public:
  /// `varied` are the values that change with what the function is differentiated by.
  Adjoints(mlir::OpBuilder &builder, const llvm::DenseSet<mlir::Value> &varied)
      : builder(builder), varied(varied) {}

  /// Whether the value needs a cotangent.
  bool wants(mlir::Value value) const { return varied.contains(value); }
  /// Adds what `make` builds to the cotangent of `value`, of its type; nothing where it needs none.
  void add(mlir::Value value, llvm::function_ref<mlir::Value()> make);
  /// The sum of what was added; null where nothing was.
  mlir::Value get(mlir::Value value) const { return cotangents.lookup(value); }

  /// What is built from here on is located at NODE.grad, as part of the derivative of what is
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
