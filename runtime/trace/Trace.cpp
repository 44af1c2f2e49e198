//===- Trace.cpp - times of steps -----------------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/trace/Trace.h"

#include "runtime/core/Error.h"
#include "runtime/trace/ChromeTrace.h"
#include "support/FileSwap.h"
#include "support/Text.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <unistd.h>

using namespace gridloom::rt;
namespace fs = std::filesystem;

/// How every trace's text begins.
static constexpr std::string_view kTraceBegin = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [";

namespace {
using Interval = std::pair<int64_t, int64_t>;
} // namespace

/// Sorted, disjoint, without empty intervals.
static std::vector<Interval> unite(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end());
  std::vector<Interval> result;
  for (Interval interval : intervals) {
    if (interval.second <= interval.first)
      continue;
    if (!result.empty() && interval.first <= result.back().second)
      result.back().second = std::max(result.back().second, interval.second);
    else
      result.push_back(interval);
  }
  return result;
}

static int64_t measure(const std::vector<Interval> &intervals) {
  int64_t total = 0;
  for (Interval interval : intervals)
    total += interval.second - interval.first;
  return total;
}

void RunTimes::add(std::span<const TraceEvent> part) {
  steps += part.size();
  std::vector<Interval> compute, communication, both, all;
  for (const TraceEvent &event : part) {
    Interval interval{event.begin, event.end};
    all.push_back(interval);
    if (event.kind == StreamKind::Compute)
      kernels += event.end - event.begin;
    if (event.kind == StreamKind::Compute)
      compute.push_back(interval);
    else if (event.kind == StreamKind::Communication && !event.isTransfer)
      communication.push_back(interval);
    else
      continue;
    both.push_back(interval);
  }
  computing += measure(unite(std::move(compute)));
  communicating += measure(unite(std::move(communication)));
  either += measure(unite(std::move(both)));
  all = unite(std::move(all));
  busy += measure(all);
  if (all.empty())
    return;
  if (last == 0)
    first = all.front().first;
  last = all.back().second;
}

RunStats RunTimes::summarize(int64_t begin, int64_t end, bool isPipeline) const {
  constexpr double milliseconds = 1e-6;
  RunStats stats;
  stats.wall = double(end - begin) * milliseconds;
  stats.compute = double(computing) * milliseconds;
  stats.communication = double(communicating) * milliseconds;
  stats.exposed = double(either - computing) * milliseconds;
  if (int64_t shorter = std::min(computing, communicating))
    stats.overlap = double(computing + communicating - either) / double(shorter);
  stats.busy = double(busy) * milliseconds;
  stats.kernels = double(kernels) * milliseconds;
  stats.device = double(last - first) * milliseconds;
  stats.isPipeline = isPipeline;
  if (isPipeline && end > begin)
    stats.bubble = std::max(0.0, 1.0 - double(either) / double(end - begin));
  return stats;
}

RunStats gridloom::rt::computeStats(std::span<const TraceEvent> events, int64_t begin, int64_t end,
                                    bool isPipeline) {
  RunTimes times;
  times.add(events);
  return times.summarize(begin, end, isPipeline);
}

RunStats gridloom::rt::combineStats(std::span<const RunStats> ranks) {
  RunStats sum;
  for (const RunStats &stats : ranks) {
    sum.wall = std::max(sum.wall, stats.wall);
    sum.compute += stats.compute / double(ranks.size());
    sum.communication += stats.communication / double(ranks.size());
    sum.exposed += stats.exposed / double(ranks.size());
    sum.overlap += stats.overlap / double(ranks.size());
    sum.bubble += stats.bubble / double(ranks.size());
    sum.device = std::max(sum.device, stats.device);
    sum.busy += stats.busy / double(ranks.size());
    sum.kernels += stats.kernels / double(ranks.size());
    sum.graphs += stats.graphs / double(ranks.size());
    sum.isPipeline |= stats.isPipeline;
  }
  return sum;
}

std::string gridloom::rt::formatStats(const RunStats &stats) {
  char text[64];
  auto formatTime = [&](const char *name, double ms) {
    std::snprintf(text, sizeof(text), "%s %.*f ms", name, gridloom::getDigits(ms, 1), ms);
    return std::string(text);
  };
  auto formatShare = [&](const char *name, double share) {
    std::snprintf(text, sizeof(text), " | %s %.0f%%", name, 100 * share);
    return std::string(text);
  };
  std::string line = formatTime("compute", stats.compute);
  if (stats.communication > 0)
    line += formatTime(" | comm", stats.communication) + formatTime(" | exposed", stats.exposed) +
            formatShare("overlap", stats.overlap);
  if (stats.isPipeline)
    line += formatShare("bubble", stats.bubble);
  return line;
}

