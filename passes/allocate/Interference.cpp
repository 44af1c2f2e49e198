//===- Interference.cpp - buffers that may share memory -------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/allocate/Interference.h"

#include "llvm/ADT/Sequence.h"

#include <limits>

using namespace mlir;

namespace gridloom {

using Access = ProgramTimeline::Access;

bool canWriteOver(Operation *step, Value from, Value to, SymbolTableCollection &symbols) {
  auto launch = dyn_cast<plan::LaunchOp>(step);
  if (!launch || getRootBuffer(from) == getRootBuffer(to))
    return false;
  auto isFrom = [&](Value input) { return getRootBuffer(input) == getRootBuffer(from); };
  auto isTo = [&](Value output) { return getRootBuffer(output) == getRootBuffer(to); };
  if (launch.getOutputs().size() != 1 || !isTo(launch.getOutputs()[0]) ||
      llvm::count_if(launch.getInputs(), isFrom) != 1)
    return false;
  auto input = llvm::find_if(launch.getInputs(), isFrom);
  auto kernel = symbols.lookupNearestSymbolFrom<plan::KernelOp>(step, launch.getKernelAttr());
  return kernel && isWholeBuffer(*input) && isWholeBuffer(launch.getOutputs()[0]) &&
         kernel.canRunInPlace(/*output=*/0, input - launch.getInputs().begin());
}

bool isOverBefore(const ProgramTimeline &timeline, ArrayRef<Access> from, ArrayRef<Access> to,
                  Value fromBuffer, Value toBuffer, bool inPlace, SymbolTableCollection &symbols) {
  return llvm::all_of(from, [&](const Access &first) {
    return llvm::all_of(to, [&](const Access &second) {
      if (first.run == second.run)
        return inPlace && !first.writes && second.writes &&
               canWriteOver(timeline.getRuns()[first.run].op, fromBuffer, toBuffer, symbols);
      return timeline.isBefore(first.run, second.run);
    });
  });
}

bool canShareMemory(const ProgramTimeline &timeline, Value a, Value b, bool inPlace,
                    SymbolTableCollection &symbols) {
  auto ofA = timeline.getAccesses(a), ofB = timeline.getAccesses(b);
  if (ofA.empty() || ofB.empty())
    return true;
  if (timeline.livesThroughLoopOf(a, b))
    return false;
  // One in a repeat, the other outside of it: that one lives through all iterations.
  if (ofA.size() != ofB.size())
    return false;
  // In each iteration all uses of one come before the other's, and these before its next iteration.
  auto alternates = [&](ArrayRef<SmallVector<Access>> first, Value firstBuffer,
                        ArrayRef<SmallVector<Access>> second, Value secondBuffer) {
    for (size_t i = 0; i < first.size(); ++i) {
      if (!isOverBefore(timeline, first[i], second[i], firstBuffer, secondBuffer, inPlace, symbols))
        return false;
      if (i + 1 < first.size() && !timeline.isBefore(second[i], first[i + 1]))
        return false;
    }
    return true;
  };
  return alternates(ofA, a, ofB, b) || alternates(ofB, b, ofA, a);
}

UseTimes::UseTimes(plan::ProgramOp program, const ProgramTimeline &timeline) : timeline(timeline) {
  program.walk([&](plan::WhileOp) { hasLoops = true; });
  size_t streams = timeline.getStreams().size(), count = timeline.getRuns().size();
  least.assign(count + 1, SmallVector<unsigned, 4>(streams, std::numeric_limits<unsigned>::max()));
  for (size_t run = count; run-- > 0;)
    for (auto [stream, done] : llvm::enumerate(least[run])) {
      ArrayRef<unsigned> own = timeline.getRuns()[run].done;
      done = std::min(least[run + 1][stream], stream < own.size() ? own[stream] : 0);
    }
}

UseTimes::Stretch UseTimes::getAll() const { return {0, static_cast<unsigned>(least.size())}; }

UseTimes::Stretch UseTimes::get(Value root) const {
  ArrayRef<SmallVector<Access>> iterations = timeline.getAccesses(root);
  // The timeline shows a loop once.
  if (iterations.size() != 1 || iterations.front().empty() || hasLoops)
    return getAll();
  Stretch stretch{std::numeric_limits<unsigned>::max(), 0};
  for (const Access &access : iterations.front()) {
    const ProgramTimeline::Run &run = timeline.getRuns()[access.run];
    auto over = llvm::partition_point(
        least, [&](ArrayRef<unsigned> done) { return done[run.stream] < run.position; });
    stretch.begin = std::min(stretch.begin, access.run);
    stretch.end = std::max(stretch.end, static_cast<unsigned>(over - least.begin()));
  }
  return stretch;
}

void forEachOverlap(ArrayRef<UseTimes::Stretch> stretches,
                    llvm::function_ref<void(unsigned, unsigned)> visit) {
  auto order = llvm::to_vector(llvm::seq<unsigned>(0, stretches.size()));
  llvm::stable_sort(
      order, [&](unsigned a, unsigned b) { return stretches[a].begin < stretches[b].begin; });
  SmallVector<unsigned> open;
  for (unsigned index : order) {
    llvm::erase_if(open,
                   [&](unsigned other) { return stretches[other].end <= stretches[index].begin; });
    for (unsigned other : open)
      visit(std::min(index, other), std::max(index, other));
    open.push_back(index);
  }
}

} // namespace gridloom
