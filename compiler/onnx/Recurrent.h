//===- Recurrent.h - recurrent cells and their loop --------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_ONNX_RECURRENT_H
#define GRIDLOOM_COMPILER_ONNX_RECURRENT_H

#include "compiler/onnx/Node.h"

namespace gridloom::onnx_import {

/// Fails, with an error, if a sequence of `steps` is too long to be unrolled.
llvm::LogicalResult checkUnrolled(Node &node, int64_t steps);

/// Applies the function with the ONNX name `name`, in any case, e.g. "LeakyRelu"; parameters that
/// are not given have its defaults. Null, with an error, if there is none.
mlir::Value activateByName(Node &node, llvm::StringRef name, std::optional<double> alpha,
                           std::optional<double> beta, mlir::Value x);

/// One step of a recurrent operator: takes the input of the step and the state before it, puts the
/// state after it in its place and returns the output.
using RecurrentCell =
    llvm::function_ref<mlir::Value(mlir::Value input, llvm::MutableArrayRef<mlir::Value> state)>;

/// Runs `cell` over dimension 0 of x, [steps, batch, n], backwards if `reverse`. `state`, each
/// [batch, m], is the initial state and becomes the last one. Where `lengths`, an i64 of [batch],
/// is given, a row's steps from its length on keep its state and give zeros; backwards it begins at
/// its own last step. Returns [steps, batch, output size]; null, with an error, on failure.
mlir::Value runRecurrence(Node &node, mlir::Value x, bool reverse, mlir::Value lengths,
                          llvm::SmallVectorImpl<mlir::Value> &state, RecurrentCell cell);

} // namespace gridloom::onnx_import

#endif // GRIDLOOM_COMPILER_ONNX_RECURRENT_H
