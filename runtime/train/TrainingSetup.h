//===- TrainingSetup.h - what a training run is made of ---------*- C++ -*-===//
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

/// The entries of a plan that trains, and the input that they share with the loop.
inline constexpr const char *kTrainEntry = "train_step";
inline constexpr const char *kEvalEntry = "eval";
inline constexpr const char *kLearningRate = "learning_rate";
/// An output of the step where the loss has a scale.
inline constexpr const char *kLossScale = "loss_scale";
/// Whether an output of theirs is a metric, which people look at: a mean over what the output
/// `NAME.count` counts, or `count` where the plan has no such output.
bool isMetric(const std::string &output);

/// What a run is told.
struct TrainingSettings {
  std::filesystem::path data;
  std::filesystem::path evalData; // empty: none
  /// The length of the run, counted from its beginning also where it is resumed: this many batches,
  /// or all samples this many times. Both 0: one epoch.
  int64_t steps = 0, epochs = 0;
  std::optional<uint64_t> seed;       // of the samples' order; the checkpoint's, else 0
  std::optional<double> learningRate; // the plan's
  std::string schedule = "constant";  // see Schedule.h
  int64_t evalEvery = 0;              // steps; 0: after each epoch. The last step always
  int64_t patience = 0;               // evaluations without a better loss; 0: never stop early
  std::filesystem::path checkpoints;  // empty: none
  int64_t checkpointEvery = 0;        // steps; 0: at the end alone
  int64_t keep = 3;                   // checkpoints
  int64_t histogramsEvery = 0;        // taken steps between those of parameters; 0: none
  /// Continue a checkpoint: `resumeFrom`, or the latest in `checkpoints` where that is empty; a
  /// folder without any is begun.
  bool resume = false;
  std::filesystem::path resumeFrom;
  /// Go on after a step that was not taken because its loss or gradients are not finite.
  bool skipNonFinite = false;
  std::map<std::string, int64_t> dims; // which specialisation
  /// The dimension in which samples have different lengths, which data `padTo`.npy says; empty:
  /// none. A batch takes the smallest specialisation that holds its longest sample.
  std::string padTo;
  std::map<std::string, std::string> inputs; // values of inputs that are no data, see Generator.h
};

/// One of a plan's entries with the data that it reads.
struct TrainedEntry {
  /// The largest of `sizes`.
  const EntrySpecialisation *specialisation = nullptr;
  /// With padTo its sizes, ascending; else the one specialisation under 0.
  std::map<int64_t, const EntrySpecialisation *> sizes;
  int64_t batch = 0;                // samples of a call
  std::vector<std::string> columns; // inputs that come from the data
  std::vector<std::string> values;  // outputs that are one f32
  DataSet data;

  /// A batch of some samples: which, its inputs by name, and what to run on them.
  struct Batch {
    std::vector<int64_t> samples;
    const EntrySpecialisation *specialisation = nullptr;
    std::map<std::string, HostArray> inputs;
  };
  Batch makeBatch(std::vector<int64_t> samples) const;
};

/// Everything that can be checked before a rank starts: it is made once, in the launching process,
/// and ranks inherit it.
struct TrainingSetup {
  /// Throws InvalidArgument, in one line with the remedy, for a plan that does not train, data or
  /// inputs that do not fit it, and a checkpoint that is damaged or of another run.
  static TrainingSetup prepare(std::shared_ptr<const Plan> plan, TrainingSettings settings);

  /// Throws InvalidArgument where the folder of checkpoints has some that would be mixed up with
  /// this run's: also for after it is locked, since another run may have saved since the setup.
  void requireUnused() const;
  /// The steps of the whole run, also those before a checkpoint.
  int64_t getNumSteps() const;
  /// The steps that are done where `cursor` samples have been read.
  int64_t getStepsDone(int64_t cursor) const;

  std::shared_ptr<const Plan> plan;
  TrainingSettings settings;
  TrainedEntry step;
  std::optional<TrainedEntry> eval;
  SampleOrder order{1, 0};
  Schedule schedule;
  double learningRate = 0;
  int64_t end = 0;                            // where the cursor ends
  TrainingProgress begin;                     // the first step's
  std::map<std::string, HostArray> constants; // inputs that are no data
  std::map<std::string, Checkpoint::Wanted> states;
  std::optional<Checkpoint> checkpoint; // what the states begin with; else they are the plan's
  std::filesystem::path checkpointPath;
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_TRAIN_TRAININGSETUP_H
