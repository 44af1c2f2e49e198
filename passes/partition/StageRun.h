//===- StageRun.h - the order of a training step's work ---------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_PARTITION_STAGERUN_H
#define GRIDLOOM_PASSES_PARTITION_STAGERUN_H

#include "dialects/dist/Sharding.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <vector>

namespace gridloom {

/// The operations of `func`, all of which have stages, in the order in which they end when all
/// stages run them at once: each the first in program order whose operands are there, by estimated
/// times. What another stage makes comes later by a transfer's time; collectives run beside the
/// work. With the pieces of a batch in program order, forward and backward by turns, a stage works
/// backward as soon as it can, and else forward on the next piece.
std::vector<mlir::Operation *> runStages(mlir::func::FuncOp func, const dist::Mesh &mesh,
                                         llvm::ArrayRef<mlir::StringAttr> stageAxes);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_PARTITION_STAGERUN_H
