//===- GpuLowering.h - GPU functions to PTX and cubins ----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_CODEGEN_GPU_GPULOWERING_H
#define GRIDLOOM_COMPILER_CODEGEN_GPU_GPULOWERING_H

#include "compiler/codegen/Codegen.h"

namespace gridloom::codegen {

/// The dialects and translations that compileGpuKernels uses.
void registerGpuDialects(mlir::DialectRegistry &registry);

/// `options.toolkit`, else $CUDA_HOME, else /usr/local/cuda if it is there, else empty.
std::string findToolkit(const GpuOptions &options);

/// Lowers every gpu.module of `module` to the nvvm dialect. Without libdevice, math functions of
/// f32 become polynomials.
mlir::LogicalResult lowerToNvvm(mlir::ModuleOp module, bool hasLibdevice);

/// The PTX of a gpu.module of the nvvm dialect; `op` is it.
mlir::FailureOr<std::string> translateToPtx(mlir::Operation *op, const std::string &chip,
                                            const std::string &libdevice);

/// Assembles a kernel's PTX with `ptxas`: fills cubin, registers, spillBytes and sharedBytes.
mlir::LogicalResult assemblePtx(mlir::Location loc, const std::string &ptxas,
                                const std::string &chip, CompiledGpuKernel &kernel);

} // namespace gridloom::codegen

#endif // GRIDLOOM_COMPILER_CODEGEN_GPU_GPULOWERING_H
