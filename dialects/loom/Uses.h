//===- Uses.h - the readers of a value --------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_DIALECTS_LOOM_USES_H
#define GRIDLOOM_DIALECTS_LOOM_USES_H

#include "mlir/IR/Value.h"

namespace gridloom::loom {

/// The value's uses in program order. MLIR's lists of uses are in order of creation, which differs
/// between a program and its clone.
llvm::SmallVector<mlir::OpOperand *> listUses(mlir::Value value);

/// The reader of a value that is used once; null for others.
mlir::Operation *getOnlyReader(mlir::Value value);

} // namespace gridloom::loom

#endif // GRIDLOOM_DIALECTS_LOOM_USES_H
