//===- TrainReport.h - output of a training run -----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CLI_TRAINREPORT_H
#define GRIDLOOM_RUNTIME_CLI_TRAINREPORT_H

#include "runtime/train/TrainingEvents.h"
#include "runtime/train/TrainingLog.h"

#include <chrono>

namespace gridloom::rt {

/// Prints a run's progress to standard output: on a terminal one line that is rewritten, else a
/// line every `every` steps, and for the first and the last.
class TrainReport : public TrainingObserver {
public:
  /// `log` is the CSV file, `events` the folder of event files; empty for none. `every` 0: about
  /// twenty lines.
  TrainReport(const TrainingSetup &setup, const std::filesystem::path &log,
              const std::filesystem::path &events, int64_t every);

  void onStep(const StepRecord &record) override;
  void onEvaluation(const EvaluationRecord &record) override;
  void onParameter(int64_t taken, const std::string &name, const HostArray &value) override;
  void onCheckpoint(const std::filesystem::path &path) override;
  void onSaving() override;
  void onNote(const std::string &line) override;
  /// The last lines, after the run.
  void finish(const TrainingResult &result);

private:
  using Clock = std::chrono::steady_clock;

  std::string describe(const StepRecord &record) const;
  void clearLine();
  void print(const std::string &line);
  void printStep();
  void printBest(const TrainingResult &result);

  const TrainingSetup &setup;
  std::optional<TrainingLog> log;
  std::optional<TrainingEvents> events;
  int64_t every, numSteps;
  bool isTerminal, hasLine = false;
  std::optional<StepRecord> unprinted; // the last step
  double recent = 0;                   // moving average of ms per step
  std::vector<double> times;           // ms, of every stride-th step
  int64_t stride = 1, counted = 0;
  Clock::time_point begin = Clock::now(), printed;
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CLI_TRAINREPORT_H
