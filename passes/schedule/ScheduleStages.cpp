//===- ScheduleStages.cpp - stage functions to programs -------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
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
    for (auto func : llvm::make_early_inc_range(getOperation().getOps<func::FuncOp>())) {
      if (func.isDeclaration())
        continue;
      listSchedule(func.getBody().front(), MachineRates(), overlap);
      insertEvents(buildProgram(func, overlap));
    }
  }
};

} // namespace
} // namespace gridloom
