//===- Launcher.h - the ranks of a job on this machine ----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_LAUNCH_LAUNCHER_H
#define GRIDLOOM_RUNTIME_LAUNCH_LAUNCHER_H

#include "runtime/comm/Transport.h"
#include "runtime/launch/World.h"

namespace gridloom::rt {

struct LaunchOptions {
  TransportOptions transport;
  /// The time that the other ranks have to stop by themselves after a failure.
  std::chrono::milliseconds grace{2000};
  /// The first SIGINT, SIGTERM or SIGHUP is passed on to the ranks, which end by themselves; a
  /// second one stops the job.
  bool ranksHandleSignals = false;
};

/// The work of a rank. `transport` joins all ranks on host memory.
using RankMain = std::function<void(const World &world, Transport &transport)>;

/// Forks `ranks` processes of this one, which must have no other thread, names them with torchrun's
/// variables, and waits. Returns 0 when all succeeded; 128 + signal when interrupted. Otherwise all
/// ranks are stopped and the cause is thrown: a rank's death, else the first error that no other
/// rank caused. No process outlives the call, nor the caller's death.
int launchRanks(int ranks, const LaunchOptions &options, const RankMain &main);

/// The same with a thread of this process per rank, which shows in less start-up and less
/// isolation.
void runThreads(int ranks, const LaunchOptions &options, const RankMain &main);

/// Joins the ranks of a job that another launcher started: through shared memory where all are on
/// this machine, else through TCP to where World::master says. Collective. Fills in the place of a
/// rank whose launcher did not tell which ranks share a machine, from what the ranks say of theirs;
/// without a master it throws InvalidArgument naming the variables that would tell.
std::unique_ptr<Transport> joinJob(World &world, const TransportOptions &options);

/// For a rank that cannot take part in the job at all: joins it to fail it, so that the others hear
/// `reason` at once. Waits no longer than `patience` for them, and throws nothing.
void abortJob(World world, const std::string &reason,
              std::chrono::milliseconds patience = std::chrono::seconds(10)) noexcept;

/// Runs this process's rank of a job that another launcher started. Throws its error; `isCause`
/// decides whether this rank is the one to report it, so that N ranks do not print N times.
void runRank(World world, const LaunchOptions &options, const RankMain &main, bool &isCause);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_LAUNCH_LAUNCHER_H
