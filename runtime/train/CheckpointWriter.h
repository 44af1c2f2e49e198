//===- CheckpointWriter.h - checkpoints written beside the steps -*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_TRAIN_CHECKPOINTWRITER_H
#define GRIDLOOM_RUNTIME_TRAIN_CHECKPOINTWRITER_H

#include "runtime/train/Checkpoint.h"

#include <future>

namespace gridloom::rt {

/// Writes a run's checkpoints one after the other, in a thread of its own. The destructor waits for
/// the last one.
class CheckpointWriter {
public:
  /// The folder of all of the run's checkpoints, and how many to keep, at least 1.
  CheckpointWriter(std::filesystem::path run, int64_t keep) : run(std::move(run)), keep(keep) {}

  /// Begins to write a checkpoint, once the one before is written; older ones go when it is. Throws
  /// what the one before failed with.
  void start(Checkpoint checkpoint);
  /// Throws what a checkpoint whose writing has ended failed with. Does not wait.
  void check();
  /// Waits until all is written. Throws what that failed with.
  void finish();

private:
  void write(const Checkpoint &checkpoint) const;

  std::filesystem::path run;
  int64_t keep;
  std::future<void> writing;
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_TRAIN_CHECKPOINTWRITER_H
