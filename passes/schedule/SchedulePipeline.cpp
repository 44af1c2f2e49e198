//===- SchedulePipeline.cpp - passes of the schedule phase ----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/schedule/Schedule.h"

void gridloom::addSchedulePasses(mlir::OpPassManager &pm, const ScheduleOptions &options) {
  ScheduleStagesOptions schedule;
  schedule.overlap = options.overlap;
  pm.addPass(createScheduleStages(schedule));
  pm.addPass(createVerifyScheduled());
}
