//===- Trainer.h - the training loop ----------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Every rank runs the same loop. After each step the ranks exchange its loss and the like, so that
// all decide alike: which steps count, when to stop. Rank 0 writes the checkpoints.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_TRAIN_TRAINER_H
#define GRIDLOOM_RUNTIME_TRAIN_TRAINER_H

#include "runtime/core/Session.h"
#include "runtime/train/CheckpointWriter.h"
#include "runtime/train/TrainingSetup.h"

#include <functional>
#include <future>

namespace gridloom::rt {

/// What an entry's scalar outputs hold, by name.
using TrainingValues = std::map<std::string, double>;

struct StepRecord {
  int64_t step = 0;   // of all that were tried, from 1
  int64_t taken = 0;  // steps that were taken so far, this one among them if it was
  int64_t epoch = 0;  // of the first sample, from 1
  int64_t cursor = 0; // before the step
  double learningRate = 0;
  bool committed = true;
  /// Not taken since the loss's scale was too large, which the step has made smaller.
  bool isScaleTooLarge = false;
  TrainingValues values;
  double milliseconds = 0;
};

struct EvaluationRecord {
  int64_t step = 0; // after which it was
  int64_t taken = 0;
  /// `loss` is the mean over all that `count` counts, a metric over what `METRIC.count` does, or
  /// `count` where there is none; the counts are sums. What no sample counted for is not there. Of
  /// several losses each is such a mean, and `loss` is the sum of these.
  TrainingValues values;
  bool isBest = false;
};

/// Is told what happens, on the rank that it was given to.
class TrainingObserver {
public:
  virtual ~TrainingObserver() = default;
  virtual void onStep(const StepRecord &) {}
  virtual void onEvaluation(const EvaluationRecord &) {}
  /// A parameter's whole value, every so many steps that were taken.
  virtual void onParameter(int64_t taken, const std::string &, const HostArray &) {
    static_cast<void>(taken);
  }
  /// A checkpoint is about to be written: all that was before belongs to it.
  virtual void onCheckpoint(const std::filesystem::path &) {}
  /// Then, in the thread that writes it, while the next steps run: what the disk has to have before
  /// the checkpoint is waited for here.
  virtual void onSaving() {}
  /// Something that people should know, one line.
  virtual void onNote(const std::string &) {}
};

struct TrainingResult {
  TrainingProgress progress;
  int64_t steps = 0;    // tried in this call
  int64_t skipped = 0;  // of these, not taken
  int64_t rescaled = 0; // of the latter, since the loss's scale was too large
  int signal = 0;       // that ended the run; 0: none did
  bool stoppedEarly = false;
  std::optional<double> loss;                 // the last step's
  std::optional<EvaluationRecord> evaluation; // the last one
  std::filesystem::path checkpoint;           // the last one, on all ranks; empty: none
};

class Trainer {
public:
  /// `observer` may be null. `getSignal`, which may be null, gives the number of a signal that asks
  /// to end, or 0; ranks may have different answers.
  Trainer(const TrainingSetup &setup, Session &session, TrainingObserver *observer = nullptr,
          std::function<int()> getSignal = nullptr);
  ~Trainer();
  Trainer(const Trainer &) = delete;
  Trainer &operator=(const Trainer &) = delete;

  /// Collective. Trains to the end that the setup says, or until a signal or a lack of progress.
  /// Throws InvalidArgument naming step and samples where a step could not be taken, and the path
  /// where a checkpoint cannot be written.
  TrainingResult run();

private:
  using Batch = TrainedEntry::Batch;

  void agree();
  void restore();
  void takeStep();
  void refuseStep(const StepRecord &record, const Batch &batch);
  void showParameters();
  void evaluate();
  bool isEvaluationDue() const;
  bool isEvaluationLeft() const;
  void save();
  bool isSavedBeforeTheEnd() const;
  bool isOver() const;
  void noteLeftOut() const;
  /// Adds the values of some batches up.
  class Means {
  public:
    /// `terms`: what `loss` is the sum of, empty where it is a mean itself.
    explicit Means(const std::vector<std::string> &terms) : terms(terms) {}
    void add(const TrainingValues &values);
    TrainingValues get() const;

  private:
    const std::vector<std::string> &terms;
    TrainingValues sums;
  };

  TrainingValues runEntry(const char *name, const TrainedEntry &entry, const Batch &batch);
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
  int64_t savedCursor = -1, shownStep = 0;
  double bestLoss;
  int64_t evaluationsSinceBest = 0;
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_TRAIN_TRAINER_H
