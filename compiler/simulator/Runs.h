//===- Runs.h - results of a simulation -------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Plain data, free of MLIR.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_SIMULATOR_RUNS_H
#define GRIDLOOM_COMPILER_SIMULATOR_RUNS_H

#include "runtime/trace/Trace.h"

namespace gridloom::sim {

/// Whole nanoseconds, at most 2^62: 146 years.
int64_t toNanoseconds(double seconds);

/// Bytes of a device over time.
struct MemoryCurve {
  /// Weights, states, inputs and outputs of all programs of the stage, which stay all the time.
  uint64_t kept = 0;
  /// Seconds, and the bytes that are live from then on, `kept` included; one point per time, in
  /// order.
  std::vector<std::pair<double, uint64_t>> points;
  /// The most that was live at once in each of the two memory spaces.
  uint64_t arenaPeak = 0, registeredPeak = 0;
  /// What allocation reserves for these spaces.
  uint64_t arena = 0, registered = 0;

  uint64_t getPeak() const { return kept + arenaPeak + registeredPeak; }
  uint64_t getAllocated() const { return kept + arena + registered; }
};

/// A step of a stage, over all its iterations.
struct SimulatedStep {
  std::string kind;               ///< "kernel", "matmul", "all_reduce"
  std::string name, node, stream; ///< as in a run's trace
  std::string over;               ///< of communication: "data.model", "stage 1"
  bool isCommunication = false, isTransfer = false, isMeasured = false;
  uint64_t bytes = 0;
  int64_t times = 0;
  double seconds = 0; ///< of all times together, without waiting for peers
};

struct TimedStep {
  size_t step;
  int64_t iteration;
  double begin, end; ///< seconds; of communication including waiting for peers, as in a trace
  double met;        ///< when all participants were there; of other steps their beginning
};

/// A run of one stage.
struct StageRun {
  int64_t stage = 0, rank = 0; ///< the stage's first rank
  std::vector<SimulatedStep> steps;
  std::vector<TimedStep> timed; ///< in the order of submission
  MemoryCurve memory;
  rt::RunStats stats;

  /// The run as the runtime would trace it, `from` seconds later; without names unless `named`.
  std::vector<rt::TraceEvent> makeTrace(double from = 0, bool named = true) const;
};

/// Repetitions, of which some were run; the others are taken to be like these.
struct PartialRun {
  std::string what; ///< "micro-batches"
  int64_t shown, count;
  bool operator==(const PartialRun &) const = default;
};

/// A run of one specialisation of an entry by all stages.
struct ProgramRun {
  std::string entry, dims; ///< "main", "batch=8,sequence=32"
  double seconds = 0;      ///< until all is done
  rt::RunStats stats;      ///< as `gridloom run` prints it: the means over ranks
  std::vector<StageRun> stages;
  std::vector<PartialRun> partial; ///< what the timed steps do not show in full
};

/// The times of a stage's steps with one name and node, over all iterations: several launches for
/// one node are summed.
struct StepSum {
  std::string kind, name, node, over; ///< as the step's
  int64_t stage = 0, times = 0;
  double seconds = 0;
  bool isMeasured = false;
};

/// The sums of a run, the most expensive first.
std::vector<StepSum> sumSteps(const ProgramRun &run);

/// The number of steps with measured times, and of all steps.
std::pair<size_t, size_t> countMeasured(std::span<const ProgramRun> runs);

/// The runs, one after another, as events of `gridloom run --trace`, and each stage's memory.
std::vector<std::string> formatTrace(std::span<const ProgramRun> runs);

} // namespace gridloom::sim

#endif // GRIDLOOM_COMPILER_SIMULATOR_RUNS_H
