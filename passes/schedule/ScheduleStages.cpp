//===- ScheduleStages.cpp - stage functions to programs -------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/Control.h"
#include "passes/schedule/BuildProgram.h"
#include "passes/schedule/InsertEvents.h"
#include "passes/schedule/ListSchedule.h"
#include "passes/schedule/Passes.h"

using namespace mlir;

namespace gridloom {
#define GEN_PASS_DEF_SCHEDULESTAGES
#include "passes/schedule/Passes.h.inc"

namespace {

struct ScheduleStages : impl::ScheduleStagesBase<ScheduleStages> {
  using ScheduleStagesBase::ScheduleStagesBase;

  void runOnOperation() override {
    SmallVector<func::FuncOp> functions(getOperation().getOps<func::FuncOp>());
    llvm::erase_if(functions, [](func::FuncOp func) { return func.isDeclaration(); });
    dist::Mesh mesh = dist::Mesh::get(getOperation());
    DeferredStarts deferred;
    for (func::FuncOp func : functions) {
      DeferredStarts own = listSchedule(func.getBody().front(), mesh, overlap);
      deferred.insert(own.begin(), own.end());
    }
    // A body becomes part of the program that runs it.
    auto entries =
        llvm::make_filter_range(functions, [](func::FuncOp func) { return !loom::isBody(func); });
    for (func::FuncOp func : llvm::to_vector(entries))
      insertEvents(buildProgram(func, overlap, deferred));
    for (func::FuncOp func : llvm::make_early_inc_range(getOperation().getOps<func::FuncOp>()))
      if (loom::isBody(func))
        func.erase();
  }
};

} // namespace
} // namespace gridloom
