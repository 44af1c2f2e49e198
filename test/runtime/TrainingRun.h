//===- TrainingRun.h - runs of the training loop for tests -----*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Sample i of ten has x[0] = 4^i, so that a loss says how often each sample was in a batch, and the
// state w says at what rate it was read.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_TEST_RUNTIME_TRAININGRUN_H
#define GRIDLOOM_TEST_RUNTIME_TRAININGRUN_H

#include "runtime/arrays/Npy.h"
#include "runtime/core/Error.h"
#include "runtime/core/InProcessJob.h"
#include "runtime/train/Trainer.h"
#include "runtime/train/TrainingLog.h"
#include "test/runtime/TrainingPlan.h"

#include <gmock/gmock.h>

#include <cmath>
#include <map>
#include <thread>

namespace gridloom::test {

using namespace gridloom::rt;

inline constexpr int64_t batch = TrainingPlan::batch, width = TrainingPlan::width, numSamples = 10;

struct Recorder : TrainingObserver {
  std::vector<StepRecord> steps;
  std::vector<EvaluationRecord> evaluations;
  std::vector<std::filesystem::path> checkpoints;
  std::vector<std::string> notes;
  std::unique_ptr<TrainingLog> log;

  void onStep(const StepRecord &record) override {
    steps.push_back(record);
    if (log)
      log->add(record);
  }
  void onEvaluation(const EvaluationRecord &record) override {
    evaluations.push_back(record);
    if (log)
      log->add(record);
  }
  void onCheckpoint(const std::filesystem::path &path) override {
    checkpoints.push_back(path);
    if (log)
      log->flushBeforeEvaluation();
  }
  void onSaving() override {
    if (log)
      log->sync();
  }
  void onNote(const std::string &line) override { notes.push_back(line); }
};

/// What a run did.
struct Trained {
  std::vector<TrainingResult> results; // of the ranks
  std::vector<Recorder> recorders;
  std::map<std::string, std::vector<std::byte>> states;
  std::string error;
  std::filesystem::path keptLog;

  const std::vector<StepRecord> &getSteps() const { return recorders[0].steps; }
  /// The samples of all steps, by their digits in the losses; those of a step ascend.
  std::vector<int64_t> getSamples() const {
    std::vector<int64_t> samples;
    for (const StepRecord &step : getSteps())
      for (int64_t i = 0, digits = int64_t(step.values.at("loss")); digits; ++i, digits /= 4)
        samples.insert(samples.end(), size_t(digits % 4), i);
    return samples;
  }
};

class Training : public testing::Test {
protected:
  TemporaryFolder folder;
  std::filesystem::path data = folder.getPath() / "data", evalData = folder.getPath() / "eval",
                        checkpoints = folder.getPath() / "checkpoints";
  TrainingSettings settings;
  bool hasMetric = false; // of the plan
  std::function<void(TrainingSetup &second)> afterSetup;

  Training() {
    writeData(data, numSamples);
    settings.data = data;
  }

  static void writeData(const std::filesystem::path &to, int64_t samples,
                        const std::vector<int64_t> &bad = {}) {
    std::filesystem::create_directories(to);
    HostArray x = HostArray::allocate(DataType::F32, {samples, width});
    HostArray ok = HostArray::allocate(DataType::F32, {samples, 1});
    for (int64_t i = 0; i < samples; ++i) {
      x.as<float>()[size_t(i * width)] = std::ldexp(1.f, int(2 * i));
      ok.as<float>()[size_t(i)] = 1;
    }
    for (int64_t i : bad)
      ok.as<float>()[size_t(i)] = 1 - batch; // the batch's sum is 0
    writeNpy(to / "x.npy", x);
    writeNpy(to / "ok.npy", ok);
  }

  std::shared_ptr<const Plan> makePlan(int ranks = 1) {
    TrainingPlan plan(ranks, hasMetric);
    return Plan::load(plan.builder.write(folder.getPath() / std::to_string(ranks)));
  }

  /// Trains on `ranks` ranks; `getSignal` is asked with the rank's number and its steps.
  Trained train(int ranks = 1, const std::function<int(int, size_t)> &getSignal = nullptr,
                const std::filesystem::path &log = {}) {
    std::shared_ptr<const Plan> plan = makePlan(ranks);
    Trained run;
    InProcessJob job(plan);
    TrainingSetup setup = TrainingSetup::prepare(plan, settings);
    TrainingSetup second = setup; // of rank 1, as where another launcher started the ranks
    if (afterSetup)
      afterSetup(second);
    run.results.resize(size_t(ranks));
    run.recorders.resize(size_t(ranks));
    if (!log.empty())
      run.recorders[0].log = std::make_unique<TrainingLog>(log, setup);
    std::vector<std::string> errors(static_cast<size_t>(ranks));
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < size_t(ranks); ++rank)
      threads.emplace_back([&, rank] {
        Session &session = job.getSession(int(rank));
        Recorder &recorder = run.recorders[rank];
        try {
          Trainer trainer(rank == 1 ? second : setup, session, &recorder, [&] {
            return getSignal ? getSignal(int(rank), recorder.steps.size()) : 0;
          });
          run.results[rank] = trainer.run();
          for (const char *name : {"w", "train/step"}) {
            HostArray whole = session.gatherState(name);
            if (rank == 0)
              run.states[name].assign(whole.getData(), whole.getData() + whole.getNumBytes());
          }
        } catch (const Error &error) {
          errors[rank] = error.what();
          session.abort(error.what());
        }
      });
    for (std::thread &thread : threads)
      thread.join();
    run.error = errors[0];
    if (std::unique_ptr<TrainingLog> closed = std::move(run.recorders[0].log))
      run.keptLog = closed->getKept();
    return run;
  }

  std::string getRefusal() {
    try {
      TrainingSetup::prepare(makePlan(), settings);
    } catch (const Error &error) {
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
      return error.what();
    }
    return "no error";
  }

  static std::vector<float> toFloats(const std::vector<std::byte> &bytes) {
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
};

inline std::vector<int64_t> repeat(int64_t times) {
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < numSamples * times; ++i)
    samples.push_back(i % numSamples);
  return samples;
}

} // namespace gridloom::test

#endif // GRIDLOOM_TEST_RUNTIME_TRAININGRUN_H
