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

/// Options of the target and the request that, like shardings, decide which values take memory.
struct MemoryOptions {
  LayoutOptions layout;
  FuseOptions fuse;
  CommunicateOptions communicate = {};
};

/// Estimates the memory of a device of each stage from a module as the shard phase leaves it; close
/// to what computeMemory says after the allocate phase. The phases up to fuse run on a copy;
/// lifetimes follow from the order of steps alone, without events between streams. Empty, without a
/// diagnostic, if the module cannot be partitioned. The module is unchanged.
std::vector<StageMemory> estimateMemory(mlir::ModuleOp module, const MemoryOptions &options);

/// Runs the layout and fuse phases on a module as the communicate phase leaves it. Fails, with a
/// diagnostic, if a phase does.
mlir::LogicalResult fuseCommunicated(mlir::ModuleOp module, const MemoryOptions &options);

/// estimateMemory for a module as the fuse phase leaves it. Consumes the module, which is no valid
/// program afterwards.
std::vector<StageMemory> estimateFused(mlir::ModuleOp module);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_PLANNER_MEMORYESTIMATE_H
