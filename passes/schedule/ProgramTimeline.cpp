//===- ProgramTimeline.cpp - order of a program's steps -------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/schedule/ProgramTimeline.h"

using namespace mlir;

namespace gridloom {

bool isStep(Operation *op) {
  return isa<plan::LaunchOp, plan::LibraryOp, plan::CopyOp, plan::GroupOp>(op);
}

OperandRange getStepInputs(Operation *step) {
  return llvm::TypeSwitch<Operation *, OperandRange>(step)
      .Case<plan::LaunchOp, plan::LibraryOp, plan::CopyOp, plan::GroupOp>(
          [](auto op) { return op.getInputs(); })
      .Case<plan::WhileOp, plan::IfOp>([](auto op) { return op->getOperands(); });
}

OperandRange getStepOutputs(Operation *step) {
  return llvm::TypeSwitch<Operation *, OperandRange>(step)
      .Case<plan::LaunchOp, plan::LibraryOp, plan::CopyOp, plan::GroupOp>(
          [](auto op) { return op.getOutputs(); })
      .Case<plan::WhileOp, plan::IfOp>([](auto op) { return op->getOperands().take_front(0); });
}

plan::StreamAttr getStepStream(Operation *op) {
  return op->getAttrOfType<plan::StreamAttr>("stream");
}

Value getRootBuffer(Value buffer) {
  while (auto alias = buffer.getDefiningOp<plan::AliasOp>())
    buffer = alias.getSource();
  return buffer;
}

bool isWholeBuffer(Value buffer) {
  auto getBytes = [](Value of) {
    return loom::getByteSize(cast<plan::BufferType>(of.getType()).getTensor());
  };
  return getBytes(buffer) == getBytes(getRootBuffer(buffer));
}

int64_t getRepeatCount(Operation *op) {
  auto repeat = op->getParentOfType<plan::RepeatOp>();
  return repeat ? repeat.getCount() : 1;
}

ProgramTimeline::ProgramTimeline(plan::ProgramOp program, int64_t iterations)
    : minIterations(iterations) {
  int64_t farthest = 0;
  program.walk([&](plan::WaitOp wait) { farthest = std::max<int64_t>(farthest, wait.getLag()); });
  // The first `lag` iterations lack orders that all later ones have.
  minIterations += farthest;
  visit(program.getBody().front(), 0, false);
}

unsigned ProgramTimeline::getStream(plan::StreamAttr stream) {
  auto it = llvm::find(streams, stream);
  if (it != streams.end())
    return it - streams.begin();
  streams.push_back(stream);
  lengths.push_back(0);
  done.emplace_back();
  return streams.size() - 1;
}

/// Raises each entry to `other`'s; missing ones are 0.
static void join(SmallVector<unsigned> &into, ArrayRef<unsigned> other) {
  into.resize(std::max(into.size(), other.size()));
  for (auto [i, value] : llvm::enumerate(other))
    into[i] = std::max(into[i], value);
}

void ProgramTimeline::visit(Block &block, int64_t iteration, bool repeated) {
  for (Operation &op : block) {
    if (auto inner = dyn_cast<plan::BlockOp>(op)) {
      visit(inner.getBody().front(), iteration, repeated);
    } else if (auto repeat = dyn_cast<plan::RepeatOp>(op)) {
      for (int64_t i = 0, count = std::min<int64_t>(repeat.getCount(), minIterations); i < count;
           ++i)
        visit(repeat.getBody().front(), i, true);
    } else if (auto loop = dyn_cast<plan::WhileOp>(op)) {
      visitCondition(&op, iteration, repeated);
      if (!llvm::is_contained(loops, &op))
        loops.push_back(&op);
      visit(loop.getBody().front(), iteration, repeated);
      visitCondition(&op, iteration, repeated);
    } else if (auto branch = dyn_cast<plan::IfOp>(op)) {
      visitCondition(&op, iteration, repeated);
      for (Region *region : {&branch.getThenBody(), &branch.getElseBody()}) {
        visit(region->front(), iteration, repeated);
        meet();
      }
    } else if (auto record = dyn_cast<plan::RecordOp>(op)) {
      events[{record.getEvent(), iteration}] = done[getStream(record.getStream())];
    } else if (auto wait = dyn_cast<plan::WaitOp>(op)) {
      visitWait(wait, iteration);
    } else if (isStep(&op)) {
      visitStep(&op, getStream(getStepStream(&op)), iteration, repeated);
    }
  }
}

void ProgramTimeline::meet() {
  for (SmallVector<unsigned> &stream : done)
    join(stream, lengths);
}

void ProgramTimeline::visitCondition(Operation *op, int64_t iteration, bool repeated) {
  // Any stream will do: all have finished before the host reads, and none continues until it has.
  if (streams.empty())
    getStream(plan::StreamAttr());
  meet();
  visitStep(op, 0, iteration, repeated);
  meet();
}

bool ProgramTimeline::livesThroughLoopOf(Value a, Value b) const {
  // Whether a buffer is used inside, or outside, of a loop.
  auto usesIn = [&](Value buffer, Operation *loop, bool inside) {
    auto of = getAccesses(buffer);
    return llvm::any_of(of, [&](ArrayRef<Access> list) {
      return llvm::any_of(list, [&](const Access &access) {
        return loop->isProperAncestor(runs[access.run].op) == inside;
      });
    });
  };
  return llvm::any_of(loops, [&](Operation *loop) {
    return usesIn(a, loop, true) && usesIn(b, loop, true) &&
           (usesIn(a, loop, false) || usesIn(b, loop, false));
  });
}

void ProgramTimeline::visitWait(plan::WaitOp op, int64_t iteration) {
  unsigned stream = getStream(op.getStream());
  int64_t recorded = iteration - static_cast<int64_t>(op.getLag());
  if (recorded < 0)
    return;
  auto it = events.find({op.getEvent(), recorded});
  if (it != events.end())
    join(done[stream], it->second);
  else if (!llvm::is_contained(danglingWaits, op))
    danglingWaits.push_back(op);
}

void ProgramTimeline::visitStep(Operation *op, unsigned stream, int64_t iteration, bool repeated) {
  unsigned index = runs.size();
  runs.push_back({op, iteration, stream, ++lengths[stream], done[stream]});
  join(done[stream], SmallVector<unsigned>(stream + 1, 0));
  done[stream][stream] = lengths[stream];
  auto touch = [&](Value buffer, bool writes) {
    auto &perIteration = accesses[getRootBuffer(buffer)];
    if (perIteration.size() <= static_cast<size_t>(iteration))
      perIteration.resize(iteration + 1);
    perIteration[iteration].push_back({index, writes});
  };
  for (Value buffer : getStepInputs(op))
    touch(buffer, false);
  for (Value buffer : getStepOutputs(op))
    touch(buffer, true);
}

bool ProgramTimeline::isBefore(unsigned a, unsigned b) const {
  const Run &first = runs[a], &second = runs[b];
  return first.stream < second.done.size() && second.done[first.stream] >= first.position;
}

bool ProgramTimeline::isBefore(ArrayRef<Access> a, ArrayRef<Access> b) const {
  return llvm::all_of(a, [&](const Access &first) {
    return llvm::all_of(b, [&](const Access &second) { return isBefore(first.run, second.run); });
  });
}

ArrayRef<SmallVector<ProgramTimeline::Access>> ProgramTimeline::getAccesses(Value root) const {
  auto it = accesses.find(root);
  return it == accesses.end() ? ArrayRef<SmallVector<Access>>() : ArrayRef(it->second);
}

} // namespace gridloom
