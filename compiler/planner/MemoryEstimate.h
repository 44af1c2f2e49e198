//===- MemoryEstimate.h - memory of a plan before it is made ----*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_PLANNER_MEMORYESTIMATE_H
#define GRIDLOOM_COMPILER_PLANNER_MEMORYESTIMATE_H

#include "compiler/planner/AllocatedMemory.h"
#include "compiler/planner/DeviceSketch.h"

namespace gridloom {

/// What a device of each stage will keep, by estimate, of a module as the shard phase leaves it:
/// what computeMemory says after the allocate phase. Follows from shardings, stages, micro-batches,
/// what fusion will join and when each value is read last; nothing is partitioned. The module
/// stays as it is.
std::vector<StageMemory> estimateMemory(mlir::ModuleOp module, const MemoryOptions &options);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_PLANNER_MEMORYESTIMATE_H
