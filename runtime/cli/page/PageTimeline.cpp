//===- PageTimeline.cpp - simulated and traced runs -----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/cli/page/PageData.h"

#include "runtime/core/Error.h"
#include "runtime/trace/Lanes.h"
#include "runtime/trace/Trace.h"

#include <algorithm>
#include <fstream>
#include <set>

using namespace gridloom;
using namespace gridloom::rt;
namespace fs = std::filesystem;

/// Limits for a trace: further ranks are dropped, further blocks merged.
static constexpr size_t kMostRanks = 16, kMostBlocks = 20'000;

//===----------------------------------------------------------------------===//
// timeline.json
//===----------------------------------------------------------------------===//

static bool isNumbers(const Json &list, size_t group) {
  return list.is_array() && list.size() % group == 0 &&
         std::all_of(list.begin(), list.end(), [](const Json &n) { return n.is_number_integer(); });
}

/// [name, node, kind, bytes, times, ms]
static bool isStep(const Json &step) {
  return step.is_array() && step.size() == 6 && step[0].is_string() && step[1].is_string() &&
         step[2].is_string() && step[3].is_number() && step[4].is_number() && step[5].is_number();
}

static std::string findFault(const Json &stage) {
  for (const char *number : {"stage", "rank", "compute_ms", "comm_ms", "exposed_ms", "bubble",
                             "kept_bytes", "peak_bytes", "allocated_bytes"})
    if (!getField(stage, number).is_number())
      return number;
  for (const char *list : {"steps", "streams"})
    if (!getField(stage, list).is_array())
      return list;
  if (!isNumbers(getField(stage, "memory"), 2))
    return "memory";
  const Json &steps = getList(stage, "steps");
  if (!std::all_of(steps.begin(), steps.end(), isStep))
    return "a step";
  for (const Json &stream : getList(stage, "streams")) {
    const Json &blocks = getField(stream, "blocks");
    if (!isNumbers(blocks, 5))
      return "blocks";
    for (size_t i = 2; i < blocks.size(); i += 5)
      if (blocks[i] < 0 || blocks[i] >= steps.size())
        return "a block's step";
  }
  return "";
}

std::string gridloom::rt::findTimelineFault(const Json &timeline) {
  if (!getField(timeline, "programs").is_array())
    return "programs";
  for (const Json &program : getList(timeline, "programs")) {
    for (const char *text : {"entry", "dims"})
      if (!getField(program, text).is_string())
        return text;
    if (!getField(program, "step_ms").is_number())
      return "step_ms";
    if (!getField(program, "stages").is_array())
      return "stages";
    for (const Json &stage : getList(program, "stages"))
      if (std::string fault = findFault(stage); !fault.empty())
        return fault;
  }
  return "";
}

/// Keeps the steps that blocks refer to, and the longest others up to `most` in all.
static size_t limitSteps(Json &stage, size_t most) {
  Json &steps = stage["steps"];
  if (steps.size() <= most)
    return 0;
  std::set<size_t> kept;
  for (Json &stream : stage["streams"])
    for (size_t i = 2; i < stream["blocks"].size(); i += 5)
      kept.insert(stream["blocks"][i].get<size_t>());
  std::vector<size_t> order(steps.size());
  for (size_t i = 0; i < order.size(); ++i)
    order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return steps[a][5].get<double>() > steps[b][5].get<double>();
  });
  for (size_t i = 0; i < order.size() && kept.size() < most; ++i)
    kept.insert(order[i]);
  std::map<size_t, size_t> places;
  Json left = Json::array();
  for (size_t step : kept) {
    places[step] = left.size();
    left.push_back(std::move(steps[step]));
  }
  for (Json &stream : stage["streams"])
    for (size_t i = 2; i < stream["blocks"].size(); i += 5)
      stream["blocks"][i] = places[stream["blocks"][i].get<size_t>()];
  size_t removed = steps.size() - left.size();
  steps = std::move(left);
  return removed;
}

static void noteJoined(const Json &program, size_t shown, const std::string &of,
                       std::vector<std::string> &notes) {
  double ns = getNumber(program, "joined_ns");
  if (ns <= 0)
    return;
  char text[160];
  snprintf(text, sizeof text,
           "%s: steps shorter than %.3g us are drawn together, %zu blocks in all.", of.c_str(),
           ns * 1e-3, shown);
  notes.push_back(text);
}

static size_t countBlocks(const Json &places, const char *streams) {
  size_t blocks = 0;
  for (const Json &place : places)
    for (const Json &stream : getList(place, streams))
      blocks += getList(stream, "blocks").size() / 5;
  return blocks;
}

