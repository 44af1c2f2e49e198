//===- Submission.cpp - what programs submit to streams -------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/simulator/Submission.h"

#include "compiler/emit/LibraryMessages.h"
#include "compiler/simulator/CoreUse.h"
#include "compiler/simulator/Extrapolation.h"
#include "dialects/dist/Placement.h"
#include "dialects/plan/Work.h"
#include "passes/schedule/BuildProgram.h"
#include "passes/schedule/ProgramTimeline.h"
#include "runtime/core/LibraryCalls.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::sim;

/// Of loops with more steps, some iterations are run and their time is multiplied.
static constexpr int64_t kMaxLoopSteps = 1 << 18;

double Step::getSecondsAlone() const {
  double all = seconds;
  if (passages)
    for (const cluster::Passage &passage : *passages)
      all += passage.getSeconds();
  return all;
}

static uint64_t getBytes(ValueRange buffers) {
  uint64_t bytes = 0;
  for (Value buffer : buffers)
    bytes += static_cast<uint64_t>(
        loom::getByteSize(cast<plan::BufferType>(buffer.getType()).getTensor()));
  return bytes;
}

static std::string getName(Operation *op) {
  return llvm::TypeSwitch<Operation *, std::string>(op)
      .Case([](plan::LaunchOp launch) { return launch.getKernel().str(); })
      .Case([](plan::LibraryOp call) {
        schema::Library message;
        fillLibrary(call, message);
        return rt::describe(message);
      })
      .Case([](plan::GroupOp group) {
        return (stringifyGroupKind(group.getKind()) + " #" + Twine(group.getSequence())).str();
      })
      .Default([](Operation *) { return "copy"; });
}

/// The first word of a step's name; "kernel" for kernels, whose names have no such word.
static std::string getKind(Operation *op, StringRef name) {
  return isa<plan::LaunchOp>(op) ? "kernel" : name.split(' ').first.str();
}

/// The most iterations that a loop can have; one if unknown.
static int64_t getTrips(plan::WhileOp loop) {
  auto trips = loop->getAttrOfType<IntegerAttr>(kTrips);
  return trips ? std::max<int64_t>(0, trips.getInt()) : 1;
}

namespace {

class Submitter {
public:
  Submitter(plan::ProgramOp program, const dist::Mesh &mesh, const MeasuredCosts *measured,
            int64_t shown)
      : program(program), mesh(mesh), measured(measured), cores(findCoreUse(program, mesh)),
        shown(shown) {}
  Submission run();

private:
  size_t getStream(plan::StreamAttr stream);
  size_t getStep(Operation *op);
  void addCommunication(plan::GroupOp group, Step &step);
  void visit(Block &block, int64_t iteration);
  void visitTurn(Block &body, int64_t iteration);
  void visitLoop(plan::WhileOp loop, int64_t iteration);
  void visitBranch(plan::IfOp branch, int64_t iteration);
  void visitStep(Operation *op, int64_t iteration);
  Item &meet();
  double sumSeconds(Block &block);
  Item &add(Operation *op, Item item) {
    return submission.stage.streams[getStream(getStepStream(op))].emplace_back(std::move(item));
  }

  plan::ProgramOp program;
  const dist::Mesh &mesh;
  const MeasuredCosts *measured;
  CoreUse cores;
  int64_t shown; ///< micro-batches
  /// The most steps of all iterations of a loop that are run.
  int64_t maxSteps = kMaxLoopSteps;
  Submission submission;
  SymbolTableCollection symbols; ///< a cache for the module's symbols
  llvm::DenseMap<Operation *, size_t> steps;
  /// The last recording of an event in an iteration, which waits wait for.
  llvm::DenseMap<std::pair<int64_t, int64_t>, int64_t> recordings;
  llvm::SmallVector<int64_t, 2> turns;
  int64_t numRecordings = 0, numMeetings = 0, numTurns = 0;
  size_t partialLoop = PartialLoop::kNone; ///< the innermost one around what is visited
};

} // namespace

size_t Submitter::getStream(plan::StreamAttr stream) {
  auto found = llvm::find(submission.streams, stream);
  auto index = static_cast<size_t>(found - submission.streams.begin());
  if (found == submission.streams.end()) {
    submission.streams.push_back(stream);
    submission.stage.streams.emplace_back();
  }
  return index;
}

