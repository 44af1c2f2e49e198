//===- Work.h - operations as the cost library sees them --------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_DIALECTS_LOOM_WORK_H
#define GRIDLOOM_DIALECTS_LOOM_WORK_H

#include "dialects/dist/Sharding.h"
#include "dialects/loom/Loom.h"

namespace gridloom::loom {

/// The time of an operation that does not communicate, on the shapes it has. What passes from an
/// elementwise operation to its only reader stays in registers, as fusion will have it, unless a
/// library reads it. Views and operations without operands take no time; a loop takes that of its
/// body as often as it runs, a branch that of its dearer body.
double getComputeSeconds(mlir::Operation *op, const cluster::Machine &machine);

/// Whether a value passes from the operation that makes it to its only reader within a kernel.
bool staysInRegisters(mlir::Value value);

/// What a device does of an operation that it does `share` of, on tensors of these types: operands,
/// then results. Nothing for loops and branches.
cluster::Work getShareOfWork(mlir::Operation *op, double share,
                             llvm::ArrayRef<mlir::RankedTensorType> types);
/// The same of tensors of so many bytes.
cluster::Work getShareOfWork(mlir::Operation *op, double share, llvm::ArrayRef<double> bytes);

/// The time of a collective or transfer, alone; transfers cross one step of the axis of stages. A
/// receive takes as long as its send.
double getCommunicationSeconds(mlir::Operation *op, const dist::Mesh &mesh);

} // namespace gridloom::loom

#endif // GRIDLOOM_DIALECTS_LOOM_WORK_H