Json gridloom::rt::makePrograms(const Json &timeline, std::vector<std::string> &notes) {
  Json programs = getList(timeline, "programs");
  size_t stages = 0, removed = 0;
  for (const Json &program : programs)
    stages += getList(program, "stages").size();
  for (Json &program : programs) {
    for (Json &stage : program["stages"])
      removed += limitSteps(stage, kMostPageRows / std::max<size_t>(1, stages));
    std::string dims = getText(program, "dims");
    noteJoined(program, countBlocks(program["stages"], "streams"),
               "Timeline of " + getText(program, "entry") + (dims.empty() ? "" : " ") + dims,
               notes);
  }
  if (removed)
    notes.push_back(std::to_string(removed) +
                    " short steps are left out of the table of steps; `gridloom inspect PLAN "
                    "schedule` has all.");
  return programs;
}

//===----------------------------------------------------------------------===//
// Traces
//===----------------------------------------------------------------------===//

namespace {

/// One rank's part of a trace.
struct RankTrace {
  std::map<int64_t, std::string> streams; ///< name by number
  std::vector<std::pair<int64_t, TraceEvent>> events;
};

/// The distinct steps of a trace, numbered.
class StepList {
public:
  size_t add(const TraceEvent &event) {
    auto [found, isNew] = numbers.emplace(std::pair(event.name, event.origin), steps.size());
    if (isNew) {
      const char *kind = event.isTransfer                          ? "transfer"
                         : event.kind == StreamKind::Communication ? "communication"
                                                                   : "compute";
      steps.push_back({event.name, event.origin, kind, event.bytes, 0, 0.0});
    }
    Json &step = steps[found->second];
    step[4] = step[4].get<int64_t>() + 1;
    step[5] = step[5].get<double>() + double(event.end - event.begin) * 1e-6;
    return found->second;
  }
  const Json &get() const { return steps; }
  bool has(const std::string &name, const std::string &node) const {
    return numbers.contains({name, node});
  }

private:
  std::map<std::pair<std::string, std::string>, size_t> numbers;
  Json steps = Json::array();
};

class TraceReader {
public:
  TraceReader(const Plan &plan, const fs::path &path) : plan(plan), path(path) {}
  std::map<int, RankTrace> read() const;

private:
  [[noreturn]] void fail(const std::string &what) const {
    throw Error(ErrorCode::InvalidArgument, "the trace '" + path.string() + "' " + what +
                                                "; make it with gridloom run " +
                                                plan.getFolder().string() + " --trace FILE");
  }
  int readRank(const Json &event) const;

  const Plan &plan;
  const fs::path &path;
};

} // namespace

int TraceReader::readRank(const Json &event) const {
  auto rank = event.find("pid");
  if (rank == event.end() || !rank->is_number_integer())
    fail("has an event without a rank");
  if (*rank < 0 || *rank >= plan.getMesh().getNumRanks())
    fail("has rank " + rank->dump() + ", and the plan has " +
         std::to_string(plan.getMesh().getNumRanks()) + " ranks");
  return rank->get<int>();
}

std::map<int, RankTrace> TraceReader::read() const {
  std::ifstream file(path);
  if (!file)
    throw Error(ErrorCode::InvalidArgument,
                "the trace '" + path.string() + "' cannot be read: " + strerror(errno));
  std::string error;
  Json root = readJson(file, error);
  if (!error.empty() && error != "is not JSON")
    fail(error);
  if (!root.is_object() || !root.contains("traceEvents"))
    fail("is no JSON object with a list 'traceEvents'");
  std::map<int, RankTrace> ranks;
  for (const Json &event : getList(root, "traceEvents")) {
    std::string phase = getText(event, "ph");
    const Json &arguments = getField(event, "args");
    int64_t stream = getInteger(event, "tid");
    if (phase == "M" && getText(event, "name") == "thread_name")
      ranks[readRank(event)].streams[stream] = getText(arguments, "name");
    if (phase != "X")
      continue;
    double from = getNumber(event, "ts"), length = getNumber(event, "dur");
    if (!(std::abs(from) < 1e15) || !(length >= 0 && length < 1e15))
      fail("has an event at " + std::to_string(from) + " us of " + std::to_string(length) + " us");
    TraceEvent step;
    step.name = getText(event, "name");
    step.origin = getText(arguments, "onnx");
    step.kind =
        getText(event, "cat") == "communication" ? StreamKind::Communication : StreamKind::Compute;
    step.isTransfer = step.name.starts_with("send #") || step.name.starts_with("recv #");
    step.bytes = getSize(arguments, "bytes");
    step.iteration = getInteger(arguments, "iteration");
    step.begin = std::llround(from * 1e3);
    step.end = step.begin + std::llround(length * 1e3);
    step.rank = readRank(event);
    ranks[step.rank].events.emplace_back(stream, std::move(step));
  }
  std::erase_if(ranks, [](const auto &rank) { return rank.second.events.empty(); });
  if (ranks.empty())
    fail("times no step");
  return ranks;
}

