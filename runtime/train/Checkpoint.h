//===- Checkpoint.h - a training run on disk --------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A checkpoint is a folder: states.safetensors has every state's whole (global) value by its name,
// manifest.json says how far the run had come and what each state is, and has the SHA-256 of each
// file. It knows nothing of meshes. The folder gets its name after the disk has all of it, so a
// folder of that name is whole.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_TRAIN_CHECKPOINT_H
#define GRIDLOOM_RUNTIME_TRAIN_CHECKPOINT_H

#include "runtime/core/Files.h"
#include "runtime/train/StateRoles.h"
#include "runtime/train/TiedWeights.h"

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace gridloom::rt {

/// How far a run has come.
struct TrainingProgress {
  int64_t step = 0;   // committed steps
  int64_t cursor = 0; // samples read, over all epochs (SampleOrder.h)
  int64_t numSamples = 0;
  uint64_t seed = 0;
  bool operator==(const TrainingProgress &) const = default;
};

struct Checkpoint {
  TrainingProgress progress;
  /// Every state's whole value, without padding. What is read from a file is mapped.
  std::map<std::string, HostArray> states;
  /// What each of them is (getRoles), or empty; after `read` never empty: where the folder does not
  /// say, as those of older versions, it is guessed from the names.
  StateRoles roles;
  /// Weights of the model that are parameters by another name.
  std::vector<TiedWeight> ties;
  /// The files that were read: the manifest, then those that `states` lie in.
  std::vector<std::shared_ptr<const MappedFile>> files;

  /// The states that are the model's weights, and the weights that are tied to them.
  std::map<std::string, HostArray> getParameters() const;

  /// Writes the folder; one of this name is replaced once the new one is whole. Throws
  /// InvalidArgument with the path and the system's reason; then the old folder stays.
  void write(const std::filesystem::path &folder) const;
  /// Reads a folder and checks every byte of it. Throws InvalidArgument naming the file and what is
  /// wrong: damaged, incomplete, no checkpoint, or of a newer version.
  static Checkpoint read(const std::filesystem::path &folder);

  struct Wanted {
    DataType type;
    std::vector<int64_t> shape;
  };
  /// Throws InvalidArgument naming a state of the plan's that the checkpoint lacks, has with
  /// another type or shape, or has besides: it is then of another model or optimizer.
  void requireFits(const std::map<std::string, Wanted> &wanted) const;
  /// For after the states are used: throws Unavailable naming a file that was written to, cut or
  /// lost since it was read, when what came of it may be wrong. See MappedFile.
  void requireUnchanged() const;
};

/// The folder of a step in the folder of all of a run's checkpoints: "step-0000000100".
std::filesystem::path getCheckpointFolder(const std::filesystem::path &run, int64_t step);
/// The steps of the checkpoints in a run's folder, ascending; empty where it has none or is not
/// there.
std::vector<int64_t> listCheckpoints(const std::filesystem::path &run);
/// `path` itself where it is a checkpoint, else the one of the latest step in it. Throws
/// InvalidArgument when there is none.
std::filesystem::path findCheckpoint(const std::filesystem::path &path);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_TRAIN_CHECKPOINT_H
