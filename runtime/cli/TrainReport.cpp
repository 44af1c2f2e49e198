//===- TrainReport.cpp - output of a training run -------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/cli/TrainReport.h"

#include "cluster/Fit.h"
#include "support/Text.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstring>
#include <iostream>
#include <sys/ioctl.h>
#include <unistd.h>

using namespace gridloom;
using namespace gridloom::rt;
namespace fs = std::filesystem;

/// Default number of lines if the output is not a terminal.
static constexpr int64_t kLines = 20;
/// Least time between updates of a terminal's line.
static constexpr std::chrono::milliseconds kPause{100};
/// Number of times kept for the median.
static constexpr size_t kTimes = size_t(1) << 16;

TrainReport::TrainReport(const TrainingSetup &setup, const fs::path &path, const fs::path &folder,
                         int64_t every)
    : setup(setup), every(every), numSteps(setup.getNumSteps()), isTerminal(isatty(STDOUT_FILENO)) {
  if (!path.empty())
    log.emplace(path, setup);
  if (!folder.empty())
    events.emplace(folder, setup);
  auto noteKept = [&](const std::string &option, const std::string &what, const fs::path &kept) {
    if (!kept.empty())
      onNote(option + " had " + what +
             " and there is no checkpoint to continue: they are kept in " + kept.string() +
             ", and the run begins");
  };
  if (log)
    noteKept("--log " + path.string(), "rows", log->getKept());
  if (events)
    noteKept("--log-dir " + folder.string(), "events", events->getKept());
  int64_t left = numSteps - setup.getStepsDone(setup.begin.cursor);
  if (this->every == 0)
    this->every = std::max<int64_t>(1, (left + kLines - 1) / kLines);
  if (setup.checkpoint)
    print("continues " + setup.checkpointPath.string() + " after step " +
          std::to_string(setup.getStepsDone(setup.begin.cursor)) + " of " +
          std::to_string(numSteps));
  if (left <= 0)
    print("nothing is left to do: " + std::to_string(setup.begin.cursor) + " samples of " +
          std::to_string(setup.end) + " are read; for more, give more --steps or --epochs");
  else if (setup.settings.checkpoints.empty())
    onNote("nothing will be saved; give a folder with --checkpoint-dir to keep what is learned");
}

static std::string format(const char *form, double value) {
  char text[64];
  snprintf(text, sizeof text, form, value);
  return text;
}

/// "1 step", "2 steps".
static std::string count(int64_t number, const std::string &what) {
  return std::to_string(number) + " " + what + (number == 1 ? "" : "s");
}

static std::string formatTime(double seconds) {
  auto whole = int64_t(std::min(seconds, 1e9));
  char text[64];
  if (whole < 3600)
    snprintf(text, sizeof text, "%d:%02d", int(whole / 60), int(whole % 60));
  else
    snprintf(text, sizeof text, "%lld:%02d:%02d", static_cast<long long>(whole / 3600),
             int(whole / 60 % 60), int(whole % 60));
  return text;
}

/// "loss 0.41  accuracy 0.93"
static std::string formatValues(const TrainingValues &values) {
  std::string text = "loss " + format("%.5g", values.contains("loss") ? values.at("loss") : NAN);
  for (const auto &[name, value] : values)
    if (isMetric(name))
      text += "  " + makePrintable(name) + format(" %.4g", value);
  return text;
}

/// "scale 65536  ", marked if the step was not taken because of it.
static std::string formatScale(const StepRecord &record) {
  auto scale = record.values.find(kLossScale);
  if (scale == record.values.end())
    return "";
  return "scale " + format("%.6g", scale->second) +
         (record.isScaleTooLarge ? " (too large)  " : "  ");
}

std::string TrainReport::describe(const StepRecord &record) const {
  double rate = recent > 0 ? double(setup.step.batch) / recent * 1e3 : 0;
  return "step " + std::to_string(record.step) + "/" + std::to_string(numSteps) + "  " +
         formatValues(record.values) + "  lr " + format("%.4g", record.learningRate) + "  " +
         formatScale(record) + format("%.0f samples/s", rate) + "  " + format("%.1f ms", recent) +
         "  ETA " + formatTime(double(numSteps - record.step) * recent * 1e-3);
}

void TrainReport::clearLine() {
  if (hasLine)
    std::cout << "\r\x1b[K";
  hasLine = false;
}

void TrainReport::print(const std::string &line) {
  clearLine();
  std::cout << makePrintable(line) << "\n" << std::flush;
}

