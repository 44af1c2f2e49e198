//===- Interference.cpp - buffers that may share memory -------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/allocate/Interference.h"

using namespace mlir;

namespace gridloom {

using Access = ProgramTimeline::Access;

bool canWriteOver(Operation *step, Value from, Value to) {
  auto launch = dyn_cast<plan::LaunchOp>(step);
  if (!launch || getRootBuffer(from) == getRootBuffer(to))
    return false;
  auto isFrom = [&](Value input) { return getRootBuffer(input) == getRootBuffer(from); };
  auto isTo = [&](Value output) { return getRootBuffer(output) == getRootBuffer(to); };
  if (launch.getOutputs().size() != 1 || !isTo(launch.getOutputs()[0]) ||
      llvm::count_if(launch.getInputs(), isFrom) != 1)
    return false;
  auto input = llvm::find_if(launch.getInputs(), isFrom);
  auto kernel = SymbolTable::lookupNearestSymbolFrom<plan::KernelOp>(step, launch.getKernelAttr());
  return kernel && isWholeBuffer(*input) && isWholeBuffer(launch.getOutputs()[0]) &&
         kernel.canRunInPlace(/*output=*/0, input - launch.getInputs().begin());
}

bool isOverBefore(const ProgramTimeline &timeline, ArrayRef<Access> from, ArrayRef<Access> to,
                  Value fromBuffer, Value toBuffer, bool inPlace) {
  return llvm::all_of(from, [&](const Access &first) {
    return llvm::all_of(to, [&](const Access &second) {
      if (first.run == second.run)
        return inPlace && !first.writes && second.writes &&
               canWriteOver(timeline.getRuns()[first.run].op, fromBuffer, toBuffer);
      return timeline.isBefore(first.run, second.run);
    });
  });
}

bool canShareMemory(const ProgramTimeline &timeline, Value a, Value b, bool inPlace) {
  auto ofA = timeline.getAccesses(a), ofB = timeline.getAccesses(b);
  if (ofA.empty() || ofB.empty())
    return true;
  if (timeline.livesThroughLoopOf(a, b))
    return false;
  // One inside a repeat, one outside: lives through all iterations.
  if (ofA.size() != ofB.size())
    return false;
  // In each iteration one comes wholly before the other, and before its own next iteration.
  auto alternates = [&](ArrayRef<SmallVector<Access>> first, Value firstBuffer,
                        ArrayRef<SmallVector<Access>> second, Value secondBuffer) {
    for (size_t i = 0; i < first.size(); ++i) {
      if (!isOverBefore(timeline, first[i], second[i], firstBuffer, secondBuffer, inPlace))
        return false;
      if (i + 1 < first.size() && !timeline.isBefore(second[i], first[i + 1]))
        return false;
    }
    return true;
  };
  return alternates(ofA, a, ofB, b) || alternates(ofB, b, ofA, a);
}

} // namespace gridloom
