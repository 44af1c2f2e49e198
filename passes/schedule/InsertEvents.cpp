//===- InsertEvents.cpp - order between streams ---------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/schedule/InsertEvents.h"

#include "passes/schedule/ProgramTimeline.h"

using namespace mlir;

namespace gridloom {
namespace {

/// Hands out event numbers; a step has at most one event.
class Events {
public:
  explicit Events(plan::ProgramOp program) {
    program.walk(
        [&](plan::RecordOp record) { next = std::max<int64_t>(next, record.getEvent() + 1); });
  }

  /// The event recorded when `step` is done.
  int64_t getAfter(Operation *step) {
    auto [it, isNew] = events.try_emplace(step, next);
    if (isNew) {
      OpBuilder builder(step->getContext());
      builder.setInsertionPointAfter(step);
      plan::RecordOp::create(builder, step->getLoc(), next++, getStepStream(step));
    }
    return it->second;
  }

  void waitBefore(Operation *step, Operation *recorded, int64_t lag) {
    OpBuilder builder(step);
    plan::WaitOp::create(builder, step->getLoc(), getAfter(recorded), getStepStream(step), lag);
  }

private:
  int64_t next = 0;
  llvm::DenseMap<Operation *, int64_t> events;
};

using Run = ProgramTimeline::Run;

/// The runs that must be done before run `index` starts because they share buffers with it in its
/// iteration; the latest of each other stream.
SmallVector<unsigned> getConflicts(const ProgramTimeline &timeline, unsigned index) {
  const Run &run = timeline.getRuns()[index];
  llvm::SmallDenseMap<unsigned, unsigned> latest;
  auto visit = [&](Value buffer, bool writes) {
    for (const ProgramTimeline::Access &access :
         timeline.getAccesses(getRootBuffer(buffer))[run.iteration]) {
      if (access.run >= index || (!writes && !access.writes))
        continue;
      unsigned &last =
          latest.try_emplace(timeline.getRuns()[access.run].stream, access.run).first->second;
      last = std::max(last, access.run);
    }
  };
  for (Value buffer : getStepInputs(run.op))
    visit(buffer, false);
  for (Value buffer : getStepOutputs(run.op))
    visit(buffer, true);
  SmallVector<unsigned> result;
  for (auto [stream, last] : latest)
    if (stream != run.stream)
      result.push_back(last);
  // The latest step implies most of the others.
  llvm::sort(result, std::greater<>());
  return result;
}

/// Orders steps that share a buffer within an iteration.
void orderWithinIterations(plan::ProgramOp program, Events &events) {
  ProgramTimeline timeline(program, 1);
  // Per stream, the orders that added waits imply beyond the timeline's own.
  std::vector<SmallVector<unsigned>> done(timeline.getStreams().size(),
                                          SmallVector<unsigned>(timeline.getStreams().size(), 0));
  std::vector<SmallVector<unsigned>> doneAfter(timeline.getRuns().size());
  auto join = [](SmallVector<unsigned> &into, ArrayRef<unsigned> other) {
    for (auto [i, value] : llvm::enumerate(other))
      into[i] = std::max(into[i], value);
  };
  for (auto [index, run] : llvm::enumerate(timeline.getRuns())) {
    if (run.iteration > 0)
      break;
    SmallVector<unsigned> &here = done[run.stream];
    join(here, run.done);
    for (unsigned conflict : getConflicts(timeline, index)) {
      const Run &other = timeline.getRuns()[conflict];
      if (here[other.stream] >= other.position)
        continue;
      events.waitBefore(run.op, other.op, 0);
      join(here, doneAfter[conflict]);
    }
    here[run.stream] = run.position;
    doneAfter[index] = here;
  }
}

/// A buffer whose memory all iterations share.
bool isReused(plan::BufferOp buffer) {
  bool shared = buffer.getSpace() == plan::Space::Arena ||
                buffer.getSpace() == plan::Space::Registered ||
                (buffer.getSpace() == plan::Space::Output && buffer.getSlots() == 1);
  return shared && !buffer.use_empty();
}

/// Two runs, `slots` iterations apart, of which the first may still use the buffer when the second
/// reuses it: the latest such first run, with the earliest second one.
std::optional<std::pair<unsigned, unsigned>> findOverrun(const ProgramTimeline &timeline,
                                                         plan::BufferOp buffer) {
  std::optional<std::pair<unsigned, unsigned>> found;
  auto accesses = timeline.getAccesses(buffer.getBuffer());
  for (size_t i = 0; i + buffer.getSlots() < accesses.size(); ++i)
    for (const ProgramTimeline::Access &before : accesses[i])
      for (const ProgramTimeline::Access &after : accesses[i + buffer.getSlots()])
        if ((before.writes || after.writes) && !timeline.isBefore(before.run, after.run) &&
            (!found || before.run > found->first))
          found = {before.run, after.run};
  return found;
}

/// Orders steps that reuse a buffer in a later iteration.
void orderAcrossIterations(plan::ProgramOp program, Events &events) {
  auto timeline = std::make_unique<ProgramTimeline>(program, kSlots + 2);
  for (auto buffer : program.getBody().front().getOps<plan::BufferOp>()) {
    if (!isReused(buffer))
      continue;
    while (auto overrun = findOverrun(*timeline, buffer)) {
      if (buffer.getSlots() == 1 && buffer.getSpace() != plan::Space::Output &&
          !hasParts(buffer.getBuffer())) {
        buffer.setSlots(kSlots);
        continue;
      }
      events.waitBefore(timeline->getRuns()[overrun->second].op,
                        timeline->getRuns()[overrun->first].op, buffer.getSlots());
      timeline = std::make_unique<ProgramTimeline>(program, kSlots + 2);
    }
  }
}

} // namespace

bool hasParts(Value buffer) {
  return llvm::any_of(buffer.getUsers(), [](Operation *user) {
    auto alias = dyn_cast<plan::AliasOp>(user);
    return alias && (alias.getOffset() != 0 || hasParts(alias.getBuffer()));
  });
}

void insertEvents(plan::ProgramOp program) {
  Events events(program);
  orderWithinIterations(program, events);
  orderAcrossIterations(program, events);
}

} // namespace gridloom
