//===- AllocatedMemory.h - memory of an allocated program -------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_PLANNER_ALLOCATEDMEMORY_H
#define GRIDLOOM_COMPILER_PLANNER_ALLOCATEDMEMORY_H

#include "runtime/core/MemoryNeeds.h"

#include "mlir/IR/BuiltinOps.h"

namespace gridloom {

/// Memory of a device of one stage.
struct StageMemory {
  int64_t stage = 0;
  rt::MemoryNeeds needs;
};

/// Memory of a device of each stage, after the allocate phase: equals rt::computeNeeds of the
/// emitted plan. Empty before that phase.
std::vector<StageMemory> computeMemory(mlir::ModuleOp module);

/// The stage that needs the most memory; a default StageMemory if there are no stages.
StageMemory findLargest(llvm::ArrayRef<StageMemory> stages);

/// "needs 148.2 MiB, the limit is 64.0 MiB"; in bytes if both would read the same.
std::string describeExcess(uint64_t bytes, uint64_t limit);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_PLANNER_ALLOCATEDMEMORY_H
