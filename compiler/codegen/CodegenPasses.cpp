//===- CodegenPasses.cpp - emitters as passes, to look at -----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/codegen/cpu/CpuEmitter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
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

} // namespace

void gridloom::codegen::registerCodegenPasses() { PassRegistration<EmitCpuPass>(); }
