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

/// The reduction of the scalars that the `count` threads of a warp or a block have; all of them get
/// it, and all of them have to be here. `lane` is the thread's number in the group.
mlir::Value joinThreads(BodyEmitter &emitter, const Node &reduce, mlir::Value value,
                        mlir::Value lane, int64_t count, mlir::gpu::GPUFuncOp function);

} // namespace gridloom::codegen

#endif // GRIDLOOM_COMPILER_CODEGEN_GPU_THREADGROUPS_H
