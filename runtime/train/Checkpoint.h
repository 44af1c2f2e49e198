//===- Checkpoint.h - a training run on disk --------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A checkpoint is a folder: states.safetensors has every state's whole (global) value by name,
// manifest.json has the run's progress, the states' roles and each file's SHA-256. It does not
// depend on a mesh. The folder is renamed to its final name after all of it is on disk, so a folder
// of that name is complete.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_TRAIN_CHECKPOINT_H
#define GRIDLOOM_RUNTIME_TRAIN_CHECKPOINT_H

#include "runtime/core/Files.h"
#include "runtime/train/StateRoles.h"
#include "runtime/train/TiedWeights.h"

#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace gridloom::rt {

/// The progress of a run.
struct TrainingProgress {
  int64_t step = 0;   // committed steps
  int64_t cursor = 0; // samples read, over all epochs (SampleOrder.h)
  int64_t numSamples = 0;
  uint64_t seed = 0;
  bool operator==(const TrainingProgress &) const = default;
};

/// What a run's evaluations have shown so far.
struct EvaluationHistory {
  double bestLoss = std::numeric_limits<double>::infinity();
  int64_t bestStep = -1;  // committed steps before the best one; -1: there is none
  int64_t sinceBest = 0;  // evaluations after it
  int64_t lastStep = -1;  // committed steps before the last one; -1: there is none
  int64_t atLastStep = 0; // evaluations there: steps that are not taken may be between them
};

struct Checkpoint {
  TrainingProgress progress;
  std::optional<int64_t> batch;  // samples per step, if known; 0: not all steps had the same
  EvaluationHistory evaluations; // before the one at this place
  bool isEvaluated = false;      // whether the run evaluates at this place
  /// Every state's whole value, without padding. Values that are read from a file are mapped.
  std::map<std::string, HostArray> states;
  /// The states' roles (getRoles), or empty; never empty after `read`, which guesses them from the
  /// names for older versions.
  StateRoles roles;
  /// Weights of the model that share another parameter's value.
  std::vector<TiedWeight> ties;
  /// The files that were read: the manifest, then those that hold `states`.
  std::vector<std::shared_ptr<const MappedFile>> files;

  /// The model's weights: parameters, and weights that are tied to them.
  std::map<std::string, HostArray> getParameters() const;

  /// Writes the folder; replaces a checkpoint of this name once the new one is complete. Throws
  /// InvalidArgument with the path and the reason, also if something else has this name or is in
  /// the folder; what is there is then unchanged.
  void write(const std::filesystem::path &folder) const;
  /// Reads a folder and verifies its checksums. Throws InvalidArgument naming the file and what is
  /// wrong: damaged, incomplete, no checkpoint, or of a newer version.
  static Checkpoint read(const std::filesystem::path &folder);

  struct Wanted {
    DataType type;
    std::vector<int64_t> shape;
  };
  /// Throws InvalidArgument naming a state that the checkpoint lacks, that has another type or
  /// shape, or that `wanted` lacks: the checkpoint is of another model or optimizer.
  void requireFits(const std::map<std::string, Wanted> &wanted) const;
  /// Call it after using the states: throws Unavailable naming a file that was written to,
  /// truncated or lost since it was read, so that what was read may be wrong. See MappedFile.
  void requireUnchanged() const;
};

/// The folder of a step's checkpoint in the run's folder: "step-0000000100".
std::filesystem::path getCheckpointFolder(const std::filesystem::path &run, int64_t step);
/// The steps of the checkpoints in a run's folder, ascending; empty if there are none or no folder.
std::vector<int64_t> listCheckpoints(const std::filesystem::path &run);
/// `path` itself if it is a checkpoint, else the latest one in it. Throws InvalidArgument if there
/// is none.
std::filesystem::path findCheckpoint(const std::filesystem::path &path);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_TRAIN_CHECKPOINT_H
