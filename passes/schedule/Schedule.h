//===- Schedule.h - the schedule phase --------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SCHEDULE_SCHEDULE_H
#define GRIDLOOM_PASSES_SCHEDULE_SCHEDULE_H

#include "passes/schedule/Passes.h"

#include "mlir/Pass/PassManager.h"

namespace gridloom {

struct ScheduleOptions {
  /// Overlap communication with compute.
  bool overlap = true;
};

/// Adds the passes that turn stage functions and derived tensors into programs; `pm` is a module's.
void addSchedulePasses(mlir::OpPassManager &pm, const ScheduleOptions &options = {});

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SCHEDULE_SCHEDULE_H
