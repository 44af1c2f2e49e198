//===- Sequences.h - lists of tensors at import -----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A sequence is a value of tuple type, made of its tensors by a cast. Its length and what it holds
// are known while a model is imported, and no sequence remains afterwards.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_ONNX_SEQUENCES_H
#define GRIDLOOM_COMPILER_ONNX_SEQUENCES_H

#include "mlir/IR/Builders.h"

namespace gridloom::onnx_import {

inline bool isSequence(mlir::Value value) {
  return value && llvm::isa<mlir::TupleType>(value.getType());
}
/// The tensors of a sequence.
llvm::SmallVector<mlir::Value> getElements(mlir::Value sequence);
mlir::Value makeSequence(mlir::OpBuilder &builder, mlir::Location loc, mlir::ValueRange elements);

/// Replaces each sequence by its tensors.
llvm::SmallVector<mlir::Value> flattenSequences(mlir::ValueRange values);
/// The inverse: values of `types`, some of which are sequences.
llvm::SmallVector<mlir::Value> regroupSequences(mlir::OpBuilder &builder, mlir::Location loc,
                                                mlir::ValueRange flat, mlir::TypeRange types);

} // namespace gridloom::onnx_import

#endif // GRIDLOOM_COMPILER_ONNX_SEQUENCES_H
