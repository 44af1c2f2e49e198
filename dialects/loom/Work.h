//===- Work.h - operations as the cost library sees them --------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_DIALECTS_LOOM_WORK_H
#define GRIDLOOM_DIALECTS_LOOM_WORK_H

#include "dialects/dist/Sharding.h"
#include "dialects/loom/Kernels.h"

namespace gridloom::loom {

/// The time of an operation that does not communicate, on the shapes it has, with what will be in
/// one kernel or call as Kernels.h says. Views and operations without operands take no time; a loop
/// takes that of its body as often as it runs, a branch that of its dearer body.
double getComputeSeconds(mlir::Operation *op, const cluster::Machine &machine);

/// The time of what a device does of an operation that it does `share` of, on tensors of these
/// types: operands, then results. Nothing for loops and branches.
double getShareSeconds(mlir::Operation *op, double share,
                       llvm::ArrayRef<mlir::RankedTensorType> types,
                       const cluster::Machine &machine);
/// The same of tensors of so many bytes.
double getShareSeconds(mlir::Operation *op, double share, llvm::ArrayRef<double> bytes,
                       const cluster::Machine &machine);

/// What it takes at least that a value is sent between its maker and its reader, which would be one
/// kernel otherwise: one more is started.
double getLaunchSeconds(const cluster::Machine &machine);

/// The time of a collective or transfer, alone; transfers cross one step of the axis of stages. A
/// receive takes as long as its send.
double getCommunicationSeconds(mlir::Operation *op, const dist::Mesh &mesh);

} // namespace gridloom::loom

#endif // GRIDLOOM_DIALECTS_LOOM_WORK_H
