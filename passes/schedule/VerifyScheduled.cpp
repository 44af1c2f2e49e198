//===- VerifyScheduled.cpp - verify the schedule phase --------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/schedule/Deadlock.h"
#include "passes/schedule/Passes.h"
#include "passes/schedule/ProgramTimeline.h"

using namespace mlir;

namespace gridloom {
#define GEN_PASS_DEF_VERIFYSCHEDULED
#include "passes/schedule/Passes.h.inc"

namespace {

using Access = ProgramTimeline::Access;

/// For messages; the host reads conditions, on no stream.
std::string getStreamName(Operation *step) {
  plan::StreamAttr stream = getStepStream(step);
  return stream ? stream.getName() : "control";
}

/// Requires two accesses, one of which writes, to be ordered as submitted.
LogicalResult verifyOrdered(const ProgramTimeline &timeline, ArrayRef<Access> first,
                            ArrayRef<Access> second) {
  for (const Access &a : first) {
    for (const Access &b : second) {
      if (a.run >= b.run || (!a.writes && !b.writes) || timeline.isBefore(a.run, b.run))
        continue;
      const ProgramTimeline::Run &before = timeline.getRuns()[a.run],
                                 &after = timeline.getRuns()[b.run];
      return after.op->emitError()
             << "on stream '" << getStreamName(after.op) << "' in iteration " << after.iteration
             << (b.writes ? " writes" : " reads") << " a buffer that '" << getStreamName(before.op)
             << "' may still be " << (a.writes ? "writing" : "reading") << " in iteration "
             << before.iteration << "; an event must order them";
    }
  }
  return success();
}

/// True for buffers that hold results of the program.
bool isComputed(plan::BufferOp buffer) {
  return buffer.getSpace() == plan::Space::Arena || buffer.getSpace() == plan::Space::Registered ||
         buffer.getSpace() == plan::Space::Output;
}

/// Requires each iteration to write a buffer before it reads it.
LogicalResult verifyWritten(const ProgramTimeline &timeline,
                            ArrayRef<SmallVector<Access>> accesses) {
  for (ArrayRef<Access> iteration : accesses)
    if (!iteration.empty() && !iteration.front().writes)
      return timeline.getRuns()[iteration.front().run].op->emitError()
             << "reads a buffer that nothing has written before";
  return success();
}

/// An all_reduce may replace its operands by the sums.
bool reducesInPlace(Operation *step) {
  auto group = dyn_cast<plan::GroupOp>(step);
  return group && group.getKind() == plan::GroupKind::AllReduce &&
         group.getInputs() == group.getOutputs() && group.getInputs().size() == 1 &&
         isWholeBuffer(group.getInputs()[0]);
}

/// A step that writes a buffer that it reads must be an all_reduce or a kernel that may.
LogicalResult verifyInPlace(Operation *step, SymbolTableCollection &symbols) {
  if (reducesInPlace(step))
    return success();
  for (auto [number, output] : llvm::enumerate(getStepOutputs(step))) {
    Value root = getRootBuffer(output);
    auto isSame = [&](Value input) { return getRootBuffer(input) == root; };
    OperandRange inputs = getStepInputs(step);
    int64_t count = llvm::count_if(inputs, isSame);
    if (count == 0)
      continue;
    auto launch = dyn_cast<plan::LaunchOp>(step);
    auto kernel =
        launch ? symbols.lookupNearestSymbolFrom<plan::KernelOp>(step, launch.getKernelAttr())
               : plan::KernelOp();
    auto input = llvm::find_if(inputs, isSame);
    if (count > 1 || !kernel || !isWholeBuffer(*input) || !isWholeBuffer(output) ||
        !kernel.canRunInPlace(number, input - inputs.begin()))
      return step->emitError() << "writes a buffer that it reads, and cannot do that in place";
  }
  return success();
}

LogicalResult verifyOrder(plan::ProgramOp program) {
  SymbolTableCollection symbols;
  auto writes = program.walk([&](Operation *op) {
    return isStep(op) && failed(verifyInPlace(op, symbols)) ? WalkResult::interrupt()
                                                            : WalkResult::advance();
  });
  if (writes.wasInterrupted())
    return failure();
  ProgramTimeline timeline(program, 5);
  if (!timeline.getDanglingWaits().empty()) {
    plan::WaitOp wait = timeline.getDanglingWaits().front();
    return wait.emitError() << "waits for event " << wait.getEvent()
                            << ", which nothing before it records";
  }
  for (Operation &op : program.getBody().front()) {
    auto buffer = dyn_cast<plan::BufferOp>(op);
    if (!buffer)
      continue;
    auto accesses = timeline.getAccesses(buffer.getBuffer());
    if (isComputed(buffer) && failed(verifyWritten(timeline, accesses)))
      return failure();
    for (size_t i = 0; i < accesses.size(); ++i)
      for (size_t j = i; j < accesses.size(); j += buffer.getSlots())
        if (failed(verifyOrdered(timeline, accesses[i], accesses[j])))
          return failure();
  }
  return success();
}

/// Groups run over axes of devices that share a stage, and are numbered from 0.
LogicalResult verifyGroups(plan::ProgramOp program, dist::MeshOp mesh) {
  auto stageAxis =
      program->getParentOfType<ModuleOp>()->getAttrOfType<StringAttr>(dist::kStageAxis);
  int64_t next = 0;
  auto result = program.walk([&](plan::GroupOp group) -> WalkResult {
    if (static_cast<int64_t>(group.getSequence()) != next)
      return group.emitError() << "has sequence number " << group.getSequence() << "; expected "
                               << next;
    ++next;
    for (StringRef axis : group.getAxes().getAsValueRange<StringAttr>()) {
      if (axis == dist::MeshOp::kMicroAxis || (stageAxis && axis == stageAxis.getValue()))
        return group.emitError() << "spans axis '" << axis
                                 << "', over which devices run different programs or times";
      if (!mesh || !mesh.hasAxis(axis))
        return group.emitError() << "spans axis '" << axis << "', which is not in the mesh";
    }
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}

/// A step, record or wait on a stream over unknown axes would order nothing.
LogicalResult verifyStreams(plan::ProgramOp program, dist::MeshOp mesh) {
  auto result = program.walk([&](Operation *op) -> WalkResult {
    plan::StreamAttr stream = getStepStream(op);
    if (!stream || !stream.getAxes())
      return WalkResult::advance();
    for (StringRef axis : stream.getAxes().getAsValueRange<StringAttr>())
      if (!mesh || !mesh.hasAxis(axis))
        return op->emitError() << "is on a stream over axis '" << axis
                               << "', which is not in the mesh";
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}

/// A program's streams over all iterations, as other stages observe them.
StageTrace getTrace(plan::ProgramOp program) {
  StageTrace trace;
  trace.stage = program.getStage();
  auto getStream = [&](const std::string &name) -> std::vector<StageTrace::Item> & {
    for (StageTrace::Stream &stream : trace.streams)
      if (stream.name == name)
        return stream.items;
    return trace.streams.emplace_back(StageTrace::Stream{name, {}}).items;
  };
  auto add = [&](Operation *op, StageTrace::Item item) {
    item.node = loom::getNodeName(op->getLoc());
    getStream(getStreamName(op)).push_back(std::move(item));
  };
  int64_t numEvents = 1;
  program.walk([&](plan::RecordOp record) {
    numEvents = std::max<int64_t>(numEvents, record.getEvent() + 1);
  });
  auto visit = [&](auto &self, Block &block, int64_t iteration) -> void {
    for (Operation &op : block) {
      llvm::TypeSwitch<Operation *>(&op)
          .Case([&](plan::BlockOp inner) { self(self, inner.getBody().front(), iteration); })
          .Case([&](plan::RepeatOp repeat) {
            for (int64_t i = 0, count = repeat.getCount(); i < count; ++i)
              self(self, repeat.getBody().front(), i);
          })
          .Case([&](plan::RecordOp record) {
            int64_t event = iteration * numEvents + static_cast<int64_t>(record.getEvent());
            add(record, {.kind = StageTrace::Kind::Record, .event = event, .iteration = iteration});
          })
          .Case([&](plan::WaitOp wait) {
            int64_t recorded = iteration - static_cast<int64_t>(wait.getLag());
            int64_t event = recorded * numEvents + static_cast<int64_t>(wait.getEvent());
            if (recorded >= 0)
              add(wait, {.kind = StageTrace::Kind::Wait, .event = event, .iteration = iteration});
          })
          .Case([&](plan::GroupOp group) {
            // All ranks of a stage reach a collective in the same state: it always completes.
            if (group.getStage())
              add(group, {.kind = group.getKind() == plan::GroupKind::Send ? StageTrace::Kind::Send
                                                                           : StageTrace::Kind::Recv,
                          .peer = static_cast<int64_t>(*group.getStage()),
                          .channel = static_cast<int64_t>(*group.getChannel()),
                          .iteration = iteration});
          });
    }
  };
  visit(visit, program.getBody().front(), 0);
  return trace;
}

/// Transfers between one ordered pair of stages.
struct Transfers {
  SmallVector<plan::GroupOp> sends, recvs;
};

plan::BufferType getPayload(plan::GroupOp group) {
  return cast<plan::BufferType>(
      (group.getKind() == plan::GroupKind::Send ? group.getInputs() : group.getOutputs())[0]
          .getType());
}

/// Requires the sends and receives of each pair of stages to match one by one.
LogicalResult verifyPairs(ArrayRef<plan::ProgramOp> stages) {
  llvm::MapVector<std::pair<int64_t, int64_t>, Transfers> pairs;
  for (plan::ProgramOp stage : stages)
    stage->walk([&](plan::GroupOp group) {
      if (!group.getStage())
        return;
      int64_t own = stage.getStage(), peer = *group.getStage();
      if (group.getKind() == plan::GroupKind::Send)
        pairs[{own, peer}].sends.push_back(group);
      else
        pairs[{peer, own}].recvs.push_back(group);
    });
  for (auto &[pair, transfers] : pairs) {
    for (auto [send, recv] : llvm::zip(transfers.sends, transfers.recvs)) {
      if (send.getChannel() != recv.getChannel())
        return send.emitError() << "sends channel " << *send.getChannel() << " to stage "
                                << pair.second << " where that receives channel "
                                << *recv.getChannel();
      if (getPayload(send) != getPayload(recv))
        return send.emitError() << "sends " << getPayload(send).getTensor() << " on channel "
                                << *send.getChannel() << "; stage " << pair.second << " receives "
                                << getPayload(recv).getTensor();
      if (getRepeatCount(send) != getRepeatCount(recv))
        return send.emitError() << "repeats " << getRepeatCount(send) << " times; stage "
                                << pair.second << " receives " << getRepeatCount(recv) << " times";
    }
    if (transfers.sends.size() != transfers.recvs.size()) {
      bool more = transfers.sends.size() > transfers.recvs.size();
      plan::GroupOp extra =
          more ? transfers.sends[transfers.recvs.size()] : transfers.recvs[transfers.sends.size()];
      return extra.emitError() << (more ? "sends" : "receives") << " channel "
                               << *extra.getChannel() << ", which stage "
                               << (more ? pair.second : pair.first)
                               << (more ? " does not receive" : " does not send");
    }
  }
  return success();
}

struct VerifyScheduled : impl::VerifyScheduledBase<VerifyScheduled> {
  void runOnOperation() override {
    dist::MeshOp mesh = dist::getMesh(getOperation());
    llvm::MapVector<std::pair<Attribute, Attribute>, SmallVector<plan::ProgramOp>> specialisations;
    for (auto program : getOperation().getOps<plan::ProgramOp>()) {
      if (failed(verifyOrder(program)) || failed(verifyGroups(program, mesh)) ||
          failed(verifyStreams(program, mesh)))
        return signalPassFailure();
      specialisations[{program.getEntryAttr(), program.getDimsAttr()}].push_back(program);
    }
    for (auto &entry : specialisations) {
      ArrayRef<plan::ProgramOp> stages = entry.second;
      if (failed(verifyPairs(stages)))
        return signalPassFailure();
      auto traces =
          llvm::map_to_vector(stages, [](plan::ProgramOp stage) { return getTrace(stage); });
      if (std::optional<std::string> deadlock = findDeadlock(traces)) {
        plan::ProgramOp first = stages.front();
        first->emitError() << "the stages of entry '" << first.getEntry()
                           << "' wait for each other forever: " << *deadlock;
        return signalPassFailure();
      }
    }
  }
};

} // namespace
} // namespace gridloom
