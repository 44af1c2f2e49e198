//===- Trainer.h - the training loop ----------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Every rank runs the same loop. After each step the ranks exchange the loss and other values, so
// that all make the same decisions: which steps count, when to stop. Rank 0 writes the checkpoints.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_TRAIN_TRAINER_H
#define GRIDLOOM_RUNTIME_TRAIN_TRAINER_H

#include "runtime/core/Error.h"
#include "runtime/core/Session.h"
#include "runtime/train/CheckpointWriter.h"
#include "runtime/train/TrainingSetup.h"

#include <functional>
#include <future>

namespace gridloom::rt {

/// An entry's scalar outputs, by name.
using TrainingValues = std::map<std::string, double>;

struct StepRecord {
  int64_t step = 0;   // number of the step, from 1, including steps not taken
  int64_t taken = 0;  // steps taken so far, including this one
  int64_t epoch = 0;  // of the first sample, from 1
  int64_t cursor = 0; // before the step
  double learningRate = 0;
  bool committed = true;
  /// Not taken because the loss scale was too large; the step has reduced the scale.
  bool isScaleTooLarge = false;
  TrainingValues values;
  double milliseconds = 0;
};

struct EvaluationRecord {
  int64_t step = 0; // the step before it
  int64_t taken = 0;
  /// Means, and sums of the counts. `loss` is the mean over `count`, a metric the mean over
  /// `METRIC.count`, or `count` if there is none. Values with count 0 are missing. With several
  /// losses, each is such a mean, and `loss` is their sum.
  TrainingValues values;
  bool isBest = false;
};

/// Receives the events of a run, on the rank that it was passed to.
class TrainingObserver {
public:
  virtual ~TrainingObserver() = default;
  virtual void onStep(const StepRecord &) {}
  virtual void onEvaluation(const EvaluationRecord &) {}
  /// A parameter's whole value, every histogramsEvery taken steps.
  virtual void onParameter(int64_t taken, const std::string &, const HostArray &) {
    static_cast<void>(taken);
  }
  /// A checkpoint is about to be written: it includes all events before this call.
  virtual void onCheckpoint(const std::filesystem::path &) {}
  /// Called next in the thread that writes the checkpoint, while the next steps run: syncs what
  /// must be on disk before the checkpoint.
  virtual void onSaving() {}
  /// A note for people, one line.
  virtual void onNote(const std::string &) {}
};

struct TrainingResult {
  TrainingProgress progress;
  int64_t steps = 0;    // tried in this call
  int64_t skipped = 0;  // of these, steps not taken
  int64_t rescaled = 0; // of the skipped, because the loss scale was too large
  int signal = 0;       // that ended the run; 0: none
  bool stoppedEarly = false;
  std::optional<double> loss;                 // the last step's
  std::optional<EvaluationRecord> evaluation; // the last one
  EvaluationHistory evaluations;              // of the whole run
  std::filesystem::path checkpoint;           // the last one, on all ranks; empty: none
};

class Trainer {
public:
  /// `observer` may be null. `getSignal`, which may be null, returns the number of a signal that
  /// asks to stop, or 0; it may differ between ranks.
  Trainer(const TrainingSetup &setup, Session &session, TrainingObserver *observer = nullptr,
          std::function<int()> getSignal = nullptr);
  ~Trainer();
  Trainer(const Trainer &) = delete;
  Trainer &operator=(const Trainer &) = delete;

  /// Collective. Trains to the setup's end, or until a signal or early stopping. Throws
  /// InvalidArgument naming step and samples if a step could not be taken, or the path if a
  /// checkpoint cannot be written.
  TrainingResult run();

private:
  using Batch = TrainedEntry::Batch;

  void agree();
  void restore();
  void takeStep();
  void refuseStep(const StepRecord &record, const Batch &batch);
  void keepAttempt();
  void takeBackAttempt();
  void showParameters();
  void evaluate();
  void save();
  bool isSavedBeforeTheEnd() const;
  bool isOver() const;
  void noteLeftOut() const;
  /// Accumulates means over batches.
  class Means {
  public:
    /// `terms`: the outputs that `loss` is the sum of; empty if it is itself a mean.
    explicit Means(const std::vector<std::string> &terms) : terms(terms) {}
    void add(const TrainingValues &values);
    TrainingValues get() const;

  private:
    const std::vector<std::string> &terms;
    TrainingValues sums;
  };

  void bind(const char *entry, const Batch &batch);
  TrainingValues runEntry(const char *name, const TrainedEntry &entry, const Batch &batch);
  std::string saveBeforeError();
  Error refuseData(const Error &error);
  bool isScaleTooLarge(const StepRecord &record) const;
  std::optional<TrainingValues> exchange(const TrainedEntry *entry);
  void prefetch(int64_t cursor);
  std::string describeStep(int64_t cursor) const;

  const TrainingSetup &setup;
  Session &session;
  TrainingObserver *observer;
  std::function<int()> getSignal;
  CheckpointWriter writer;
  std::future<Batch> next;
  TrainingResult result;
  std::map<std::string, HostArray> beforeAttempt; // this rank's kAttemptStates
  int64_t savedCursor = -1, evaluatedCursor = -1, shownStep = 0;
  EvaluationHistory evaluationsBefore; // the last one
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_TRAIN_TRAINER_H
