//===- TraceTest.cpp - figures of a run -----------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/trace/Trace.h"

#include "runtime/core/Error.h"
#include "support/TemporaryFolder.h"

#include <fstream>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

using namespace gridloom::rt;
using testing::DoubleNear;

namespace {

TraceEvent event(StreamKind kind, int64_t begin, int64_t end, bool transfer = false) {
  TraceEvent event;
  event.name = "k";
  event.stream = kind == StreamKind::Compute ? "compute" : "comm";
  event.kind = kind;
  event.isTransfer = transfer;
  event.begin = begin * 1'000'000;
  event.end = end * 1'000'000;
  return event;
}

/// Compute 0-4 and 6-10 ms, an all-reduce 3-7: two of its four milliseconds are exposed.
TEST(TraceTest, MeasuresOverlap) {
  std::vector<TraceEvent> events = {
      event(StreamKind::Compute, 0, 2), event(StreamKind::Compute, 2, 4),
      event(StreamKind::Communication, 3, 7), event(StreamKind::Compute, 6, 10)};
  RunStats stats = computeStats(events, 0, 12'000'000, false);
  EXPECT_DOUBLE_EQ(stats.wall, 12);
  EXPECT_DOUBLE_EQ(stats.compute, 8);
  EXPECT_DOUBLE_EQ(stats.communication, 4);
  EXPECT_DOUBLE_EQ(stats.exposed, 2);
  EXPECT_DOUBLE_EQ(stats.overlap, 0.5);
  EXPECT_DOUBLE_EQ(stats.bubble, 0);
  EXPECT_EQ(formatStats(stats), "compute 8.0 ms | comm 4.0 ms | exposed 2.0 ms | overlap 50%");
}

TEST(TraceTest, PartsOfARunAddUp) {
  std::vector<TraceEvent> early = {event(StreamKind::Compute, 1, 3),
                                   event(StreamKind::Communication, 2, 6)},
                          late = {event(StreamKind::Compute, 7, 10),
                                  event(StreamKind::Communication, 8, 9)};
  RunTimes times;
  EXPECT_TRUE(times.isEmpty());
  times.add(early);
  times.add({});
  times.add(late);
  EXPECT_FALSE(times.isEmpty());
  RunStats stats = times.summarize(0, 12'000'000, false);
  early.insert(early.end(), late.begin(), late.end());
  RunStats whole = computeStats(early, 0, 12'000'000, false);
  EXPECT_DOUBLE_EQ(stats.compute, 5);
  EXPECT_DOUBLE_EQ(stats.communication, 5);
  EXPECT_DOUBLE_EQ(stats.exposed, 3);
  EXPECT_DOUBLE_EQ(stats.device, 9);
  EXPECT_DOUBLE_EQ(stats.busy, 8);
  EXPECT_DOUBLE_EQ(stats.kernels, 5);
  EXPECT_EQ(formatStats(stats), formatStats(whole));
  EXPECT_DOUBLE_EQ(stats.busy, whole.busy);
}

TEST(TraceTest, WaitingForAStageIsBubble) {
  std::vector<TraceEvent> events = {event(StreamKind::Communication, 0, 6, /*transfer=*/true),
                                    event(StreamKind::Compute, 6, 8),
                                    event(StreamKind::Communication, 7, 8)};
  RunStats stats = computeStats(events, 0, 8'000'000, true);
  EXPECT_DOUBLE_EQ(stats.communication, 1);
  EXPECT_DOUBLE_EQ(stats.exposed, 0);
  EXPECT_DOUBLE_EQ(stats.overlap, 1);
  EXPECT_DOUBLE_EQ(stats.bubble, 0.75);
  EXPECT_EQ(formatStats(stats),
            "compute 2.0 ms | comm 1.0 ms | exposed 0.0 ms | overlap 100% | bubble 75%");
}

TEST(TraceTest, CombinesRanks) {
  RunStats first, second;
  first.wall = 10, first.compute = 8;
  second.wall = 12, second.compute = 4;
  RunStats both = combineStats(std::vector{first, second});
  EXPECT_DOUBLE_EQ(both.wall, 12);
  EXPECT_DOUBLE_EQ(both.compute, 6);
  EXPECT_EQ(formatStats(both), "compute 6.0 ms");
  both.compute = 0.0123;
  EXPECT_EQ(formatStats(both), "compute 0.012 ms");
}

TEST(TraceTest, WritesChromesFormat) {
  TraceEvent odd = event(StreamKind::Compute, 1, 3);
  odd.name = "quote\" and \xff";
  odd.origin = "/layer/MatMul";
  std::vector<std::string> ranks = {
      toChromeEvents(std::vector{odd, event(StreamKind::Communication, 2, 4)}, 0), "",
      toChromeEvents(std::vector{event(StreamKind::Compute, 5, 6)}, 2)};
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("gridloom-trace-" + std::to_string(getpid()));
  writeChromeTrace(path, ranks);
  nlohmann::json trace = nlohmann::json::parse(std::ifstream(path));
  std::filesystem::remove(path);
  int complete = 0;
  for (const nlohmann::json &element : trace["traceEvents"])
    if (element["ph"] == "X")
      ++complete;
  EXPECT_EQ(complete, 3);
  const nlohmann::json &first = trace["traceEvents"][2];
  EXPECT_EQ(first["ts"], 1000.0);
  EXPECT_EQ(first["dur"], 2000.0);
  EXPECT_EQ(first["args"]["onnx"], "/layer/MatMul");
  EXPECT_THROW(writeChromeTrace("/nowhere/trace.json", ranks), Error);
}

TEST(TraceTest, OnlyTracesAreReplaced) {
  gridloom::TemporaryFolder folder;
  std::filesystem::path trace = folder.getPath() / "trace.json", other = folder.getPath() / "model";
  requireTraceFile(trace);
  EXPECT_FALSE(std::filesystem::exists(trace));
  writeChromeTrace(trace, {});
  requireTraceFile(trace);
  requireTraceFile("/dev/null");
  std::ofstream(other) << "weights";
  EXPECT_THROW(requireTraceFile(other), Error);
  EXPECT_THROW(writeChromeTrace(other, {}), Error); // as sessions of the API call it
  std::string kept;
  std::ifstream(other) >> kept;
  EXPECT_EQ(kept, "weights");
  writeChromeTrace(trace, std::vector<std::string>{R"({"ph": "X"})"});
  EXPECT_EQ(nlohmann::json::parse(std::ifstream(trace))["traceEvents"].size(), 1u);
  EXPECT_THROW(writeChromeTrace("/dev/full", {}), Error);
  EXPECT_THROW(requireTraceFile(folder.getPath()), Error);
}

} // namespace
