//===- AllocatedMemory.cpp - memory of an allocated program ---------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/planner/AllocatedMemory.h"

#include "dialects/plan/Plan.h"
#include "support/Text.h"

#include "llvm/ADT/DenseSet.h"

using namespace mlir;
using namespace gridloom;

std::vector<StageMemory> gridloom::computeMemory(ModuleOp module) {
  std::map<int64_t, StageMemory> stages;
  std::map<int64_t, llvm::DenseSet<Attribute>> kept; // weights and states, which programs share
  MLIRContext *context = module.getContext();
  auto orUnit = [&](Attribute attr) { return attr ? attr : UnitAttr::get(context); };
  for (auto program : module.getOps<plan::ProgramOp>()) {
    auto stage = static_cast<int64_t>(program.getStage());
    StageMemory &memory = stages[stage];
    memory.stage = stage;
    rt::MemoryNeeds &needs = memory.needs;
    needs.arena = std::max<uint64_t>(needs.arena, program.getArenaBytes());
    needs.registered = std::max<uint64_t>(needs.registered, program.getRegisteredBytes());
    for (auto buffer : program.getBody().front().getOps<plan::BufferOp>()) {
      uint64_t bytes = buffer.getBytes().value_or(0);
      switch (buffer.getSpace()) {
      case plan::Space::Weight: {
        Attribute key =
            ArrayAttr::get(context, {buffer.getNameAttr(), orUnit(buffer.getLayoutAttr()),
                                     orUnit(buffer.getShardingAttr())});
        if (kept[stage].insert(key).second)
          needs.weights += bytes;
        break;
      }
      case plan::Space::State:
        if (kept[stage].insert(buffer.getNameAttr()).second)
          needs.states += bytes;
        break;
      case plan::Space::Input:
      case plan::Space::Output:
        needs.bindings += bytes * buffer.getSlots();
        break;
      default:
        break;
      }
    }
  }
  std::vector<StageMemory> list;
  for (auto &[stage, memory] : stages)
    list.push_back(memory);
  return list;
}

StageMemory gridloom::findLargest(ArrayRef<StageMemory> stages) {
  StageMemory largest;
  for (const StageMemory &memory : stages)
    if (memory.needs.getAllocated() > largest.needs.getAllocated())
      largest = memory;
  return largest;
}

std::string gridloom::describeExcess(uint64_t bytes, uint64_t limit) {
  std::string needed = formatBytes(bytes), allowed = formatBytes(limit);
  if (needed == allowed) {
    needed = std::to_string(bytes) + " bytes";
    allowed = std::to_string(limit);
  }
  return "needs " + needed + ", the limit is " + allowed;
}
