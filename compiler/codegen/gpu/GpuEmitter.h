//===- GpuEmitter.h - kernels as GPU functions ------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_CODEGEN_GPU_GPUEMITTER_H
#define GRIDLOOM_COMPILER_CODEGEN_GPU_GPUEMITTER_H

#include "compiler/codegen/Nest.h"

namespace gridloom::codegen {

/// Replaces every plan.kernel of `module` by a gpu.module of the kernel's name with one gpu.func.
/// Fills `info`, `grid` and `block` of the results, for GPUs with `processors` multiprocessors.
/// Emits an error and fails if a kernel has an operation without code or needs too many blocks.
mlir::FailureOr<std::vector<CompiledGpuKernel>> emitGpuKernels(mlir::ModuleOp module,
                                                               int64_t processors);

} // namespace gridloom::codegen

#endif // GRIDLOOM_COMPILER_CODEGEN_GPU_GPUEMITTER_H