void Submitter::addCommunication(plan::GroupOp group, Step &step) {
  step.isCommunication = true;
  step.isTransfer = group.getStage().has_value();
  uint64_t read = getBytes(group.getInputs()), written = getBytes(group.getOutputs());
  step.bytes = group.getInputs().empty() ? written : read;
  SmallVector<StringAttr> along;
  if (step.isTransfer) {
    llvm::append_range(along, dist::getStageAxes(program->getParentOfType<ModuleOp>()));
    step.over = ("stage " + Twine(*group.getStage())).str();
  } else {
    llvm::append_range(along, group.getAxes().getAsRange<StringAttr>());
    step.over =
        llvm::join(llvm::map_range(along, [](StringAttr axis) { return axis.getValue(); }), ".");
  }
  const cluster::Machine &machine = mesh.getMachine();
  cluster::PlacedGroup placed = placeOnLevels(machine, placeAxes(mesh, along));
  std::optional<cluster::Collective> kind =
      cluster::findCollective(stringifyGroupKind(group.getKind()));
  auto bytes = static_cast<double>(std::max(read, written));
  step.seconds = placed.tiers.empty() ? 0 : cluster::getStartSeconds(machine);
  step.passages = std::make_shared<const std::vector<cluster::Passage>>(
      cluster::getPassages(*kind, bytes, placed));
}

/// The index of an operation's step, which is added on first use.
size_t Submitter::getStep(Operation *op) {
  auto [entry, isNew] = steps.try_emplace(op, submission.steps.size());
  if (!isNew)
    return entry->second;
  Step &step = submission.steps.emplace_back();
  step.op = op;
  step.name = getName(op);
  step.kind = getKind(op, step.name);
  step.node = loom::getNodeName(op->getLoc());
  step.stream = getStream(getStepStream(op));
  if (auto group = dyn_cast<plan::GroupOp>(op)) {
    addCommunication(group, step);
    step.cores = cores.share;
  } else {
    step.seconds =
        cluster::getComputeSeconds(mesh.getMachine(), plan::getWork(op, symbols)) / cores.speedup;
    step.cores = cores.share;
  }
  if (!measured)
    return submission.steps.size() - 1;
  if (std::optional<double> seconds = measured->find(step.name, step.node)) {
    step.isMeasured = true;
    step.seconds = *seconds;
    step.passages = nullptr; // the measured time includes sharing
    step.cores = 0;
  }
  return submission.steps.size() - 1;
}

double Submitter::sumSeconds(Block &block) {
  double seconds = 0;
  for (Operation &op : block) {
    if (isStep(&op)) {
      seconds += submission.steps[getStep(&op)].getSecondsAlone();
      continue;
    }
    auto loop = dyn_cast<plan::WhileOp>(op);
    double inner = 0; // of a branch, of the more expensive body
    for (Region &region : op.getRegions())
      if (!region.empty())
        inner = std::max(inner, sumSeconds(region.front()));
    seconds += inner * (loop ? static_cast<double>(getTrips(loop)) : 1);
  }
  return seconds;
}

/// The most items that visiting the block adds to streams.
static int64_t countSteps(Block &block) {
  int64_t count = 0;
  for (Operation &op : block) {
    count += getStepStream(&op) ? 1 : 0;
    int64_t inner = 0, times = 1;
    for (Region &region : op.getRegions())
      if (!region.empty())
        inner += countSteps(region.front());
    if (auto loop = dyn_cast<plan::WhileOp>(op))
      times = getTrips(loop);
    count += std::min(inner * std::min(times, kMaxLoopSteps), kMaxLoopSteps);
  }
  return count;
}

/// Lets all streams wait for each other. Returns the first stream's item.
Item &Submitter::meet() {
  for (std::vector<Item> &stream : submission.stage.streams)
    stream.push_back({.kind = Item::Kind::Meet, .event = numMeetings});
  ++numMeetings;
  return submission.stage.streams.front().back();
}

void Submitter::visitTurn(Block &body, int64_t iteration) {
  turns.push_back(numTurns++);
  visit(body, iteration);
  turns.pop_back();
}

