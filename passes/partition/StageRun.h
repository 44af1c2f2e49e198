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

/// The operations of `func`, all of which have stages, in the order in which they would end if all
/// stages ran concurrently: each stage runs the first operation in program order whose operands are
/// there, by estimated times. Values from another stage arrive a transfer's time later; collectives
/// run beside the work. If forward and backward work of a batch's pieces alternates in the program,
/// stages run backward work as soon as they can, else forward work on the next piece.
std::vector<mlir::Operation *> runStages(mlir::func::FuncOp func, const dist::Mesh &mesh,
                                         llvm::ArrayRef<mlir::StringAttr> stageAxes);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_PARTITION_STAGERUN_H
