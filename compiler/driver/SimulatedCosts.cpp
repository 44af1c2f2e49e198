//===- SimulatedCosts.cpp - a simulated run in report.json ----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/driver/SimulatedCosts.h"

#include "compiler/simulator/Overlap.h"

#include "llvm/ADT/STLExtras.h"

using namespace gridloom;
using llvm::json::Array;
using llvm::json::Object;

/// The most steps listed as hiding a collective.
static constexpr size_t kMostBeside = 5;

static double toMs(double seconds) { return seconds * 1e3; }
static double toUs(double seconds) { return seconds * 1e6; }

Array gridloom::describeSteps(std::span<const sim::ProgramRun> runs) {
  Array steps;
  for (const sim::ProgramRun &run : runs)
    for (const sim::StepSum &step : sim::sumSteps(run))
      steps.push_back(Object{{"entry", run.entry},
                             {"dims", run.dims},
                             {"stage", step.stage},
                             {"kind", step.kind},
                             {"node", step.node},
                             {"op", step.name},
                             {"over", step.over},
                             {"times", step.times},
                             {"ms", toMs(step.seconds)}});
  return steps;
}

Array gridloom::describePrograms(std::span<const sim::ProgramRun> runs) {
  Array programs;
  for (const sim::ProgramRun &run : runs)
    programs.push_back(Object{{"entry", run.entry},
                              {"dims", run.dims},
                              {"compute_ms", run.stats.compute},
                              {"comm_ms", run.stats.communication},
                              {"exposed_ms", run.stats.exposed},
                              {"step_ms", toMs(run.seconds)},
                              {"bubble", run.stats.bubble}});
  return programs;
}

Object gridloom::describeNeeds(int64_t stage, const rt::MemoryNeeds &needs) {
  Object object{{"stage", stage}};
  for (auto [name, bytes] : {std::pair("weights_bytes", needs.weights),
                             {"states_bytes", needs.states},
                             {"arena_bytes", needs.arena},
                             {"registered_bytes", needs.registered},
                             {"inputs_and_outputs_bytes", needs.bindings},
                             {"total_bytes", needs.getAllocated()}})
    object[name] = static_cast<int64_t>(bytes);
  return object;
}

Array gridloom::describeStages(std::span<const sim::ProgramRun> runs,
                               std::span<const StageMemory> memory) {
  Array stages;
  for (const sim::ProgramRun &run : runs)
    for (const sim::StageRun &stage : run.stages) {
      Object object{{"entry", run.entry},
                    {"dims", run.dims},
                    {"stage", stage.stage},
                    {"rank", stage.rank},
                    {"step_ms", toMs(run.seconds)},
                    {"compute_ms", stage.stats.compute},
                    {"comm_ms", stage.stats.communication},
                    {"exposed_ms", stage.stats.exposed},
                    {"bubble", stage.stats.bubble},
                    {"peak_bytes", static_cast<int64_t>(stage.memory.getPeak())}};
      auto kept =
          llvm::find_if(memory, [&](const StageMemory &m) { return m.stage == stage.stage; });
      if (kept != memory.end())
        for (auto &[name, bytes] : describeNeeds(stage.stage, kept->needs))
          object[name] = bytes;
      stages.push_back(std::move(object));
    }
  return stages;
}

static Array describeBeside(const sim::StageRun &stage, const sim::Overlap &overlap) {
  Array beside;
  for (const sim::Overlap::Beside &each : llvm::ArrayRef(overlap.beside).take_front(kMostBeside))
    beside.push_back(Object{{"op", stage.steps[each.step].name},
                            {"node", stage.steps[each.step].node},
                            {"us", toUs(each.seconds)}});
  return beside;
}

CollectiveTimes::CollectiveTimes(std::span<const sim::ProgramRun> runs) {
  for (const sim::ProgramRun &run : runs)
    for (const sim::StageRun &stage : run.stages) {
      std::vector<sim::Overlap> overlaps = sim::findOverlaps(stage);
      for (auto [step, overlap] : llvm::zip_equal(stage.steps, overlaps))
        if (step.isCommunication)
          times.try_emplace({run.entry, run.dims, stage.stage, step.name},
                            Time{step.times, step.seconds, overlap.exposed, overlap.waiting,
                                 describeBeside(stage, overlap)});
    }
}

const CollectiveTimes::Time *CollectiveTimes::find(const rt::PlannedCollective &collective) const {
  // Steps of communication are named by kind and number.
  auto found = times.find({collective.entry, collective.dims, collective.stage,
                           collective.kind + " #" + std::to_string(collective.sequence)});
  return found == times.end() ? nullptr : &found->second;
}

int64_t CollectiveTimes::countRuns(const rt::PlannedCollective &collective) const {
  const Time *found = find(collective);
  return found ? found->times : collective.times;
}

void CollectiveTimes::addTo(Object &object, const rt::PlannedCollective &collective) const {
  const Time *found = find(collective);
  if (!found)
    return;
  object["times"] = found->times;
  object["time_us"] = toUs(found->seconds);
  object["exposed_us"] = toUs(found->exposed);
  object["waiting_us"] = toUs(found->waiting);
  object["hidden_behind"] = Array(found->hiddenBehind);
}