void Submitter::visitLoop(plan::WhileOp loop, int64_t iteration) {
  Block &body = loop.getBody().front();
  int64_t trips = getTrips(loop), begin = numMeetings;
  int64_t run = std::min(trips, std::max<int64_t>(1, maxSteps / (1 + countSteps(body))));
  PartialRun partial{"iterations of a loop", run, trips};
  if (run < trips && !llvm::is_contained(submission.loops, partial))
    submission.loops.push_back(partial);
  meet();
  size_t around = partialLoop;
  double repeats =
      static_cast<double>(trips - run) / static_cast<double>(std::max<int64_t>(1, run));
  if (run < trips) {
    partialLoop = submission.partialLoops.size();
    submission.partialLoops.push_back(
        {submission.stage.streams.front().size() - 1, repeats, around});
  }
  for (int64_t i = 0; i < run; ++i) {
    visitTurn(body, iteration);
    Item &end = meet();
    if (i + 1 < run || run == trips)
      continue;
    end.since = begin;
    end.repeats = repeats;
  }
  partialLoop = around;
}

void Submitter::visitBranch(plan::IfOp branch, int64_t iteration) {
  Block *dearer = nullptr;
  double most = -1;
  for (Region *region : {&branch.getThenBody(), &branch.getElseBody()})
    if (double seconds = sumSeconds(region->front()); seconds > most) {
      most = seconds;
      dearer = &region->front();
    }
  meet();
  visit(*dearer, iteration);
  meet();
}

void Submitter::visitStep(Operation *op, int64_t iteration) {
  size_t index = getStep(op);
  const Step &step = submission.steps[index];
  Item item{.kind = step.isCommunication ? Item::Kind::Collective : Item::Kind::Work,
            .seconds = step.seconds,
            .passages = step.passages,
            .cores = step.cores};
  if (step.isTransfer) {
    auto group = cast<plan::GroupOp>(op);
    item.kind = group.getKind() == plan::GroupKind::Send ? Item::Kind::Send : Item::Kind::Recv;
    item.peer = static_cast<int64_t>(*group.getStage());
    item.channel = static_cast<int64_t>(*group.getChannel());
    item.iteration = iteration;
  }
  size_t place = submission.stage.streams[step.stream].size();
  add(op, std::move(item));
  submission.turns.push_back({index, iteration, turns, step.stream, place, partialLoop});
}

void Submitter::visit(Block &block, int64_t iteration) {
  for (Operation &op : block)
    llvm::TypeSwitch<Operation *>(&op)
        .Case([&](plan::BlockOp inner) { visit(inner.getBody().front(), iteration); })
        .Case([&](plan::RepeatOp repeat) {
          int64_t run = std::min<int64_t>(shown, repeat.getCount());
          // By the whole count, so that micro-batches are the same however many are run.
          maxSteps = kMaxLoopSteps / std::min<int64_t>(repeat.getCount(), kLeastShown);
          for (int64_t i = 0; i < run; ++i)
            visitTurn(repeat.getBody().front(), i);
          maxSteps = kMaxLoopSteps;
        })
        .Case([&](plan::WhileOp loop) { visitLoop(loop, iteration); })
        .Case([&](plan::IfOp branch) { visitBranch(branch, iteration); })
        .Case([&](plan::RecordOp record) {
          auto event = static_cast<int64_t>(record.getEvent());
          recordings[{event, iteration}] = numRecordings;
          add(&op, {.kind = Item::Kind::Record, .event = numRecordings++});
        })
        .Case([&](plan::WaitOp wait) {
          int64_t recorded = iteration - static_cast<int64_t>(wait.getLag());
          auto found = recordings.find({static_cast<int64_t>(wait.getEvent()), recorded});
          if (recorded >= 0 && found != recordings.end())
            add(&op, {.kind = Item::Kind::Wait, .event = found->second});
        })
        .Default([&](Operation *other) {
          if (isStep(other))
            visitStep(other, iteration);
        });
}

Submission Submitter::run() {
  submission.stage.number = static_cast<int64_t>(program.getStage());
  // All streams take part in meetings, so they are added before the first of these.
  getStream(plan::StreamAttr::getCompute(program.getContext()));
  program.walk([&](Operation *op) {
    if (plan::StreamAttr stream = getStepStream(op))
      getStream(stream);
  });
  visit(program.getBody().front(), 0);
  return std::move(submission);
}

Microbatches gridloom::sim::countMicrobatches(plan::ProgramOp program) {
  Microbatches result;
  for (auto repeat : program.getBody().front().getOps<plan::RepeatOp>()) {
    result.count = std::max<int64_t>(result.count, repeat.getCount());
    result.steps += countSteps(repeat.getBody().front());
  }
  return result;
}

Submission gridloom::sim::submit(plan::ProgramOp program, const dist::Mesh &mesh,
                                 const MeasuredCosts *measured, int64_t shown) {
  return Submitter(program, mesh, measured, shown).run();
}
