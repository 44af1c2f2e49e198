//===- MicroBatches.h - programs cut in time --------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SHARD_MICROBATCHES_H
#define GRIDLOOM_PASSES_SHARD_MICROBATCHES_H

#include "passes/shard/Propagation.h"

namespace gridloom {

/// Why a program cannot run on one micro-batch after the other.
struct MicrobatchObstacle {
  mlir::Location loc;
  std::string reason;
  bool isSize = false; ///< fewer micro-batches may do
};

/// True when an operation gives its result over an axis piece by piece: nothing has to be reduced.
bool isParallelOver(const Propagation &state, mlir::Operation *op, mlir::StringAttr axis);

/// A result's sharding, as the user asks for it, with each device's part cut into micro-batches;
/// the same where it is cut already.
dist::Sharding cutInTime(dist::ShardingAttr pinned, mlir::StringAttr micro);

/// The operation that needs the whole batch; nullopt if the program can run on a piece of it.
std::optional<MicrobatchObstacle>
findMicrobatchObstacle(const Propagation &state, mlir::func::FuncOp func, mlir::StringAttr micro);

/// What divides the leading dimensions of all inputs: more rows there are not to split or to cut in
/// time. A state or a number has one row; 0 without inputs.
int64_t countRows(mlir::func::FuncOp func);

/// The parts in which the module's training step computes its batch, which are in the program; none
/// without a training step.
std::optional<int64_t> getTrainedParts(mlir::ModuleOp module);

/// Makes `count` micro-batches the last axis of the mesh, in place of those it had; one is none.
void setMicrobatches(dist::MeshOp mesh, int64_t count);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SHARD_MICROBATCHES_H
