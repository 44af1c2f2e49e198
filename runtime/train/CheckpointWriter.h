//===- CheckpointWriter.h - checkpoints written beside the steps -*- C++ -*-===//
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

/// Collective. Waits until rank 0's `work` is done, however long that takes: meanwhile the ranks
/// exchange a byte now and then, since one that waits for nothing but the end would take rank 0 for
/// lost after the transport's deadline. On other ranks `work` is not looked at. Does not get().
void awaitOnRank0(Session &session, const std::future<void> &work);

/// Writes a run's checkpoints one after the other, in a thread of its own. The destructor waits for
/// the last one.
class CheckpointWriter {
public:
  /// The folder of all of the run's checkpoints, and how many to keep, at least 1.
  CheckpointWriter(std::filesystem::path run, int64_t keep) : run(std::move(run)), keep(keep) {}
  ~CheckpointWriter() { isEnding = true; }

  /// Makes memory for checkpoints of these states, in the other thread: the first one then finds it
  /// as later ones find the last one's. Where there is none, that is the first checkpoint's error.
  void prepare(const std::map<std::string, Checkpoint::Wanted> &states);
  /// Begins to write a checkpoint, after `before`, in the other thread too; older ones go when it
  /// is written. Nothing else may be under way.
  void start(Checkpoint checkpoint, std::function<void()> before);
  /// The memory of a state, prepared or of the last checkpoint, which is written: new pages for
  /// each checkpoint would take twice as long as copying the states. Null where there is none.
  HostArray takeSpare(const std::string &state);
  /// Throws what a checkpoint whose writing has ended failed with. Does not wait.
  void check();
  /// Collective. Waits until all is written. Throws what that failed with, on rank 0.
  void finish(Session &session);

private:
  void write(const Checkpoint &checkpoint) const;

  std::filesystem::path run;
  int64_t keep;
  std::map<std::string, HostArray> spare; // memory for the next checkpoint's states
  std::atomic<bool> isEnding{false};      // no more memory is prepared
  std::future<void> writing;              // last: it waits for the thread, which uses the others
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_TRAIN_CHECKPOINTWRITER_H
