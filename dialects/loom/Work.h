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

/// The time of an operation that does not communicate, on the shapes it has, given what will share
/// a kernel or call as Kernels.h predicts. Views and operations without operands take no time; a
/// loop takes its body's as often as it runs, a branch that of its slower body.
double getComputeSeconds(mlir::Operation *op, const cluster::Machine &machine);

/// The work of an operation that devices share. Zero for loops and branches.
class SharedWork {
public:
  /// With `isBound`, a lower bound for any part of a program whose parts may be in one kernel.
  SharedWork(mlir::Operation *op, const cluster::Machine &machine, bool isBound = false);

  /// The time of a device that does `share` of it, on tensors of `bytes`: operands, then results.
  /// `first` is the shape of the first one, for which a transpose may have nothing to do.
  double getSeconds(double share, llvm::ArrayRef<double> bytes,
                    llvm::ArrayRef<int64_t> first) const;
  /// The same on tensors of these types.
  double getSeconds(double share, llvm::ArrayRef<mlir::RankedTensorType> types) const;

private:
  double getColumnBytes(double multiplies, llvm::ArrayRef<double> bytes) const;

  const cluster::Machine &machine;
  cluster::Work whole;
  double launches = 0, elementBytes = 0, groups = 1;
  llvm::SmallVector<double> shares; ///< by tensor, of what is in memory
  size_t numOperands = 0;
  bool readsPart = false;
  llvm::ArrayRef<int64_t> permutation; ///< of a transpose
  Columns columns;
};

/// A lower bound on the cost of sending a value between its maker and its reader, which would
/// otherwise be one kernel: one more launch.
double getLaunchSeconds(const cluster::Machine &machine);

/// The time of a collective, a transfer, or a group of them that starts together, on its own.
/// Transfers cross one step of the axis of stages; a receive takes as long as its send. The
/// all_gathers of a group are one message.
double getCommunicationSeconds(mlir::Operation *op, const dist::Mesh &mesh);

} // namespace gridloom::loom

#endif // GRIDLOOM_DIALECTS_LOOM_WORK_H
