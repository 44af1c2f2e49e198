//===- States.h - values that outlive a call --------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_ONNX_STATES_H
#define GRIDLOOM_COMPILER_ONNX_STATES_H

#include "compiler/onnx/Import.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace gridloom::onnx_import {

/// Marks the arguments and results that `states` pairs with `loom.state`, the argument's name.
/// Fails, with an error, where a pattern fits nothing, an input has no output, or they differ in
/// type: a state keeps its shape from call to call.
llvm::LogicalResult declareStates(mlir::func::FuncOp function, const ImportOptions &options);

} // namespace gridloom::onnx_import

#endif // GRIDLOOM_COMPILER_ONNX_STATES_H
