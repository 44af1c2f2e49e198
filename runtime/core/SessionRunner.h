//===- SessionRunner.h - a session on all ranks or on one -------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// What the C interface's session is: all ranks in this process, or one rank of a job.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CORE_SESSIONRUNNER_H
#define GRIDLOOM_RUNTIME_CORE_SESSIONRUNNER_H

#include "runtime/core/InProcessJob.h"
#include "runtime/train/Checkpoint.h"

namespace gridloom::rt {

/// Runs a session: all ranks in this process, or one of them.
struct SessionRunner {
  virtual ~SessionRunner() = default;
  virtual void bind(const std::string &name, const HostArray &array) = 0;
  virtual Session &getSession(int rank) = 0;
  virtual RunStats run(const std::string &entry, const std::map<std::string, int64_t> &dims) = 0;
  virtual HostArray getOutput(const std::string &name) = 0;
  virtual void updateWeights(const std::string &path) = 0;
  virtual void resetStates() = 0;
  virtual HostArray getState(const std::string &name) = 0;
  virtual void setState(const std::string &name, const HostArray &global) = 0;
  /// Does `work`, which may fail on one rank alone; if it fails or its results differ, throws on
  /// all ranks.
  virtual void agree(const std::string &what, const std::function<TrainingProgress()> &work) = 0;
  virtual void writeTrace(const std::string &path) = 0;
  virtual void abort(const std::string &reason) = 0;
};

/// All ranks of the plan, in this process.
std::unique_ptr<SessionRunner> makeJobRunner(std::shared_ptr<const Plan> plan,
                                             const InProcessOptions &options);
/// The rank that the environment says this process is. Throws InvalidArgument if it names none, or
/// another number of ranks than the plan's.
std::unique_ptr<SessionRunner> makeRankRunner(const std::shared_ptr<const Plan> &plan,
                                              const InProcessOptions &options);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CORE_SESSIONRUNNER_H
