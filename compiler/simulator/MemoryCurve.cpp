//===- MemoryCurve.cpp - a stage's memory over time -----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/simulator/MemoryCurve.h"

#include "passes/allocate/Packing.h"
#include "passes/schedule/ProgramTimeline.h"

#include "llvm/Support/MathExtras.h"

#include <map>

using namespace mlir;
using namespace gridloom;
using namespace gridloom::sim;

namespace {

/// The bytes of a buffer, by where they begin. Buffers in place of others begin where these do.
using Place = std::pair<plan::Space, uint64_t>;

/// The uses of a buffer within one iteration.
struct Life {
  uint64_t from = std::numeric_limits<uint64_t>::max(), to = 0; ///< positions in the total order
  double begin = 0, end = 0;                                    ///< seconds
};

/// The beginning or end of a life.
struct Change {
  uint64_t order;
  double seconds;
  plan::BufferOp buffer;
  bool begins;
};

} // namespace

static bool isPlaced(plan::BufferOp buffer) {
  return buffer.getSpace() == plan::Space::Arena || buffer.getSpace() == plan::Space::Registered;
}

static uint64_t getPlacedBytes(plan::BufferOp buffer) {
  return llvm::alignTo(buffer.getBytes().value_or(0) * buffer.getSlots(), kBufferAlignment);
}

/// The number of repeats and loops around `op` that are around all of `others`, too.
static size_t countShared(Operation *op, ArrayRef<Operation *> others) {
  auto getTurning = [](Operation *of) {
    SmallVector<Operation *> list;
    for (Operation *parent = of->getParentOp(); parent; parent = parent->getParentOp())
      if (isa<plan::RepeatOp, plan::WhileOp>(parent))
        list.push_back(parent);
    return list;
  };
  SmallVector<Operation *> shared = getTurning(op);
  for (Operation *other : others) {
    SmallVector<Operation *> around = getTurning(other);
    llvm::erase_if(shared,
                   [&](Operation *control) { return !llvm::is_contained(around, control); });
  }
  return shared.size();
}

/// The beginnings and ends of the lives of buffers with one slot, in order.
static std::vector<Change> listChanges(const Submission &submission,
                                       const std::vector<std::vector<Span>> &spans) {
  // A buffer that is used inside and outside of a loop lives throughout it; one that is only used
  // inside begins anew in each iteration.
  llvm::DenseMap<Value, SmallVector<Operation *>> users;
  auto forEachBuffer = [](Operation *op, auto visit) {
    for (OperandRange buffers : {getStepInputs(op), getStepOutputs(op)})
      for (Value buffer : buffers)
        if (auto root = getRootBuffer(buffer).getDefiningOp<plan::BufferOp>())
          if (isPlaced(root) && root.getSlots() == 1)
            visit(root);
  };
  for (const Step &step : submission.steps)
    forEachBuffer(step.op,
                  [&](plan::BufferOp root) { users[root.getBuffer()].push_back(step.op); });
  llvm::DenseMap<Value, size_t> depths;
  for (auto &[root, ops] : users)
    depths[root] = countShared(ops.front(), ops);

  llvm::MapVector<std::pair<Value, int64_t>, Life> lives;
  for (const Turn &turn : submission.turns) {
    const Span &span = spans[turn.stream][turn.item];
    forEachBuffer(submission.steps[turn.step].op, [&](plan::BufferOp root) {
      size_t depth = depths.lookup(root.getBuffer());
      Life &life = lives[{root.getBuffer(), depth ? turn.turns[depth - 1] : -1}];
      if (span.beginOrder < life.from) {
        life.from = span.beginOrder;
        life.begin = span.begin;
      }
      if (span.endOrder > life.to) {
        life.to = span.endOrder;
        life.end = span.end;
      }
    });
  }
  std::vector<Change> changes;
  for (const auto &[key, life] : lives) {
    auto buffer = key.first.getDefiningOp<plan::BufferOp>();
    changes.push_back({life.from, life.begin, buffer, true});
    changes.push_back({life.to, life.end, buffer, false});
  }
  // A step's beginning is before its end in the order, so what begins and what ends with it are
  // live at the same time.
  llvm::stable_sort(changes, [](const Change &a, const Change &b) { return a.order < b.order; });
  return changes;
}

MemoryCurve gridloom::sim::traceMemory(plan::ProgramOp program, const Submission &submission,
                                       const std::vector<std::vector<Span>> &spans) {
  MemoryCurve curve;
  curve.arena = program.getArenaBytes();
  curve.registered = program.getRegisteredBytes();
  uint64_t arena = 0, registered = 0;
  auto spaceOf = [&](plan::BufferOp buffer) -> uint64_t & {
    return buffer.getSpace() == plan::Space::Arena ? arena : registered;
  };
  auto note = [&](double seconds) {
    curve.arenaPeak = std::max(curve.arenaPeak, arena);
    curve.registeredPeak = std::max(curve.registeredPeak, registered);
    if (curve.points.empty() || curve.points.back().first < seconds)
      curve.points.emplace_back(seconds, 0);
    curve.points.back().second = arena + registered;
  };
  for (auto buffer : program.getBody().front().getOps<plan::BufferOp>())
    if (isPlaced(buffer) && buffer.getSlots() > 1)
      spaceOf(buffer) += getPlacedBytes(buffer);
  note(0);
  std::map<Place, unsigned> holders;
  for (const Change &change : listChanges(submission, spans)) {
    plan::BufferOp buffer = change.buffer;
    unsigned &count = holders[{buffer.getSpace(), buffer.getOffset().value_or(0)}];
    if (change.begins && count++ == 0)
      spaceOf(buffer) += getPlacedBytes(buffer);
    if (!change.begins && --count == 0)
      spaceOf(buffer) -= getPlacedBytes(buffer);
    note(change.seconds);
  }
  return curve;
}