/// The program that shares most steps with the trace; throws if none shares any.
static size_t findProgram(const fs::path &path, const Json &programs, const StepList &steps) {
  size_t best = 0, most = 0, number = 0;
  for (const Json &program : programs) {
    size_t shared = 0;
    for (const Json &stage : getList(program, "stages"))
      for (const Json &step : getList(stage, "steps"))
        shared += isStep(step) && steps.has(step[0].get<std::string>(), step[1].get<std::string>());
    if (shared > most) {
      best = number;
      most = shared;
    }
    ++number;
  }
  if (!programs.empty() && !most)
    throw Error(ErrorCode::InvalidArgument,
                "the trace '" + path.string() +
                    "' has none of the plan's steps; it is of another plan");
  return best;
}

/// The ranks to draw: the first of each stage, then others.
static std::vector<int> chooseRanks(const Plan &plan, const std::map<int, RankTrace> &traced) {
  std::vector<int> chosen, others;
  std::set<int> stages;
  for (const auto &[rank, trace] : traced)
    (stages.insert(plan.getMesh().getStage(rank)).second ? chosen : others).push_back(rank);
  chosen.insert(chosen.end(), others.begin(), others.end());
  chosen.resize(std::min(chosen.size(), kMostRanks));
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

namespace {
/// Collects ranks of a trace and their streams, then packs the blocks.
class TraceDrawing {
public:
  explicit TraceDrawing(const Plan &plan, const std::map<int, RankTrace> &traced);
  void add(int rank, RankTrace trace);
  /// Merges short blocks and returns the result. Call once, after all `add`.
  Json finish(const fs::path &path, const Json &timeline);

private:
  const Plan &plan;
  int64_t first = INT64_MAX, last = INT64_MIN; ///< in nanoseconds, over all ranks
  StepList steps;
  std::vector<Lane> lanes; ///< of all streams, in their order
  Json ranks = Json::array();
};
} // namespace

TraceDrawing::TraceDrawing(const Plan &plan, const std::map<int, RankTrace> &traced) : plan(plan) {
  for (const auto &[rank, trace] : traced)
    for (const auto &[stream, event] : trace.events) {
      first = std::min(first, event.begin);
      last = std::max(last, event.end);
    }
}

void TraceDrawing::add(int rank, RankTrace trace) {
  std::map<int64_t, Lane> byStream;
  std::vector<TraceEvent> events;
  for (auto &[stream, event] : trace.events) {
    byStream[stream].push_back(
        {event.begin - first, event.end - first, steps.add(event), event.iteration});
    events.push_back(std::move(event));
  }
  RunStats stats = computeStats(events, first, last, plan.getNumStages() > 1);
  Json streams = Json::array();
  for (auto &[stream, lane] : byStream) {
    std::stable_sort(lane.begin(), lane.end(),
                     [](const Block &a, const Block &b) { return a.begin < b.begin; });
    streams.push_back({{"name", trace.streams[stream]}});
    lanes.push_back(std::move(lane));
  }
  ranks.push_back({{"rank", rank},
                   {"stage", plan.getMesh().getStage(rank)},
                   {"streams", std::move(streams)},
                   {"compute_ms", stats.compute},
                   {"comm_ms", stats.communication},
                   {"exposed_ms", stats.exposed},
                   {"bubble", stats.bubble}});
}

Json TraceDrawing::finish(const fs::path &path, const Json &timeline) {
  int64_t joined = joinShort(lanes, kMostBlocks);
  auto lane = lanes.begin();
  for (Json &rank : ranks)
    for (Json &stream : rank["streams"])
      stream["blocks"] = packLane(*lane++);
  return {{"file", path.filename().string()},
          {"program", findProgram(path, getList(timeline, "programs"), steps)},
          {"step_ms", double(last - first) * 1e-6},
          {"joined_ns", joined},
          {"steps", steps.get()},
          {"ranks", std::move(ranks)}};
}

Json gridloom::rt::makeTrace(const Plan &plan, const fs::path &path, const Json &timeline,
                             std::vector<std::string> &notes) {
  std::map<int, RankTrace> traced = TraceReader(plan, path).read();
  std::vector<int> chosen = chooseRanks(plan, traced);
  TraceDrawing drawing(plan, traced);
  for (int rank : chosen)
    drawing.add(rank, std::move(traced[rank]));
  Json trace = drawing.finish(path, timeline);
  noteJoined(trace, countBlocks(trace["ranks"], "streams"), "Trace", notes);
  if (chosen.size() < traced.size())
    notes.push_back("Of the trace's " + std::to_string(traced.size()) + " ranks " +
                    std::to_string(chosen.size()) + " are drawn.");
  return trace;
}
