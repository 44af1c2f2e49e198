//===- Simulator.cpp - runs of programs on a cluster ----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/simulator/Simulator.h"

#include "compiler/planner/AllocatedMemory.h"
#include "compiler/simulator/Extrapolation.h"
#include "compiler/simulator/MemoryCurve.h"
#include "dialects/dist/Placement.h"

#include "llvm/ADT/MapVector.h"

#include <cmath>

using namespace mlir;
using namespace gridloom;
using namespace gridloom::sim;

/// The first rank of a stage.
static int64_t getFirstRank(int64_t stage, ModuleOp module, const dist::Mesh &mesh) {
  SmallVector<cluster::PlacedAxis, 4> placed = placeAxes(mesh, dist::getStageAxes(module));
  return placed.empty() ? stage : stage * placed.front().stride;
}

/// The time of a turn's step if its loops' other iterations were run before it, each as long as
/// those that are run: times in such loops are stretched from the loops' beginnings.
static double stretch(double seconds, const Turn &turn, const Submission &submission,
                      const std::vector<std::vector<Span>> &spans) {
  for (size_t i = turn.loop; i != PartialLoop::kNone; i = submission.partialLoops[i].around) {
    const PartialLoop &loop = submission.partialLoops[i];
    double begin = spans.front()[loop.begin].end;
    seconds = begin + (seconds - begin) * (1 + loop.repeats);
  }
  return seconds;
}

/// The number of runs that a turn stands for.
static double countRuns(const Turn &turn, const Submission &submission) {
  double runs = 1;
  for (size_t i = turn.loop; i != PartialLoop::kNone; i = submission.partialLoops[i].around)
    runs *= 1 + submission.partialLoops[i].repeats;
  return runs;
}

/// The stage's part of a run that takes `seconds`. Sums are of all iterations, the timed steps are
/// those that were run.
static StageRun makeStageRun(plan::ProgramOp program, const Submission &submission,
                             const std::vector<std::vector<Span>> &spans, double seconds,
                             bool isPipeline) {
  StageRun run;
  run.stage = static_cast<int64_t>(program.getStage());
  for (const Step &step : submission.steps)
    run.steps.push_back({step.kind, step.name, step.node, submission.streams[step.stream].getName(),
                         step.over, step.isCommunication, step.isTransfer, step.isMeasured,
                         step.bytes});
  std::vector<TimedStep> timed;
  std::vector<double> times(run.steps.size());
  for (const Turn &turn : submission.turns) {
    const Span &span = spans[turn.stream][turn.item];
    auto whole = [&](double at) { return stretch(at, turn, submission, spans); };
    timed.push_back({turn.step, turn.iteration, span.begin, span.end, span.met});
    run.timed.push_back(
        {turn.step, turn.iteration, whole(span.begin), whole(span.end), whole(span.met)});
    times[turn.step] += countRuns(turn, submission);
    run.steps[turn.step].seconds += whole(span.end) - whole(span.met);
  }
  for (auto [step, count] : llvm::zip_equal(run.steps, times))
    step.times = std::llround(count);
  run.stats =
      rt::computeStats(run.makeTrace(0, /*named=*/false), 0, toNanoseconds(seconds), isPipeline);
  run.timed = std::move(timed);
  run.memory = traceMemory(program, submission, spans);
  return run;
}

/// Runs the first `shown` micro-batches.
static FailureOr<ProgramRun> simulateFirst(ArrayRef<plan::ProgramOp> stages, const dist::Mesh &mesh,
                                           const MeasuredCosts *measured, int64_t shown) {
  std::vector<Submission> submissions;
  std::vector<Stage> submitted;
  for (plan::ProgramOp program : stages) {
    submissions.push_back(submit(program, mesh, measured, shown));
    submitted.push_back(std::exchange(submissions.back().stage, {}));
  }
  plan::ProgramOp first = stages.front();
  std::string error;
  std::optional<Timeline> timeline = sim::run(submitted, error);
  if (!timeline)
    return first.emitError() << "the stages of entry '" << first.getEntry()
                             << "' wait for each other forever: " << error;
  ProgramRun result;
  result.entry = first.getEntry().str();
  result.dims = plan::formatDims(first.getDims());
  result.seconds = timeline->seconds;
  bool isPipeline = stages.size() > 1;
  std::vector<rt::RunStats> stats;
  for (auto [program, submission, spans] : llvm::zip_equal(stages, submissions, timeline->spans)) {
    StageRun &run = result.stages.emplace_back(
        makeStageRun(program, submission, spans, timeline->seconds, isPipeline));
    run.rank = getFirstRank(run.stage, first->getParentOfType<ModuleOp>(), mesh);
    stats.push_back(run.stats);
    for (const PartialRun &loop : submission.loops)
      if (!llvm::is_contained(result.partial, loop))
        result.partial.push_back(loop);
  }
  result.stats = rt::combineStats(stats);
  return result;
}

static FailureOr<ProgramRun> simulateProgram(ArrayRef<plan::ProgramOp> stages,
                                             const dist::Mesh &mesh,
                                             const MeasuredCosts *measured) {
  int64_t steps = 0, least = std::numeric_limits<int64_t>::max(), most = 0;
  for (plan::ProgramOp program : stages) {
    Microbatches micro = countMicrobatches(program);
    steps += micro.steps;
    least = std::min(least, micro.count);
    most = std::max(most, micro.count);
  }
  // Stages with different numbers may wait for each other, so all micro-batches are run.
  int64_t shown = least == most ? countShown(most, steps) : most;
  if (shown == most)
    return simulateFirst(stages, mesh, measured, most);
  int64_t fewer = shown / 2;
  FailureOr<ProgramRun> less = simulateFirst(stages, mesh, measured, fewer);
  if (failed(less))
    return failure();
  for (StageRun &stage : less->stages) { // free the memory for the larger run
    stage.timed = {};
    stage.memory = {};
  }
  FailureOr<ProgramRun> run = simulateFirst(stages, mesh, measured, shown);
  if (succeeded(run))
    extrapolate(*run, *less, fewer, shown, most);
  return run;
}

FailureOr<std::vector<ProgramRun>> gridloom::sim::simulate(ModuleOp module,
                                                           const MeasuredCosts *measured) {
  dist::Mesh mesh = dist::Mesh::get(module);
  llvm::MapVector<std::pair<Attribute, Attribute>, SmallVector<plan::ProgramOp>> specialisations;
  for (auto program : module.getOps<plan::ProgramOp>())
    specialisations[{program.getEntryAttr(), program.getDimsAttr()}].push_back(program);
  std::map<int64_t, uint64_t> kept;
  for (const StageMemory &memory : computeMemory(module))
    kept[memory.stage] = memory.needs.getAllocated() - memory.needs.getActivations();
  std::vector<ProgramRun> runs;
  for (auto &[key, stages] : specialisations) {
    FailureOr<ProgramRun> run = simulateProgram(stages, mesh, measured);
    if (failed(run))
      return failure();
    for (StageRun &stage : run->stages) {
      stage.memory.kept = kept[stage.stage];
      for (auto &[seconds, bytes] : stage.memory.points)
        bytes += stage.memory.kept;
    }
    runs.push_back(std::move(*run));
  }
  if (measured && countMeasured(runs).first == 0)
    return module.emitError("the costs '")
           << measured->getPath() << "' time none of the plan's steps; they are of another plan";
  return runs;
}
