//===- Launcher.h - start or join the ranks of a job ------------*- C++ -*-===//
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
  /// How long the other ranks may take to stop after a failure.
  std::chrono::milliseconds grace{2000};
  /// Pass the first SIGINT, SIGTERM or SIGHUP on to the ranks, which end on their own; a second one
  /// stops the job.
  bool ranksHandleSignals = false;
};

/// The work of a rank. `transport` connects all ranks on host memory.
using RankMain = std::function<void(const World &world, Transport &transport)>;

/// Forks `ranks` processes of this one, which must have no other thread, sets torchrun's variables
/// in them, and waits. Returns 0 if all succeeded; 128 + signal if interrupted. Otherwise stops all
/// ranks and throws the cause: a rank's death, else the first error that no other rank caused. No
/// process outlives the call or the caller.
int launchRanks(int ranks, const LaunchOptions &options, const RankMain &main);

/// As launchRanks, with a thread of this process per rank: starts faster, with less isolation.
void runThreads(int ranks, const LaunchOptions &options, const RankMain &main);

/// Joins a job that another launcher started: through shared memory if all ranks are on this
/// machine, else through TCP at World::master. Collective. If the launcher does not tell which
/// ranks share a machine, asks the ranks and fills in `world`; without a master it throws
/// InvalidArgument naming the variables to set.
std::unique_ptr<Transport> joinJob(World &world, const TransportOptions &options);

/// For a rank that cannot take part in the job: joins it only to fail it, so that the others get
/// `reason` at once. Waits at most `patience` for them. Never throws.
void abortJob(World world, const std::string &reason,
              std::chrono::milliseconds patience = std::chrono::seconds(10)) noexcept;

/// Runs this process's rank of a job that another launcher started. Throws its error; sets
/// `isCause` if this rank should report it, so that N ranks do not print N times.
void runRank(World world, const LaunchOptions &options, const RankMain &main, bool &isCause);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_LAUNCH_LAUNCHER_H
