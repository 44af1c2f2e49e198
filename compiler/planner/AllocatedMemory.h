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

/// What a device of one stage keeps.
struct StageMemory {
  int64_t stage = 0;
  rt::MemoryNeeds needs;
};

/// What a device of each stage keeps of a module after the allocate phase, by stage: the numbers
/// rt::computeNeeds has of the plan that is emitted. Empty before that phase.
std::vector<StageMemory> computeMemory(mlir::ModuleOp module);

/// The stage that takes most; a default one where there are none.
StageMemory findLargest(llvm::ArrayRef<StageMemory> stages);

/// "needs 148.2 MiB, the limit is 64.0 MiB"; in bytes where the two would read the same.
std::string describeExcess(uint64_t bytes, uint64_t limit);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_PLANNER_ALLOCATEDMEMORY_H
