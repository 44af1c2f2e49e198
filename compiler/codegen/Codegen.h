//===- Codegen.h - kernels to machine code ----------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Compiles the plan.kernel operations of a module: to one shared object for CPUs, to PTX and cubins
// for GPUs. The input module is not changed.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_CODEGEN_CODEGEN_H
#define GRIDLOOM_COMPILER_CODEGEN_CODEGEN_H

#include "dialects/plan/Plan.h"
#include "support/CpuLevels.h"

#include "mlir/IR/BuiltinOps.h"

#include <array>
#include <string>
#include <utility>
#include <vector>

namespace gridloom::codegen {

/// Properties of a compiled kernel for the runtime and the cost model.
struct KernelInfo {
  std::string symbol;
  unsigned numPointers = 0;                              // inputs, then outputs
  plan::Skeleton skeleton = plan::Skeleton::Elementwise; // what its loops became
  int64_t rows = 0;                                      // CPU: extent of the row range [lo, hi)
  int64_t grain = 1;                                     // CPU: least rows worth a thread
  int64_t flops = 0; // of one call; a multiply-add counts as two
  int64_t bytes = 0; // inputs and outputs, each once
  /// Pairs (output, input), counted from 0 each, whose buffers may be the same memory, as the
  /// kernel's `in_place` lists them. An output may have several pairs, of which a launch may use
  /// one. Any other overlap is undefined.
  std::vector<std::pair<unsigned, unsigned>> inPlace;
};

struct CpuOptions {
  /// The least processor that runs the kernels, by LLVM's name.
  std::string arch{kDefaultCpuLevel};
  /// A processor of the same family with wider registers; empty: no second object.
  std::string wideArch;
};

struct CompiledKernels {
  /// An ELF shared object. Each kernel is a function
  ///   extern "C" void NAME(void *const *pointers, int64_t lo, int64_t hi)
  /// on dense row-major tensors. i1 tensors have one byte, 0 or 1, per element.
  std::string sharedObject;
  /// The same functions for CpuOptions::wideArch, with the same results bit by bit: lanes and their
  /// order do not depend on registers.
  std::string wideObject;
  std::vector<KernelInfo> kernels; // in the module's order
};

/// Compiles all plan.kernel operations of `module` for the CPU. Emits an error at the kernel and
/// fails where a body has operations or types without code. Equal modules give equal bytes.
mlir::FailureOr<CompiledKernels> compileCpuKernels(mlir::ModuleOp module,
                                                   const CpuOptions &options = {});

/// Whether there is code for a GPU architecture, as sm_90.
bool isKnownGpu(llvm::StringRef chip);

struct GpuOptions {
  std::string chip = "sm_90";
  /// Multiprocessors of such a GPU: work is cut finer until each has some.
  int64_t processors = 132;
  /// The CUDA toolkit's folder, for libdevice and ptxas. Empty: $CUDA_HOME, else /usr/local/cuda.
  std::string toolkit;
  /// Do not look for ptxas; the results then have PTX only.
  bool assemble = true;
  /// The number of kernels that share a PTX file and a cubin.
  size_t kernelsPerLibrary = 8;
};

struct CompiledGpuKernel {
  KernelInfo info;
  /// The name, without extension, of the library the kernel is in: kernels with the same one have
  /// the same PTX and cubin.
  std::string library;
  std::string ptx;
  int64_t cudaVersion = 0; // 1000 * major + 10 * minor, whose driver first took the PTX
  std::string cubin;       // empty without ptxas
  std::array<uint32_t, 3> grid{1, 1, 1}, block{1, 1, 1};
  uint32_t sharedBytes = 0; // static, as ptxas reports it: nothing a launch has to ask for
  int registers = -1, spillBytes = -1; // as ptxas reports them; -1 without it
  /// Processor time it took to make it: its part of what was done for several kernels at once.
  struct {
    double lowering = 0, ptx = 0, cubin = 0;
  } milliseconds;
};

/// Compiles all plan.kernel operations of `module` for NVIDIA GPUs. The entry of a kernel has its
/// name and takes one pointer per input and output. Fails like compileCpuKernels.
mlir::FailureOr<std::vector<CompiledGpuKernel>> compileGpuKernels(mlir::ModuleOp module,
                                                                  const GpuOptions &options = {});

/// Registers plan-emit-cpu and plan-emit-gpu, which replace kernels by the loops emitted for them.
void registerCodegenPasses();

} // namespace gridloom::codegen

#endif // GRIDLOOM_COMPILER_CODEGEN_CODEGEN_H
