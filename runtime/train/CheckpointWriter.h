//===- CheckpointWriter.h - write checkpoints during steps -------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_TRAIN_CHECKPOINTWRITER_H
#define GRIDLOOM_RUNTIME_TRAIN_CHECKPOINTWRITER_H

#include "runtime/core/Session.h"
#include "runtime/train/Checkpoint.h"

#include <atomic>
#include <functional>
#include <future>

namespace gridloom::rt {

/// Collective. Waits until rank 0's `work` is done, however long it takes: the ranks exchange a
/// byte now and then, so that no rank exceeds the transport's deadline and takes rank 0 for lost.
/// Ignores `work` on other ranks. Does not get() it.
void awaitOnRank0(Session &session, const std::future<void> &work);

/// Writes a run's checkpoints one after the other in another thread. The destructor waits for the
/// last one.
class CheckpointWriter {
public:
  /// The folder of the run's checkpoints, and how many to keep, at least 1.
  CheckpointWriter(std::filesystem::path run, int64_t keep) : run(std::move(run)), keep(keep) {}
  ~CheckpointWriter() { isEnding = true; }

  /// Allocates memory for these states in the other thread, so that the first checkpoint has memory
  /// to reuse, like later ones. If there is none, the first checkpoint reports the error.
  void prepare(const std::map<std::string, Checkpoint::Wanted> &states);
  /// Calls `before` and writes a checkpoint, both in the other thread, then removes older
  /// checkpoints, except the one of the best evaluation. No other checkpoint may be in progress.
  void start(Checkpoint checkpoint, std::function<void()> before);
  /// Memory for a state, prepared or of the last checkpoint, which has been written: new pages for
  /// each checkpoint would take twice as long as copying the states. Null if there is none.
  HostArray takeSpare(const std::string &state);
  /// Throws the error of the last checkpoint if writing it has ended. Does not wait.
  void check();
  /// Collective. Waits until the last checkpoint is written. Throws its error, on rank 0.
  void finish(Session &session);

private:
  void write(const Checkpoint &checkpoint) const;

  std::filesystem::path run;
  int64_t keep;
  std::map<std::string, HostArray> spare; // memory for the next checkpoint's states
  std::atomic<bool> isEnding{false};      // stops `prepare`
  std::future<void> writing;              // last: its destructor joins the thread
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_TRAIN_CHECKPOINTWRITER_H
