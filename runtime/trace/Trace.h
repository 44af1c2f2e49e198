//===- Trace.h - times of steps ---------------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Times are nanoseconds of the monotonic clock, which all processes of one host share, so traces of
// its ranks line up.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_TRACE_TRACE_H
#define GRIDLOOM_RUNTIME_TRACE_TRACE_H

#include "runtime/device/Device.h"

#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace gridloom::rt {

/// One step of a run on one stream.
struct TraceEvent {
  std::string name;   // what ran: kernel symbol, matmul, all_reduce, ...
  std::string origin; // its ONNX nodes
  std::string stream;
  std::string part; // of a run's time: getPart in runtime/core/PlanQueries.h
  StreamKind kind = StreamKind::Compute;
  bool isTransfer = false; // a send or receive between stages
  uint64_t bytes = 0;      // of communication: what it reads or, of a receive, writes on this rank
  int rank = 0;
  int64_t iteration = 0;      // of the enclosing repeat: the micro-batch
  int64_t begin = 0, end = 0; // ns
};

/// The times of one rank in one run, in milliseconds. Communication counts from the moment its
/// stream gets to it, so waiting for peers is in it.
struct RunStats {
  double wall = 0;
  double compute = 0;       // some compute stream was busy
  double communication = 0; // some collective was under way
  double exposed = 0;       // of communication: no compute stream was busy
  /// Share of the shorter of compute and communication that ran beside the other, 0 to 1.
  double overlap = 0;
  /// Share of the run with neither compute nor a collective, 0 to 1; 0 without a pipeline.
  double bubble = 0;
  bool isPipeline = false;
  /// From the first step's start to the last one's end, on the device's clock.
  double device = 0;
  double busy = 0;    // of it: some stream was busy; the rest are gaps
  double kernels = 0; // the sum of the compute steps' times
  /// The number of graphs that the run launched. Where there were any, on GPUs only `wall` and
  /// `device` are the run's own, and all else is of the program's last run step by step.
  double graphs = 0;
};

/// Adds up the times of a run's steps on one rank, part by part, so that a long loop's need not be
/// kept. The steps of a part end before those of the next one begin.
class RunTimes {
public:
  void add(std::span<const TraceEvent> part);
  bool isEmpty() const { return steps == 0; }
  RunStats summarize(int64_t begin, int64_t end, bool isPipeline) const;

private:
  int64_t computing = 0, communicating = 0, either = 0, busy = 0, kernels = 0; // ns
  int64_t first = 0, last = 0;
  size_t steps = 0;
};

RunStats computeStats(std::span<const TraceEvent> events, int64_t begin, int64_t end,
                      bool isPipeline);

/// The mean over ranks of each figure; `wall` is the slowest rank's.
RunStats combineStats(std::span<const RunStats> ranks);

/// "compute 8.1 ms | comm 3.0 ms | exposed 0.40 ms | overlap 87% | bubble 6%"; parts that do not
/// apply are left out.
std::string formatStats(const RunStats &stats);

/// The events as elements of a Chrome trace's "traceEvents", without the enclosing brackets: ranks'
/// texts are joined with ",\n". Empty when there are no events.
std::string toChromeEvents(std::span<const TraceEvent> events, int rank);
/// Whether writing a trace to `path` would replace nothing but a trace: it is one, is empty, is not
/// there, or is no regular file, such as a pipe.
bool isFreeForTrace(const std::filesystem::path &path);
/// Call it before a long run. Throws InvalidArgument if writeChromeTrace could not write `trace`,
/// or if that would replace a file that is not a trace.
void requireTraceFile(const std::filesystem::path &trace);
/// Writes a file that Perfetto and chrome://tracing open, from what toChromeEvents gave per rank.
/// Throws InvalidArgument with the reason if it cannot be written, or if that would replace a file
/// that is not a trace; what is there stays as it is.
void writeChromeTrace(const std::filesystem::path &path, std::span<const std::string> ranks);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_TRACE_TRACE_H
