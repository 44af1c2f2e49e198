//===- TrainingSetup.h - settings and data of a training run ----*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_TRAIN_TRAININGSETUP_H
#define GRIDLOOM_RUNTIME_TRAIN_TRAININGSETUP_H

#include "runtime/core/Plan.h"
#include "runtime/train/Checkpoint.h"
#include "runtime/train/DataSet.h"
#include "runtime/train/SampleOrder.h"
#include "runtime/train/Schedule.h"

#include <optional>

namespace gridloom::rt {

/// The entries of a plan that trains, and the input that the trainer sets.
inline constexpr const char *kTrainEntry = "train_step";
inline constexpr const char *kEvalEntry = "eval";
inline constexpr const char *kLearningRate = "learning_rate";
/// An output of the training entry if the loss has a scale.
inline constexpr const char *kLossScale = "loss_scale";
/// States that a step changes even if it is not taken, where a plan has them: the number of
/// attempts, from which random numbers are drawn, and a dynamic scale of the loss.
inline constexpr const char *kAttemptStates[] = {"train/iteration", "train/loss_scale",
                                                 "train/good_steps"};
/// Whether an entry's output is a metric for people: a mean over the count in output `NAME.count`,
/// or `count` if the plan has no such output.
bool isMetric(const std::string &output);

/// The options of a run.
struct TrainingSettings {
  std::filesystem::path data;
  std::filesystem::path evalData; // empty: none
  /// The length of the run, counted from its start even if it is resumed: this many batches, or
  /// this many epochs. Both 0: one epoch.
  int64_t steps = 0, epochs = 0;
  std::optional<uint64_t> seed;       // of the samples' order; default: the checkpoint's, else 0
  std::optional<double> learningRate; // default: the plan's
  std::string schedule = "constant";  // see Schedule.h
  int64_t evalEvery = 0;              // steps; 0: after each epoch. Always after the last step
  int64_t patience = 0;               // evaluations without a better loss; 0: never stop early
  std::filesystem::path checkpoints;  // empty: none
  int64_t checkpointEvery = 0;        // steps; 0: only at the end
  int64_t keep = 3;                   // number of checkpoints
  int64_t histogramsEvery = 0;        // taken steps between parameter histograms; 0: none
  /// Continue from checkpoint `resumeFrom`, or from the latest in `checkpoints` if that is empty;
  /// start anew if there is none.
  bool resume = false;
  std::filesystem::path resumeFrom;
  /// Continue after a step that was not taken because its loss or gradients are not finite.
  bool skipNonFinite = false;
  std::map<std::string, int64_t> dims; // selects the specialisation
  /// The dimension in which samples have different lengths, which data `padTo`.npy lists; empty:
  /// none. A batch runs on the smallest specialisation that holds its longest sample.
  std::string padTo;
  std::map<std::string, std::string> inputs; // values of other inputs, see Generator.h
};

/// One of a plan's entries with the data that it reads.
struct TrainedEntry {
  /// The largest of `sizes`.
  const EntrySpecialisation *specialisation = nullptr;
  /// Specialisations by size of padTo; without padTo, the only one under 0.
  std::map<int64_t, const EntrySpecialisation *> sizes;
  int64_t batch = 0;                // samples per call
  std::vector<std::string> columns; // inputs that come from the data
  std::vector<std::string> values;  // outputs that are one f32
  DataSet data;

  /// A batch: its samples, the inputs by name, and the specialisation to run.
  struct Batch {
    std::vector<int64_t> samples;
    const EntrySpecialisation *specialisation = nullptr;
    std::map<std::string, HostArray> inputs;
  };
  Batch makeBatch(std::vector<int64_t> samples) const;
};

/// Everything that can be checked before a rank starts: prepared once, in the launching process,
/// and inherited by the ranks.
struct TrainingSetup {
  /// Throws InvalidArgument, in one line with the remedy, if the plan does not train, data or
  /// inputs do not fit it, or the checkpoint is damaged or of another run.
  static TrainingSetup prepare(std::shared_ptr<const Plan> plan, TrainingSettings settings);

  /// Throws InvalidArgument if the checkpoint folder is a plan, or has checkpoints that would be
  /// mixed up with this run's. Call it again once the folder is locked: another run may have saved
  /// meanwhile.
  void requireUnused() const;
  /// Whether the evaluation data, if any, is evaluated after the step that ends at `cursor`.
  bool isEvaluatedAt(int64_t cursor) const;
  /// Whether to evaluate before any step: a checkpoint is saved before the evaluation at its place,
  /// or does not count it.
  bool isEvaluatedFirst() const {
    return eval && checkpoint && (checkpoint->isEvaluated || isEvaluatedAt(begin.cursor));
  }
  /// The steps of the whole run, including those before a checkpoint.
  int64_t getNumSteps() const;
  /// The samples of each step of the whole run; 0 if not all steps have the same.
  int64_t getBatchOfAll() const;
  /// The steps that read `cursor` samples.
  int64_t getStepsDone(int64_t cursor) const;

  std::shared_ptr<const Plan> plan;
  TrainingSettings settings;
  TrainedEntry step;
  std::optional<TrainedEntry> eval;
  SampleOrder order{1, 0};
  Schedule schedule;
  double learningRate = 0;
  int64_t end = 0;                            // the cursor at the end
  TrainingProgress begin;                     // before the first step
  std::map<std::string, HostArray> constants; // inputs that are not read from data
  std::map<std::string, Checkpoint::Wanted> states;
  std::optional<Checkpoint> checkpoint; // the states' initial values; none: the plan's
  std::filesystem::path checkpointPath;
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_TRAIN_TRAININGSETUP_H
