//===- World.cpp - rank and size of this process --------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/launch/World.h"

#include "runtime/core/Error.h"

#include <charconv>
#include <cstdlib>
#include <string_view>
#include <unistd.h>

using namespace gridloom::rt;

Environment gridloom::rt::getProcessEnvironment() {
  return [](const std::string &name) -> std::optional<std::string> {
    const char *value = getenv(name.c_str());
    return value ? std::optional<std::string>(value) : std::nullopt;
  };
}

static std::optional<int> readNumber(const Environment &environment, const std::string &name) {
  std::optional<std::string> text = environment(name);
  if (!text)
    return std::nullopt;
  int value = 0;
  auto [end, problem] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (problem != std::errc() || end != text->data() + text->size() || value < 0)
    throw Error(ErrorCode::InvalidArgument,
                "environment variable " + name + "=" + *text + " is not a number");
  return value;
}

namespace {

/// The variables of one launcher.
struct Names {
  const char *launcher, *rank, *size, *localRank, *localSize;
};

constexpr Names torchrun{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr Names openMpi{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                        "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Names slurm{"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", nullptr};
constexpr Names mpich{"MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};

} // namespace

static std::string join(std::initializer_list<std::optional<std::string>> parts) {
  std::string text;
  for (const auto &part : parts)
    text += (text.empty() ? "" : "-") + part.value_or("");
  return text;
}

static void checkBelow(const char *lesser, int value, const char *bound, int limit) {
  if (value >= limit)
    throw Error(ErrorCode::InvalidArgument, std::string(lesser) + "=" + std::to_string(value) +
                                                " must be below " + bound + "=" +
                                                std::to_string(limit));
}

/// Reads one launcher's variables; nothing if neither rank nor size is set.
static std::optional<World> readWorld(const Environment &environment, const Names &names) {
  std::optional<int> rank = readNumber(environment, names.rank);
  std::optional<int> size = readNumber(environment, names.size);
  if (!rank && !size)
    return std::nullopt;
  if (!rank || !size)
    throw Error(ErrorCode::InvalidArgument, std::string("environment variable ") +
                                                (rank ? names.rank : names.size) + " is set but " +
                                                (rank ? names.size : names.rank) +
                                                " is not; set both or neither");
  checkBelow(names.rank, *rank, names.size, *size);
  World world{*rank, *size, *rank, *size, "", "", "", /*isPlaced=*/*size == 1};
  auto localRank = readNumber(environment, names.localRank);
  auto localSize = names.localSize ? readNumber(environment, names.localSize) : std::nullopt;
  if (localRank && names.localSize)
    checkBelow(names.localRank, *localRank, names.localSize, localSize.value_or(*size));
  if (localSize.value_or(0) > *size)
    throw Error(ErrorCode::InvalidArgument, std::string(names.localSize) + "=" +
                                                std::to_string(*localSize) + " must not be above " +
                                                names.size + "=" + std::to_string(*size));
  if (localRank && localSize) {
    world.localRank = *localRank;
    world.localSize = *localSize;
    world.isPlaced = true;
  }
  world.source = std::string(names.launcher) + " (" + names.rank + ", " + names.size + ")";
  return world;
}

static std::optional<World> readTorchrun(const Environment &environment) {
  std::optional<World> world = readWorld(environment, torchrun);
  if (world)
    world->job = join({"torchrun", environment("TORCHELASTIC_RUN_ID"),
                       environment("TORCHELASTIC_RESTART_COUNT"), environment("MASTER_ADDR"),
                       environment("MASTER_PORT")});
  return world;
}

static std::optional<World> readOpenMpi(const Environment &environment) {
  std::optional<World> world = readWorld(environment, openMpi);
  if (!world)
    return world;
  std::optional<std::string> job = environment("PMIX_NAMESPACE");
  if (!job)
    job = environment("OMPI_MCA_ess_base_jobid");
  // The launcher's daemon is the parent of all ranks of a machine.
  world->job = join({"ompi", job ? job : std::to_string(getppid())});
  return world;
}

/// The tasks on node number `node` in "4(x2),2": four on each of the first two nodes, two on the
/// third. If `node` is unknown, the number for all nodes if they are equal, else nothing.
static std::optional<int> findTasksOfNode(const std::string &text, std::optional<int> node) {
  const char *at = text.data(), *end = at + text.size();
  auto read = [&](int &value) {
    auto [next, problem] = std::from_chars(at, end, value);
    at = next;
    return problem == std::errc() && value > 0;
  };
  auto skip = [&](std::string_view part) {
    bool isNext = std::string_view(at, size_t(end - at)).starts_with(part);
    at += isNext ? part.size() : 0;
    return isNext;
  };
  for (int first = 0; at != end;) {
    int tasks = 0, nodes = 1;
    if (!read(tasks) || (skip("(x") && (!read(nodes) || !skip(")"))))
      return std::nullopt;
    bool isLast = at == end;
    if (node ? *node < first + nodes : first == 0 && isLast)
      return tasks;
    if (!isLast && !skip(","))
      return std::nullopt;
    first += nodes;
  }
  return std::nullopt;
}

/// Requires SLURM_STEP_ID, which only srun sets: a batch script has SLURM_PROCID=0 without being a
/// task.
static std::optional<World> readSlurm(const Environment &environment) {
  if (!environment("SLURM_STEP_ID"))
    return std::nullopt;
  std::optional<World> world = readWorld(environment, slurm);
  if (!world)
    return world;
  if (auto tasks = readNumber(environment, "SLURM_STEP_NUM_TASKS"); tasks && *tasks != world->size)
    throw Error(ErrorCode::InvalidArgument,
                "SLURM_NTASKS=" + std::to_string(world->size) + " but SLURM_STEP_NUM_TASKS=" +
                    std::to_string(*tasks) + "; give srun the number of tasks");
  std::optional<int> localRank = readNumber(environment, "SLURM_LOCALID");
  auto perNode = environment("SLURM_STEP_TASKS_PER_NODE");
  std::optional<int> localSize =
      perNode ? findTasksOfNode(*perNode, readNumber(environment, "SLURM_NODEID")) : std::nullopt;
  if (localRank && localSize) {
    checkBelow("SLURM_LOCALID", *localRank, "the node's share of SLURM_STEP_TASKS_PER_NODE",
               *localSize);
    world->localRank = *localRank;
    world->localSize = *localSize;
    world->isPlaced = true;
  }
  world->job = join({"slurm", environment("SLURM_JOB_ID"), environment("SLURM_STEP_ID")});
  return world;
}

/// MPICH's Hydra and its descendants: Intel MPI, MVAPICH, HPE PALS.
static std::optional<World> readMpich(const Environment &environment) {
  std::optional<World> world = readWorld(environment, mpich);
  if (!world) {
    // Otherwise each process would start its own job.
    if (auto rank = environment("PMIX_RANK"))
      throw Error(ErrorCode::InvalidArgument,
                  "PMIX_RANK=" + *rank +
                      " shows that a launcher started this process, but not how many; "
                      "set RANK and WORLD_SIZE, or unset PMIX_RANK to start a job of its own");
    return world;
  }
  for (const char *name : {"PMI_JOBID", "I_MPI_HYDRA_UUID", "PALS_APID", "PMIX_NAMESPACE"})
    if (auto job = environment(name)) {
      world->job = join({"mpich", job});
      return world;
    }
  // The launcher's proxy is the parent of all ranks of a machine; each machine has its own.
  bool isOneMachine = world->isPlaced && world->localSize == world->size;
  world->job = isOneMachine
                   ? join({"mpich", std::to_string(getppid())})
                   : join({"mpich", environment("MASTER_ADDR"), environment("MASTER_PORT")});
  return world;
}

/// MASTER_ADDR and MASTER_PORT, as torchrun or the user sets them. If torchrun itself listens
/// there, which it indicates, uses the next port.
static std::string readMaster(const Environment &environment) {
  std::optional<std::string> address = environment("MASTER_ADDR");
  std::optional<int> port = readNumber(environment, "MASTER_PORT");
  if (!address || !port)
    return "";
  bool isTaken = environment("TORCHELASTIC_USE_AGENT_STORE") == std::optional<std::string>("True");
  const int lastPort = isTaken ? 65534 : 65535;
  if (*port < 1 || *port > lastPort)
    throw Error(ErrorCode::InvalidArgument,
                "environment variable MASTER_PORT=" + std::to_string(*port) + " is not from 1 to " +
                    std::to_string(lastPort) +
                    (isTaken ? "; torchrun listens there, and ranks meet at the next port" : ""));
  return *address + ":" + std::to_string(*port + (isTaken ? 1 : 0));
}

static void refuseContradiction(const World &first, const World &second) {
  if (first.rank == second.rank && first.size == second.size)
    return;
  auto describe = [](const World &world) {
    return world.source + " says rank " + std::to_string(world.rank) + " of " +
           std::to_string(world.size);
  };
  throw Error(ErrorCode::InvalidArgument,
              describe(first) + " but " + describe(second) +
                  "; unset the variables of the launcher that did not start this process");
}

static std::optional<World> findWorld(const Environment &environment) {
  std::optional<World> found = readTorchrun(environment);
  // torchrun sets TORCHELASTIC_RUN_ID; it may itself be one task per machine of mpirun or srun.
  if (found && environment("TORCHELASTIC_RUN_ID"))
    return found;
  for (auto read : {readOpenMpi, readSlurm, readMpich}) {
    // PMIX_RANK beside another launcher's variables belongs to that launcher.
    if (found && read == readMpich && !environment("PMI_RANK"))
      continue;
    std::optional<World> other = read(environment);
    if (!other)
      continue;
    // An interactive shell may be a task of size 1 itself, which launched nothing.
    if (other->size == 1)
      continue;
    if (found)
      refuseContradiction(*found, *other);
    else
      found = other;
  }
  return found;
}

std::optional<World> gridloom::rt::detectWorld(const Environment &environment) {
  std::optional<World> world = findWorld(environment);
  if (world)
    world->master = readMaster(environment);
  return world;
}
