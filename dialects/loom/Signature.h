//===- Signature.h - inputs and outputs of functions by name ----*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_DIALECTS_LOOM_SIGNATURE_H
#define GRIDLOOM_DIALECTS_LOOM_SIGNATURE_H

#include "dialects/loom/Loom.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace gridloom::loom {

/// The name of an argument or a result of a function; "" if it has none.
llvm::StringRef getArgumentName(mlir::BlockArgument argument);
llvm::StringRef getResultName(mlir::func::FuncOp function, unsigned result);
/// The attribute of the function argument that the value is; null if it is not one, or has none.
mlir::Attribute getArgumentAttr(mlir::Value value, llvm::StringRef attribute);
/// The argument or result called `name`; null or nullopt if there is none.
mlir::BlockArgument findArgument(mlir::func::FuncOp function, llvm::StringRef name);
std::optional<unsigned> findResult(mlir::func::FuncOp function, llvm::StringRef name);

/// "'NAME' is not an output of the model; its outputs are 'A', 'B'".
std::string describeMissingOutput(mlir::func::FuncOp function, llvm::StringRef name);
/// Whether the data determine the length of output `name`: elements beyond it are undefined.
bool hasDataLength(mlir::func::FuncOp function, llvm::StringRef name);

} // namespace gridloom::loom

#endif // GRIDLOOM_DIALECTS_LOOM_SIGNATURE_H