void TrainReport::printStep() {
  if (!unprinted)
    return;
  std::string line = describe(*unprinted);
  unprinted.reset();
  printed = Clock::now();
  if (!isTerminal)
    return print(line);
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1)
    line.resize(std::min<size_t>(line.size(), size.ws_col - 1)); // else it would wrap
  clearLine();
  std::cout << line << std::flush;
  hasLine = true;
}

void TrainReport::onStep(const StepRecord &record) {
  if (log)
    log->add(record);
  if (events)
    events->add(record);
  // The first step, which is slower than the others, counts until the second.
  recent = counted > 1 ? 0.9 * recent + 0.1 * record.milliseconds : record.milliseconds;
  if (counted++ % stride == 0)
    times.push_back(record.milliseconds);
  if (times.size() == kTimes) { // keep every other one
    for (size_t i = 0; i < kTimes / 2; ++i)
      times[i] = times[2 * i];
    times.resize(kTimes / 2);
    stride *= 2;
  }
  unprinted = record;
  bool isFirst = counted == 1;
  if (isTerminal ? Clock::now() - printed >= kPause : isFirst || record.step % every == 0)
    printStep();
}

void TrainReport::onEvaluation(const EvaluationRecord &record) {
  if (log)
    log->add(record);
  if (events)
    events->add(record);
  printStep();
  print("step " + std::to_string(record.step) + "  evaluation: " + formatValues(record.values) +
        (record.isBest ? "  (best)" : ""));
}

void TrainReport::onParameter(int64_t taken, const std::string &name, const HostArray &value) {
  if (events)
    events->add(taken, name, value);
}

void TrainReport::onCheckpoint(const fs::path &) {
  if (log)
    log->flushBeforeEvaluation();
  if (events)
    events->flush();
}

void TrainReport::onSaving() {
  if (log)
    log->sync();
  if (events)
    events->sync();
}

void TrainReport::onNote(const std::string &line) {
  clearLine();
  std::cout << std::flush;
  std::cerr << "note: " << makePrintable(line) << "\n";
}

/// Says which checkpoint had the lowest loss, if the run went on after it.
void TrainReport::printBest(const TrainingResult &result) {
  const EvaluationHistory &history = result.evaluations;
  if (!history.sinceBest || !std::isfinite(history.bestLoss))
    return;
  std::string line = "best evaluation: loss " + format("%.5g", history.bestLoss) + " after " +
                     count(history.bestStep, "taken step");
  fs::path folder = getCheckpointFolder(setup.settings.checkpoints, history.bestStep);
  std::error_code error;
  if (!setup.settings.checkpoints.empty() && fs::is_directory(folder, error))
    line += ", checkpoint " + folder.string();
  print(line);
}

void TrainReport::finish(const TrainingResult &result) {
  if (log)
    log->flush();
  if (events)
    events->flush();
  printStep();
  clearLine();
  std::string saved =
      result.checkpoint.empty() ? "nothing is saved" : "checkpoint " + result.checkpoint.string();
  if (result.signal)
    print("interrupted by signal " + std::to_string(result.signal) + " (" +
          strsignal(result.signal) + ") after step " +
          std::to_string(setup.getStepsDone(result.progress.cursor)) + " of " +
          std::to_string(numSteps) +
          (result.checkpoint.empty() ? "" : "; the same command with --resume continues"));
  if (result.stoppedEarly)
    print("stopped early: " + std::to_string(setup.settings.patience) +
          " evaluations without a lower loss");
  if (result.steps == 0)
    return;
  double median = cluster::getMedian(times),
         seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  std::string line = count(result.steps, "step") + ", " +
                     count(result.steps * setup.step.batch, "sample") + " in " +
                     (seconds < 60 ? format("%.1f s", seconds) : formatTime(seconds)) +
                     " | median " + format("%.1f ms", median) + ", " +
                     format("%.0f samples/s", double(setup.step.batch) / median * 1e3);
  if (result.skipped)
    line +=
        " | " + count(result.skipped, "step") + " not taken" +
        (result.rescaled ? ", " + std::to_string(result.rescaled) + " for the loss's scale" : "");
  if (result.loss)
    line += " | loss " + format("%.5g", *result.loss);
  if (result.evaluation && result.evaluation->values.contains("loss"))
    line += " | evaluation loss " + format("%.5g", result.evaluation->values.at("loss"));
  print(line + " | " + saved);
  printBest(result);
}
