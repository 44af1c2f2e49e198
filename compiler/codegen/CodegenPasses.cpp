//===- CodegenPasses.cpp - emitters as passes, for tests ------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/codegen/cpu/CpuEmitter.h"
#include "compiler/codegen/gpu/GpuEmitter.h"
#include "compiler/codegen/gpu/GpuLowering.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Pass/PassRegistry.h"

using namespace mlir;
using namespace gridloom;

namespace {

struct EmitCpuPass : PassWrapper<EmitCpuPass, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(EmitCpuPass)
  StringRef getArgument() const final { return "plan-emit-cpu"; }
  StringRef getDescription() const final {
    return "Replaces kernels by the loops the CPU emitter makes of them";
  }
  void getDependentDialects(DialectRegistry &registry) const final {
    registry.insert<arith::ArithDialect, func::FuncDialect, math::MathDialect,
                    memref::MemRefDialect, scf::SCFDialect, vector::VectorDialect>();
  }
  void runOnOperation() final {
    if (failed(codegen::emitCpuKernels(getOperation())))
      signalPassFailure();
  }
};

struct EmitGpuPass : PassWrapper<EmitGpuPass, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(EmitGpuPass)
  StringRef getArgument() const final { return "plan-emit-gpu"; }
  StringRef getDescription() const final {
    return "Replaces kernels by the functions the GPU emitter makes of them";
  }
  void getDependentDialects(DialectRegistry &registry) const final {
    registry.insert<arith::ArithDialect, gpu::GPUDialect, math::MathDialect, memref::MemRefDialect,
                    scf::SCFDialect, vector::VectorDialect>();
  }
  void runOnOperation() final {
    if (failed(codegen::emitGpuKernels(getOperation(), codegen::GpuOptions().processors)))
      signalPassFailure();
  }
};

/// Leaves the module unchanged. Loads dialects, so it must not run concurrently.
struct PrintPtxPass : PassWrapper<PrintPtxPass, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(PrintPtxPass)
  PrintPtxPass() = default;
  PrintPtxPass(const PrintPtxPass &other) : PassWrapper(other) {}
  StringRef getArgument() const final { return "plan-print-ptx"; }
  StringRef getDescription() const final { return "Prints the PTX of all kernels"; }
  void getDependentDialects(DialectRegistry &registry) const final {
    codegen::registerGpuDialects(registry);
  }
  void runOnOperation() final {
    codegen::GpuOptions options;
    options.chip = chip;
    options.toolkit = toolkit;
    options.assemble = false;
    options.kernelsPerLibrary = 1;
    auto kernels = codegen::compileGpuKernels(getOperation(), options);
    if (failed(kernels))
      return signalPassFailure();
    for (const codegen::CompiledGpuKernel &kernel : *kernels)
      llvm::outs() << "// kernel " << kernel.info.symbol << " grid " << kernel.grid[0] << " x "
                   << kernel.grid[1] << " x " << kernel.grid[2] << " block " << kernel.block[0]
                   << "\n"
                   << kernel.ptx;
  }
  Option<std::string> chip{*this, "chip", llvm::cl::init("sm_90"), llvm::cl::desc("architecture")};
  Option<std::string> toolkit{*this, "toolkit", llvm::cl::init(""),
                              llvm::cl::desc("the CUDA toolkit's folder")};
};

} // namespace

void gridloom::codegen::registerCodegenPasses() {
  PassRegistration<EmitCpuPass>();
  PassRegistration<EmitGpuPass>();
  PassRegistration<PrintPtxPass>();
}
