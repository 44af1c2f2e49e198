//===- KernelFiles.h - a module's kernels as a plan has them ----*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_TARGET_KERNELFILES_H
#define GRIDLOOM_COMPILER_TARGET_KERNELFILES_H

#include "compiler/codegen/Codegen.h"
#include "runtime/core/plan.pb.h"

#include "llvm/ADT/StringMap.h"

#include <map>
#include <string>
#include <vector>

namespace gridloom {

/// Facts about a GPU kernel for the report; -1 without an assembler.
struct CompiledKernel {
  std::string symbol, skeleton;
  int64_t registers = -1, spillBytes = -1, sharedBytes = 0;
  double loweringMs = 0, ptxMs = 0, cubinMs = 0;
};

struct KernelFiles {
  std::map<std::string, std::string> files; ///< by path in the plan: kernels/cpu.so
  llvm::StringMap<schema::Kernel> kernels;  ///< by symbol
  std::vector<CompiledKernel> compiled;     ///< for the report; none for CPUs
  /// The first CUDA version, 1000 * major + 10 * minor, whose driver accepts all PTX; 0 without
  /// PTX.
  int64_t cudaVersion = 0;

  /// Adds a kernel of kernels/<library> with the fields that all targets set.
  schema::Kernel &add(const codegen::KernelInfo &info, const llvm::Twine &library);
};

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_TARGET_KERNELFILES_H
