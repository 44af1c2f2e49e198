//===- ListSchedule.h - the order of a stage's work -------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SCHEDULE_LISTSCHEDULE_H
#define GRIDLOOM_PASSES_SCHEDULE_LISTSCHEDULE_H

#include "dialects/plan/Plan.h"

namespace gridloom {

/// Speeds that rank alternatives; only their ratios matter, and only for speed.
struct MachineRates {
  double flopsPerSecond = 4e10;
  double bytesPerSecond = 8e9; // of memory
  double launchSeconds = 2e-6;
  double networkBytesPerSecond = 2e9; // of one group
  double networkSeconds = 2e-5;       // of any group
};

/// Sorts the operations of `block`, terminator last. Communication starts when its operands are
/// ready; `dist.done` stands before its first reader. Without `overlap` compute stands still while
/// a group runs.
void listSchedule(mlir::Block &block, const MachineRates &rates, bool overlap);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SCHEDULE_LISTSCHEDULE_H
