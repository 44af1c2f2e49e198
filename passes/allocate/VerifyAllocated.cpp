//===- VerifyAllocated.cpp - verify the allocate phase --------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/allocate/Interference.h"
#include "passes/allocate/Packing.h"
#include "passes/allocate/Passes.h"

using namespace mlir;

namespace gridloom {
#define GEN_PASS_DEF_VERIFYALLOCATED
#include "passes/allocate/Passes.h.inc"

namespace {

bool isPlaced(plan::BufferOp buffer) {
  return buffer.getSpace() == plan::Space::Arena || buffer.getSpace() == plan::Space::Registered;
}

LogicalResult verifyPlace(plan::BufferOp buffer, plan::ProgramOp program) {
  int64_t needed = loom::getByteSize(buffer.getBuffer().getType().getTensor());
  if (!buffer.getBytes() || static_cast<int64_t>(*buffer.getBytes()) < needed)
    return buffer.emitError() << "has " << buffer.getBytes().value_or(0)
                              << " bytes for a tensor of " << needed << "; run plan-allocate";
  if (!isPlaced(buffer))
    return success();
  int64_t space = buffer.getSpace() == plan::Space::Arena ? program.getArenaBytes()
                                                          : program.getRegisteredBytes();
  if (!buffer.getOffset())
    return buffer.emitError() << "has no offset; run plan-allocate";
  int64_t end = *buffer.getOffset() + *buffer.getBytes() * buffer.getSlots();
  if (*buffer.getOffset() % kBufferAlignment != 0)
    return buffer.emitError() << "starts at " << *buffer.getOffset()
                              << ", which is not a multiple of " << kBufferAlignment;
  if (end > space)
    return buffer.emitError() << "ends at " << end << " in a space of " << space << " bytes";
  return success();
}

/// The bytes that a buffer uses in one iteration.
std::pair<int64_t, int64_t> getRange(plan::BufferOp buffer, int64_t iteration) {
  int64_t from = *buffer.getOffset() + iteration % buffer.getSlots() * *buffer.getBytes();
  return {from, from + *buffer.getBytes()};
}

/// All uses of overlapping memory, in any two iterations, must be ordered as a whole.
LogicalResult verifyDisjoint(const ProgramTimeline &timeline, plan::BufferOp a, plan::BufferOp b,
                             SymbolTableCollection &symbols) {
  auto ofA = timeline.getAccesses(a.getBuffer()), ofB = timeline.getAccesses(b.getBuffer());
  if (!ofA.empty() && !ofB.empty() && ofA.size() != ofB.size())
    return b.emitError() << "overlaps a buffer that is used outside the repeat";
  bool throughLoop = a != b && timeline.livesThroughLoopOf(a.getBuffer(), b.getBuffer());
  for (size_t i = 0; i < ofA.size(); ++i) {
    for (size_t j = 0; j < ofB.size(); ++j) {
      auto [fromA, toA] = getRange(a, i);
      auto [fromB, toB] = getRange(b, j);
      if ((a == b && i >= j) || toA <= fromB || toB <= fromA)
        continue;
      bool same = a != b && i == j && fromA == fromB && toA == toB;
      // Across iterations uses alternate; a later use before an earlier one is an error.
      bool ordered =
          isOverBefore(timeline, ofA[i], ofB[j], a.getBuffer(), b.getBuffer(), same, symbols) ||
          (a != b &&
           isOverBefore(timeline, ofB[j], ofA[i], b.getBuffer(), a.getBuffer(), same, symbols));
      if (ordered && !throughLoop)
        continue;
      InFlightDiagnostic error = b.emitError();
      error << "at " << fromB << " in iteration " << j << " overlaps a buffer at " << fromA
            << " in iteration " << i << " that may be in use at the same time";
      error.attachNote(a.getLoc()) << "the other buffer";
      return error;
    }
  }
  return success();
}

LogicalResult verifyProgram(plan::ProgramOp program) {
  ProgramTimeline timeline(program, kInterferenceIterations + 1);
  SmallVector<plan::BufferOp> buffers(program.getBody().front().getOps<plan::BufferOp>());
  for (plan::BufferOp buffer : buffers)
    if (failed(verifyPlace(buffer, program)))
      return failure();
  llvm::erase_if(buffers, [](plan::BufferOp buffer) { return !isPlaced(buffer); });
  SymbolTableCollection symbols;
  UseTimes times(program, timeline);
  std::vector<UseTimes::Stretch> stretches;
  SmallVector<std::pair<int64_t, int64_t>> ranges;
  SmallVector<std::pair<unsigned, unsigned>> pairs; // with common memory
  for (auto [i, buffer] : llvm::enumerate(buffers)) {
    int64_t begin = *buffer.getOffset();
    ranges.push_back({begin, begin + *buffer.getBytes() * buffer.getSlots()});
    stretches.push_back(times.get(buffer.getBuffer()));
    pairs.push_back({i, i});
  }
  // Buffers that are never in use at once need no check.
  forEachOverlap(stretches, [&](unsigned i, unsigned j) {
    if (buffers[i].getSpace() == buffers[j].getSpace() && ranges[i].first < ranges[j].second &&
        ranges[j].first < ranges[i].second)
      pairs.push_back({i, j});
  });
  llvm::sort(pairs);
  for (auto [i, j] : pairs)
    if (failed(verifyDisjoint(timeline, buffers[i], buffers[j], symbols)))
      return failure();
  return success();
}

struct VerifyAllocated : impl::VerifyAllocatedBase<VerifyAllocated> {
  void runOnOperation() override {
    for (auto program : getOperation().getOps<plan::ProgramOp>())
      if (failed(verifyProgram(program)))
        return signalPassFailure();
  }
};

} // namespace
} // namespace gridloom
