//===- Runs.cpp - results of a simulation ---------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/simulator/Runs.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

using namespace gridloom;
using namespace gridloom::sim;

int64_t gridloom::sim::toNanoseconds(double seconds) {
  return std::llround(std::min(seconds * 1e9, 0x1p62));
}

std::vector<rt::TraceEvent> StageRun::makeTrace(double from, bool named) const {
  std::vector<rt::TraceEvent> events;
  for (const TimedStep &each : timed) {
    const SimulatedStep &step = steps[each.step];
    rt::TraceEvent &event = events.emplace_back();
    if (named) {
      event.name = step.name;
      event.origin = step.node;
      event.stream = step.stream;
    }
    event.kind = step.isCommunication ? rt::StreamKind::Communication : rt::StreamKind::Compute;
    event.isTransfer = step.isTransfer;
    event.bytes = step.bytes;
    event.rank = static_cast<int>(rank);
    event.iteration = each.iteration;
    event.begin = toNanoseconds(from + each.begin);
    event.end = toNanoseconds(from + each.end);
  }
  return events;
}

std::vector<StepSum> gridloom::sim::sumSteps(const ProgramRun &run) {
  std::map<std::tuple<int64_t, std::string, std::string>, StepSum> sums;
  for (const StageRun &stage : run.stages)
    for (const SimulatedStep &step : stage.steps) {
      StepSum &sum = sums[{stage.stage, step.name, step.node}];
      sum.kind = step.kind;
      sum.over = step.over;
      sum.name = step.name;
      sum.node = step.node;
      sum.stage = stage.stage;
      sum.times += step.times;
      sum.seconds += step.seconds;
      sum.isMeasured |= step.isMeasured;
    }
  std::vector<StepSum> list;
  for (auto &[key, sum] : sums)
    list.push_back(std::move(sum));
  std::stable_sort(list.begin(), list.end(),
                   [](const StepSum &a, const StepSum &b) { return a.seconds > b.seconds; });
  return list;
}

std::pair<size_t, size_t> gridloom::sim::countMeasured(std::span<const ProgramRun> runs) {
  size_t measured = 0, all = 0;
  for (const ProgramRun &run : runs)
    for (const StageRun &stage : run.stages)
      for (const SimulatedStep &step : stage.steps) {
        measured += step.isMeasured;
        ++all;
      }
  return {measured, all};
}

/// A stage's memory as a counter track.
static std::string formatMemory(const StageRun &stage, double from) {
  std::string text;
  for (auto [seconds, bytes] : stage.memory.points)
    text += (text.empty() ? "" : ",\n") + nlohmann::json{{"ph", "C"},
                                                         {"name", "memory"},
                                                         {"pid", stage.rank},
                                                         {"ts", (from + seconds) * 1e6},
                                                         {"args", {{"bytes", bytes}}}}
                                              .dump();
  return text;
}

std::vector<std::string> gridloom::sim::formatTrace(std::span<const ProgramRun> runs) {
  std::map<int64_t, std::vector<rt::TraceEvent>> byRank;
  std::vector<std::string> texts;
  double from = 0;
  for (const ProgramRun &run : runs) {
    for (const StageRun &stage : run.stages) {
      std::vector<rt::TraceEvent> events = stage.makeTrace(from), &all = byRank[stage.rank];
      all.insert(all.end(), events.begin(), events.end());
      texts.push_back(formatMemory(stage, from));
    }
    from += run.seconds;
  }
  for (const auto &[rank, events] : byRank)
    texts.push_back(rt::toChromeEvents(events, static_cast<int>(rank)));
  return texts;
}
