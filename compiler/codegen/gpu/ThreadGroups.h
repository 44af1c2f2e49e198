//===- ThreadGroups.h - values of several threads as one --------*- C++ -*-===//
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

/// The value of another thread of the warp, `offset` lanes from this one as `mode` says. All
/// threads of the warp have to be here.
mlir::Value exchange(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value value,
                     int32_t offset, mlir::gpu::ShuffleMode mode);

/// Memory of `count` elements that the threads of a block share.
mlir::Value addSharedMemory(mlir::gpu::GPUFuncOp function, mlir::Type element, int64_t count);

/// The reduction of the scalars that the `count` threads of a warp or a block have; all of them get
/// it, and all of them have to be here. `lane` is the thread's number in the group.
mlir::Value joinThreads(BodyEmitter &emitter, const Node &reduce, mlir::Value value,
                        mlir::Value lane, int64_t count, mlir::gpu::GPUFuncOp function);

/// The place of a thread among `count` of them.
struct ThreadPlace {
  mlir::Value number;
  int64_t count;
};

/// The reduction of the values, scalars or vectors, that the threads of one column of a block have:
/// those with the same `across`, apart in `along`. All of them get it, and the whole block has to
/// be here. The thread's number in the block is along * across.count + across.
mlir::Value joinColumns(BodyEmitter &emitter, const Node &reduce, mlir::Value value,
                        ThreadPlace across, ThreadPlace along, mlir::gpu::GPUFuncOp function);

} // namespace gridloom::codegen

#endif // GRIDLOOM_COMPILER_CODEGEN_GPU_THREADGROUPS_H
