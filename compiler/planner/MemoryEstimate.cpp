//===- MemoryEstimate.cpp - memory of a plan before it is made ------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/planner/MemoryEstimate.h"

#include "compiler/planner/Lifetimes.h"
#include "dialects/loom/Control.h"
#include "passes/allocate/BufferSizes.h"
#include "passes/partition/Partition.h"
#include "passes/schedule/BuildProgram.h"

#include "mlir/IR/Diagnostics.h"

using namespace mlir;
using namespace gridloom;

LogicalResult gridloom::fuseCommunicated(ModuleOp module, const MemoryOptions &options) {
  PassManager pm(module.getContext());
  pm.enableVerifier(false); // the phases verify the program themselves
  addLayoutPasses(pm, options.layout);
  addFusePasses(pm, options.fuse);
  return pm.run(module);
}

/// Schedules each function and makes it a program without events between streams.
static std::vector<plan::ProgramOp> buildPrograms(ModuleOp module) {
  auto funcs = llvm::filter_to_vector(module.getOps<func::FuncOp>(),
                                      [](func::FuncOp func) { return !func.isDeclaration(); });
  dist::Mesh mesh = dist::Mesh::get(module);
  DeferredStarts deferred;
  for (func::FuncOp func : funcs) {
    DeferredStarts own = listSchedule(func.getBody().front(), mesh, /*overlap=*/true);
    deferred.insert(own.begin(), own.end());
  }
  std::vector<plan::ProgramOp> programs;
  for (func::FuncOp func : funcs)
    if (!loom::isBody(func))
      programs.push_back(buildProgram(func, /*overlap=*/true, deferred));
  return programs;
}

std::vector<StageMemory> gridloom::estimateFused(ModuleOp module) {
  // Errors of the module are reported by the phases of the compilation itself.
  ScopedDiagnosticHandler quiet(module.getContext(), [](Diagnostic &) { return success(); });
  for (plan::ProgramOp program : buildPrograms(module)) {
    Lifetimes::addSlots(program);
    setBufferBytes(program);
    Lifetimes lifetimes(program);
    program.setArenaBytes(lifetimes.pack(plan::Space::Arena));
    program.setRegisteredBytes(lifetimes.pack(plan::Space::Registered));
  }
  return computeMemory(module);
}

std::vector<StageMemory> gridloom::estimateMemory(ModuleOp module, const MemoryOptions &options) {
  ScopedDiagnosticHandler quiet(module.getContext(), [](Diagnostic &) { return success(); });
  OwningOpRef<ModuleOp> copy = module.clone();
  PassManager pm(module.getContext());
  pm.enableVerifier(false);
  addPartitionPasses(pm);
  addCommunicatePasses(pm, options.communicate);
  if (failed(pm.run(*copy)) || failed(fuseCommunicated(*copy, options)))
    return {};
  return estimateFused(*copy);
}
