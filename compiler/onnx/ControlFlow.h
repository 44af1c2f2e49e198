//===- ControlFlow.h - helpers of loops and branches ------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_ONNX_CONTROLFLOW_H
#define GRIDLOOM_COMPILER_ONNX_CONTROLFLOW_H

#include "compiler/onnx/GraphImporter.h"

namespace gridloom::onnx_import {

/// A body under construction: a function of the module, and the values it reads from outer graphs.
struct Body {
  mlir::func::FuncOp function;
  Captures captures;

  mlir::Block &getBlock() { return function.front(); }
  /// Ends the block with a return of `results` and sets the function's type. Arguments and results
  /// without a name are called #INDEX.
  void finish(mlir::ValueRange results, llvm::ArrayRef<std::string> argumentNames,
              llvm::ArrayRef<std::string> resultNames);
  /// Replaces the captures by `all`, in that order, as the arguments after the first `carried`.
  void setCaptures(unsigned carried, llvm::ArrayRef<mlir::Value> all);
};

/// A value of one element as a scalar. Null, with an error, if it has more.
mlir::Value toScalar(Emitter &emitter, mlir::Value value, llvm::StringRef name);
/// The one number of a scalar that is a constant integer; nothing otherwise.
std::optional<int64_t> getKnown(mlir::Value value);

llvm::LogicalResult importLoop(Node &node);
llvm::LogicalResult importScan(Node &node);
llvm::LogicalResult importBatchedScan(Node &node);

} // namespace gridloom::onnx_import

#endif // GRIDLOOM_COMPILER_ONNX_CONTROLFLOW_H
