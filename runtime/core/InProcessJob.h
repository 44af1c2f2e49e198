//===- InProcessJob.h - all ranks in one process ----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Runs all ranks of a plan in this process, one thread each: used by Python, `gridloom run
// --in-process` and the C interface.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CORE_INPROCESSJOB_H
#define GRIDLOOM_RUNTIME_CORE_INPROCESSJOB_H

#include "runtime/core/Placement.h"
#include "runtime/core/Session.h"

namespace gridloom::rt {

struct InProcessOptions {
  SessionOptions session;
  /// Devices and transport of the ranks.
  PlacementOptions placement;
  /// Polled on the caller's thread while it waits for the ranks. If it returns true or throws and
  /// the ranks run for longer than `patience` after that, the job is aborted; what it threw is
  /// rethrown when the ranks have ended. May be null.
  std::function<bool()> isInterrupted;
  std::chrono::milliseconds patience{2000};
};

/// Waits for other threads and polls for interrupts, as InProcessOptions::isInterrupted describes.
class Interruption {
public:
  Interruption(const std::function<bool()> &ask, std::chrono::milliseconds patience)
      : ask(ask), patience(patience) {}
  /// Calls `waitFor` until it returns true; calls `end` once if it takes longer than `patience`
  /// after an interrupt. Rethrows what `ask` threw.
  void await(const std::function<bool(std::chrono::milliseconds)> &waitFor,
             const std::function<void()> &end) const;

private:
  const std::function<bool()> &ask;
  std::chrono::milliseconds patience;
};

/// Detects use after a fork: the child has none of the parent's threads.
class ForkGuard {
public:
  ForkGuard();
  bool isForked() const;
  /// Throws InvalidArgument naming `what` and both processes in a child.
  void check(const char *what) const;

private:
  int process;
};

class InProcessJob {
public:
  InProcessJob(std::shared_ptr<const Plan> plan, InProcessOptions options = {});
  ~InProcessJob();
  InProcessJob(const InProcessJob &) = delete;
  InProcessJob &operator=(const InProcessJob &) = delete;

  const Plan &getPlan() const;
  int getNumRanks() const;

  /// Binds a whole input on every rank, or one rank's part.
  void bind(const std::string &name, const HostArray &global);
  void bindShard(int rank, const std::string &name, const HostArray &local);
  /// Runs all ranks; throws the error that caused the failure if any fails. Returns each rank's
  /// figures.
  std::vector<RunStats> run(const std::string &entry = "main",
                            const std::map<std::string, int64_t> &dims = {});
  const EntrySpecialisation &getLastSpecialisation() const;
  /// The whole output of the last run.
  HostArray getOutput(const std::string &name) const;
  /// All outputs of the last run, by name.
  std::map<std::string, HostArray> getOutputs() const;
  HostArray getOutputShard(int rank, const std::string &name) const;
  void updateWeights(const std::filesystem::path &path);
  /// Ends the job on all ranks with this reason. May be called from any thread.
  void abort(const std::string &reason);
  /// Resets all states of every rank to their values in a new session.
  void resetStates();
  /// A state's whole (global) value, without padding; if several stages have it, the first one's.
  /// Throws InvalidArgument if the plan has no such state.
  HostArray getState(const std::string &name) const;
  /// Gives every rank its part of a state's whole value. Throws InvalidArgument, before any rank
  /// has changed, if the plan has no such state or its type or shape differs.
  void setState(const std::string &name, const HostArray &global);
  /// Writes the last run's trace; needs options.session.trace.
  void writeTrace(const std::filesystem::path &path) const;
  Session &getSession(int rank);

private:
  class Impl;
  std::unique_ptr<Impl> impl;
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CORE_INPROCESSJOB_H
