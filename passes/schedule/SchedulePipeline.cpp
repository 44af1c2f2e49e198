//===- SchedulePipeline.cpp - passes of the schedule phase ----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/schedule/Schedule.h"

void gridloom::addSchedulePasses(mlir::OpPassManager &pm, const ScheduleOptions &options) {
  ScheduleStagesOptions schedule;
  schedule.overlap = options.overlap;
  // One pass, because the order of steps decides which buffers and events the program needs.
  pm.addPass(createScheduleStages(schedule));
  // Checks all stages together: each may be in order and still all wait for each other.
  pm.addPass(createVerifyScheduled());
}
