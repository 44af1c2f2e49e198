//===- CpuEmitter.h - kernels as functions for the CPU ----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_CODEGEN_CPU_CPUEMITTER_H
#define GRIDLOOM_COMPILER_CODEGEN_CPU_CPUEMITTER_H

#include "compiler/codegen/Nest.h"

namespace gridloom::codegen {

/// Suffix of the function that holds a kernel's loops; the kernel's symbol is a wrapper of it.
inline constexpr llvm::StringLiteral kBodySuffix = ".rows";

/// Replaces every plan.kernel of `module` by a function NAME.rows(memrefs..., lo, hi) of vector,
/// scf and memref operations; other operations stay. Emits an error and fails as compileCpuKernels
/// does.
mlir::FailureOr<std::vector<KernelInfo>> emitCpuKernels(mlir::ModuleOp module);

} // namespace gridloom::codegen

#endif // GRIDLOOM_COMPILER_CODEGEN_CPU_CPUEMITTER_H
