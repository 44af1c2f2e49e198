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

/// Replaces integer powers, which GPUs have no instruction for, by loops.
void expandIntegerPowers(mlir::ModuleOp module);

/// Lowers every gpu.module of `module` to the nvvm dialect. Without libdevice, math functions of
/// f32 become polynomials.
mlir::LogicalResult lowerToNvvm(mlir::ModuleOp module, bool hasLibdevice);

/// Translates gpu.modules in the nvvm dialect to one PTX text. `libdevice` is its path, empty if
/// there is none.
mlir::FailureOr<std::string> translateToPtx(llvm::ArrayRef<mlir::Operation *> modules,
                                            const std::string &chip, const std::string &libdevice);

/// Runs `ptxas` on the PTX that `kernels` share: fills cubin, registers, spillBytes, sharedBytes
/// and the time it took.
mlir::LogicalResult assemblePtx(mlir::Location loc, const std::string &ptxas,
                                const std::string &chip,
                                llvm::MutableArrayRef<CompiledGpuKernel> kernels);

} // namespace gridloom::codegen

#endif // GRIDLOOM_COMPILER_CODEGEN_GPU_GPULOWERING_H
