//===- MemoryEstimate.h - memory of a plan before it is made ----*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_PLANNER_MEMORYESTIMATE_H
#define GRIDLOOM_COMPILER_PLANNER_MEMORYESTIMATE_H

#include "compiler/planner/AllocatedMemory.h"
#include "passes/communicate/Communicate.h"
#include "passes/fuse/Fuse.h"
#include "passes/layout/Layout.h"

namespace gridloom {

/// What decides about values in memory beside the shardings: of the target, and of the request.
struct MemoryOptions {
  LayoutOptions layout;
  FuseOptions fuse;
  CommunicateOptions communicate = {};
};

/// What a device of each stage will keep, by estimate, of a module as the shard phase leaves it:
/// about what computeMemory says after the allocate phase. Values and kernels are those that the
/// phases after it make of a copy; how long they live follows from the order of steps alone,
/// without events between streams. Empty, without a diagnostic, for a module that cannot be
/// partitioned. The module stays as it is.
std::vector<StageMemory> estimateMemory(mlir::ModuleOp module, const MemoryOptions &options);

/// The same of a module as the communicate phase leaves it, which is consumed: it is no program any
/// more.
std::vector<StageMemory> estimateCommunicated(mlir::ModuleOp module, const MemoryOptions &options);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_PLANNER_MEMORYESTIMATE_H