std::string gridloom::rt::toChromeEvents(std::span<const TraceEvent> events, int rank) {
  using nlohmann::json;
  std::string text;
  auto add = [&](const json &event) {
    text +=
        (text.empty() ? "" : ",\n") + event.dump(-1, ' ', false, json::error_handler_t::replace);
  };
  std::map<std::string, int> streams; // numbered in order of appearance
  for (const TraceEvent &event : events) {
    auto [stream, isNew] = streams.emplace(event.stream, int(streams.size()));
    if (streams.size() == 1 && isNew)
      add({{"ph", "M"},
           {"name", "process_name"},
           {"pid", rank},
           {"args", {{"name", "rank " + std::to_string(rank)}}}});
    if (isNew)
      add({{"ph", "M"},
           {"name", "thread_name"},
           {"pid", rank},
           {"tid", stream->second},
           {"args", {{"name", event.stream}}}});
    const char *category = event.kind == StreamKind::Compute         ? "compute"
                           : event.kind == StreamKind::Communication ? "communication"
                                                                     : "copy";
    json args = {{"onnx", event.origin}, {"iteration", event.iteration}};
    if (!event.part.empty())
      args["part"] = event.part;
    if (event.kind == StreamKind::Communication)
      args["bytes"] = event.bytes;
    // Perfetto's times are microseconds.
    add({{"ph", "X"},
         {"name", event.name},
         {"cat", category},
         {"pid", rank},
         {"tid", stream->second},
         {"ts", double(event.begin) * 1e-3},
         {"dur", double(event.end - event.begin) * 1e-3},
         {"args", args}});
  }
  return text;
}

std::string gridloom::rt::formatChromeTrace(std::span<const std::string> parts) {
  std::string text = std::string(kTraceBegin) + "\n";
  bool isFirst = true;
  for (const std::string &events : parts) {
    if (events.empty())
      continue;
    text += (isFirst ? "" : ",\n") + events;
    isFirst = false;
  }
  return text + "\n]}\n";
}

bool gridloom::rt::isFreeForTrace(const fs::path &path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error) || fs::file_size(path, error) == 0)
    return true;
  std::string begin(kTraceBegin.size(), '\0');
  std::ifstream(path).read(begin.data(), std::streamsize(begin.size()));
  return begin == kTraceBegin;
}

void gridloom::rt::requireTraceFile(const fs::path &trace) {
  auto refuse = [&](const std::string &what) {
    throw Error(ErrorCode::InvalidArgument, "--trace " + trace.string() + what);
  };
  fs::path folder = fs::absolute(trace).parent_path();
  std::error_code error;
  if (fs::is_directory(trace, error))
    refuse(" is a folder; name a file");
  if (!fs::is_directory(folder, error))
    refuse(": there is no folder " + folder.string());
  if (!isFreeForTrace(trace))
    refuse(" exists and is not a trace; remove it, or name another file");
  bool existed = fs::exists(trace, error);
  std::ofstream file(trace, std::ios::app); // keeps existing contents until the trace is written
  if (!file)
    refuse(std::string(" cannot be written: ") + strerror(errno));
  file.close();
  if (!existed)
    fs::remove(trace, error);
}

/// Whether a file beside `path` can take its place: links and devices stay, and files in folders
/// without permission to write.
static bool isReplaceable(const fs::path &path) {
  std::error_code error;
  fs::file_status status = fs::symlink_status(path, error);
  return !fs::exists(status) || (fs::is_regular_file(status) &&
                                 access(fs::absolute(path).parent_path().c_str(), W_OK) == 0);
}

/// Writes over the file. Returns the system's reason if that fails, or "".
static std::string overwriteFile(const fs::path &path, const std::string &text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  return file ? "" : strerror(errno);
}

void gridloom::rt::writeChromeTrace(const std::filesystem::path &path,
                                    std::span<const std::string> ranks) {
  if (!isFreeForTrace(path))
    throw Error(ErrorCode::InvalidArgument,
                path.string() + " exists and is not a trace; remove it, or name another file");
  std::string text = formatChromeTrace(ranks);
  std::string reason = isReplaceable(path) ? replaceFile(path, {text}) : overwriteFile(path, text);
  if (!reason.empty())
    throw Error(ErrorCode::InvalidArgument,
                path.string() + ": the trace cannot be written: " + reason);
}
