//===- GpuLanes.h - GPU kernels that walk a dimension -----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The operations of cpu/LaneKernels.h on GPUs. Each kernel says how many blocks and threads it
// wants and emits what one thread does. A new one derives from GpuLaneKernel and gets a line in
// makeGpuLaneKernel.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_CODEGEN_GPU_GPULANES_H
#define GRIDLOOM_COMPILER_CODEGEN_GPU_GPULANES_H

#include "compiler/codegen/LaneBuilder.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"

namespace gridloom::codegen {

/// A thread of a kernel; its numbers have type index.
struct GpuThread {
  mlir::gpu::GPUFuncOp function;
  mlir::Value block, thread;
};

/// Emits one operation. Its operands and result are the function's memrefs of rank 1, in order. The
/// result of a cumulative or scatter may be the memory of its first operand.
class GpuLaneKernel {
public:
  virtual ~GpuLaneKernel() = default;

  virtual int64_t getBlocks() const = 0;
  /// Threads of a block: a multiple of a warp, at most 1024.
  virtual int64_t getThreads() const { return 256; }
  virtual void emit(LaneBuilder &b, mlir::ValueRange memories, const GpuThread &self) = 0;
};

/// The emitter of the kernel's only operation; null for kernels that are computed by element.
std::unique_ptr<GpuLaneKernel> makeGpuLaneKernel(plan::KernelOp kernel);
std::unique_ptr<GpuLaneKernel> makeGpuScan(loom::CumulativeOp op);
std::unique_ptr<GpuLaneKernel> makeGpuSort(loom::ArgsortOp op);

/// Emits `kernel` as the body of `function`. Returns how many blocks it has.
int64_t emitGpuLaneKernel(mlir::gpu::GPUFuncOp function, GpuLaneKernel &kernel);

/// A scan over the threads of a group, in order.
struct ThreadScan {
  mlir::Value before; // the threads with smaller numbers, combined
  mlir::Value all;
};

/// A combination of two values, and its neutral element.
struct Combiner {
  mlir::Value neutral;
  std::function<mlir::Value(mlir::Value, mlir::Value)> combine;
};

/// Scans `value` over a group of `count` threads, a warp or a block; `lane` is this thread's number
/// in it. All threads of the group must execute it. `places` is shared memory for one value per
/// warp, null if the group is a warp; it may be used again at once.
ThreadScan scanThreads(LaneBuilder &b, const Combiner &combiner, mlir::Value value,
                       mlir::Value lane, int64_t count, mlir::Value places);

} // namespace gridloom::codegen

#endif // GRIDLOOM_COMPILER_CODEGEN_GPU_GPULANES_H
