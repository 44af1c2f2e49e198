//===- World.h - rank and size of this process ------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_LAUNCH_WORLD_H
#define GRIDLOOM_RUNTIME_LAUNCH_WORLD_H

#include <functional>
#include <optional>
#include <string>

namespace gridloom::rt {

/// A process's place in a job that a launcher started.
struct World {
  int rank = 0, size = 1;
  int localRank = 0, localSize = 1; // on this machine
  /// Where rank and size come from, for messages: "torchrun (RANK, WORLD_SIZE)".
  std::string source;
  /// Identifies the job: equal for its processes, different for other jobs.
  std::string job;
  /// HOST:PORT on rank 0's machine where ranks of several machines meet; empty: unknown.
  std::string master = {};
  /// Whether localRank and localSize are known. If not, joinJob finds them.
  bool isPlaced = true;
};

/// Looks up an environment variable.
using Environment = std::function<std::optional<std::string>(const std::string &name)>;
Environment getProcessEnvironment();

/// Rank and size from the environment: RANK and WORLD_SIZE (torchrun and others), else the
/// variables of Open MPI, Slurm, or MPICH and its kin (Intel MPI, PALS); nothing if none are set.
/// Throws InvalidArgument naming the variables when they are incomplete, out of range, or
/// contradict each other. A launcher nested in another (torchrun under srun) is not a
/// contradiction: TORCHELASTIC_RUN_ID tells.
std::optional<World> detectWorld(const Environment &environment);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_LAUNCH_WORLD_H
