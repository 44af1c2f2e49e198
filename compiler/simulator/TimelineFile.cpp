//===- TimelineFile.cpp - timeline.json: simulated runs to draw -----------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/simulator/TimelineFile.h"

#include "runtime/trace/Lanes.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

using namespace gridloom;
using namespace gridloom::sim;
using nlohmann::json;

/// The most of all programs of a plan together, about a megabyte of text.
static constexpr size_t kMostBlocks = 20'000, kMostPoints = 4'000;

/// One lane per stream, in the order of their first steps.
static std::vector<rt::Lane> makeLanes(const StageRun &stage, std::vector<std::string> &streams) {
  std::vector<rt::Lane> lanes;
  for (const TimedStep &timed : stage.timed) {
    const std::string &stream = stage.steps[timed.step].stream;
    auto found = std::find(streams.begin(), streams.end(), stream);
    auto index = static_cast<size_t>(found - streams.begin());
    if (found == streams.end()) {
      streams.push_back(stream);
      lanes.emplace_back();
    }
    lanes[index].push_back({.begin = toNanoseconds(timed.begin),
                            .end = toNanoseconds(timed.end),
                            .step = timed.step,
                            .iteration = timed.iteration});
  }
  return lanes;
}

static json describeSteps(const StageRun &stage) {
  json steps = json::array();
  for (const SimulatedStep &step : stage.steps) {
    const char *kind = step.isTransfer        ? "transfer"
                       : step.isCommunication ? "communication"
                                              : "compute";
    steps.push_back({step.name, step.node, kind, step.bytes, step.times, step.seconds * 1e3});
  }
  return steps;
}

/// Pairs of nanoseconds and bytes. If there are too many points, each stretch of time has its
/// highest.
static json packMemory(const MemoryCurve &memory, double seconds, size_t most) {
  json points = json::array();
  auto add = [&](double at, uint64_t bytes) {
    points.push_back(toNanoseconds(at));
    points.push_back(bytes);
  };
  bool isLong = memory.points.size() > most;
  double width = seconds / static_cast<double>(most);
  for (size_t i = 0; i < memory.points.size();) {
    auto [at, bytes] = memory.points[i++];
    if (isLong)
      for (double end = (std::floor(at / width) + 1) * width;
           i < memory.points.size() && memory.points[i].first < end; ++i)
        bytes = std::max(bytes, memory.points[i].second);
    add(at, bytes);
  }
  return points;
}

static json describe(const ProgramRun &run, size_t mostBlocks, size_t mostPoints) {
  std::vector<rt::Lane> lanes;
  std::vector<std::vector<std::string>> streams(run.stages.size());
  for (size_t s = 0; s < run.stages.size(); ++s)
    for (rt::Lane &lane : makeLanes(run.stages[s], streams[s]))
      lanes.push_back(std::move(lane));
  int64_t joined = rt::joinShort(lanes, mostBlocks);
  json stages = json::array();
  auto lane = lanes.begin();
  for (size_t s = 0; s < run.stages.size(); ++s) {
    const StageRun &stage = run.stages[s];
    json drawn = json::array();
    for (const std::string &stream : streams[s])
      drawn.push_back({{"name", stream}, {"blocks", rt::packLane(*lane++)}});
    stages.push_back({{"stage", stage.stage},
                      {"rank", stage.rank},
                      {"steps", describeSteps(stage)},
                      {"streams", std::move(drawn)},
                      {"compute_ms", stage.stats.compute},
                      {"comm_ms", stage.stats.communication},
                      {"exposed_ms", stage.stats.exposed},
                      {"bubble", stage.stats.bubble},
                      {"kept_bytes", stage.memory.kept},
                      {"peak_bytes", stage.memory.getPeak()},
                      {"allocated_bytes", stage.memory.getAllocated()},
                      {"memory", packMemory(stage.memory, run.seconds, mostPoints)}});
  }
  return {{"entry", run.entry},
          {"dims", run.dims},
          {"step_ms", run.seconds * 1e3},
          {"joined_ns", joined},
          {"stages", std::move(stages)}};
}

std::string gridloom::sim::formatTimeline(std::span<const ProgramRun> runs) {
  json programs = json::array();
  size_t stages = 0;
  for (const ProgramRun &run : runs)
    stages += run.stages.size();
  size_t blocks = kMostBlocks / std::max<size_t>(1, runs.size());
  size_t points = std::max<size_t>(16, kMostPoints / std::max<size_t>(1, stages));
  for (const ProgramRun &run : runs)
    programs.push_back(describe(run, blocks, points));
  json file{{"version", 1}, {"programs", std::move(programs)}};
  return file.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}
