//===- MicroBatches.h - batches cut into micro-batches ----------*- C++ -*-===//
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
  bool isSize = false; ///< fewer micro-batches may work
};

/// True when the operation computes its result over `axis` piece by piece, without a reduction.
bool isParallelOver(const Propagation &state, mlir::Operation *op, mlir::StringAttr axis);

/// The pinned sharding of a result with each device's part cut into micro-batches; unchanged if it
/// is cut already.
dist::Sharding cutInTime(dist::ShardingAttr pinned, mlir::StringAttr micro);

/// The first obstacle to running on a piece of the batch; nullopt if there is none.
std::optional<MicrobatchObstacle>
findMicrobatchObstacle(const Propagation &state, mlir::func::FuncOp func, mlir::StringAttr micro);

/// The greatest common divisor of the inputs' leading dimensions: a batch cannot be split or cut in
/// time into more pieces. States and scalars count as one row; 0 without inputs.
int64_t countRows(mlir::func::FuncOp func);

/// The parts in which the module's training step computes its batch, which are in the program; none
/// without a training step.
std::optional<int64_t> getTrainedParts(mlir::ModuleOp module);

/// Makes `count` micro-batches the last axis of the mesh, in place of those it had; one is none.
void setMicrobatches(dist::MeshOp mesh, int64_t count);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SHARD_MICROBATCHES_H
