//===- CpuLowering.h - emitted kernels to machine code ----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_CODEGEN_CPU_CPULOWERING_H
#define GRIDLOOM_COMPILER_CODEGEN_CPU_CPULOWERING_H

#include "compiler/codegen/Codegen.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/SmallVector.h"

namespace gridloom::codegen {

/// Expands exp, erf, tanh and the like to polynomials and bf16 conversions to shifts: x86 has no
/// instructions for them.
mlir::LogicalResult expandMath(mlir::ModuleOp module);

/// Lowers what emitCpuKernels made to the llvm dialect and adds the exported functions. `hasFma`
/// makes the products of reductions part of their sums.
mlir::LogicalResult lowerToLlvmDialect(mlir::ModuleOp module, bool hasFma);

/// Optimises a module of the llvm dialect and compiles it to a relocatable object for `arch`, whose
/// widest registers it uses.
mlir::FailureOr<llvm::SmallVector<char, 0>> compileToObject(mlir::ModuleOp module,
                                                            llvm::StringRef arch);

/// Links an object to a shared object that needs libm and libc at most. Errors are reported at
/// `loc`.
mlir::FailureOr<std::string> linkSharedObject(mlir::Location loc, llvm::StringRef object);

} // namespace gridloom::codegen

#endif // GRIDLOOM_COMPILER_CODEGEN_CPU_CPULOWERING_H
