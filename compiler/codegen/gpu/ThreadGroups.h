//===- ThreadGroups.h - combines values of several threads ------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_CODEGEN_GPU_THREADGROUPS_H
#define GRIDLOOM_COMPILER_CODEGEN_GPU_THREADGROUPS_H

#include "compiler/codegen/BodyEmitter.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"

namespace gridloom::codegen {

/// Threads of a warp.
inline constexpr int64_t kWarp = 32;

/// The value of another thread of the warp, chosen by `offset` and `mode`. All threads of the warp
/// must execute it.
mlir::Value exchange(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value value,
                     int32_t offset, mlir::gpu::ShuffleMode mode);

/// Adds shared memory of `count` elements to the block.
mlir::Value addSharedMemory(mlir::gpu::GPUFuncOp function, mlir::Type element, int64_t count);

/// Reduces the scalars of the `count` threads of a warp or a block. All of them get the result, and
/// all must execute it. `lane` is the thread's number in the group.
mlir::Value joinThreads(BodyEmitter &emitter, const Node &reduce, mlir::Value value,
                        mlir::Value lane, int64_t count, mlir::gpu::GPUFuncOp function);

/// The place of a thread among `count` of them.
struct ThreadPlace {
  mlir::Value number;
  int64_t count;
};

/// Reduces the values, scalars or vectors, of the threads in one column of a block: those with the
/// same `across`. All of them get the result, and the whole block must execute it. The thread's
/// number in the block is along * across.count + across.
mlir::Value joinColumns(BodyEmitter &emitter, const Node &reduce, mlir::Value value,
                        ThreadPlace across, ThreadPlace along, mlir::gpu::GPUFuncOp function);

} // namespace gridloom::codegen

#endif // GRIDLOOM_COMPILER_CODEGEN_GPU_THREADGROUPS_H
