//===- FakeNcclComm.cpp - communicators and memory of the fake NCCL -------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#include "test/fake/FakeNcclState.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <unistd.h>
#include <utility>

using namespace gridloom::fake;

int gridloom::fake::enterCall(const char *name, int stream, const std::string &detail, bool *lost) {
  if (int result = machine().enter(name, stream, detail))
    return result;
  std::lock_guard lock(state().mutex);
  int device = machine().getCurrentDevice();
  auto planted = state().faults.find({device, state().numCalls[device]++});
  if (planted == state().faults.end())
    return Success;
  if (!lost || planted->second == NcclFault::Error)
    return RemoteError;
  *lost = true;
  return Success;
}

//===----------------------------------------------------------------------===//
// Making communicators
//===----------------------------------------------------------------------===//

bool gridloom::fake::isUsable(Comm *comm, const char *call) {
  for (const auto &known : state().comms)
    if (known.get() == comm) {
      if (!comm->aborted && !comm->destroyed)
        return true;
      machine().report(std::string(call) + " after the communicator was " +
                       (comm->aborted ? "aborted" : "destroyed"));
      return false;
    }
  machine().report(std::string(call) + " with a communicator that does not exist");
  return false;
}

int gridloom::fake::join(Comm **made, const std::string &id, int rank, int size, int device) {
  auto &clique = state().cliques[id];
  if (!clique) {
    clique = std::make_shared<Clique>();
    clique->number = state().numCliques++;
    clique->size = size;
    clique->members.resize(static_cast<size_t>(size));
    clique->folder = getSharedFolder(id);
  }
  if (clique->size != size || clique->members[static_cast<size_t>(rank)]) {
    machine().report("two ranks " + std::to_string(rank) + ", or sizes that differ, of one id");
    return InvalidArgument;
  }
  for (Comm *member : clique->members)
    if (member && member->device == device)
      return InvalidUsage; // NCCL: "Duplicate GPU detected"
  auto comm = std::make_unique<Comm>();
  comm->clique = clique;
  comm->rank = rank;
  comm->device = device;
  *made = comm.get();
  clique->members[static_cast<size_t>(rank)] = comm.get();
  state().comms.push_back(std::move(comm));
  machine().track(*made, "nccl communicator of rank " + std::to_string(rank));
  if (std::find(clique->members.begin(), clique->members.end(), nullptr) == clique->members.end())
    for (Comm *member : clique->members)
      member->connected = true;
  state().joined.notify_all();
  return Success;
}

/// NCCL's identity of a rank's GPU.
static std::string getPlace(const Comm &comm) {
  const char *host = std::getenv("NCCL_HOSTID");
  return std::string(host ? host : "") + ":" + std::to_string(comm.device);
}

/// Connected once all ranks have joined, also those of other processes.
static bool isConnected(Comm &comm) {
  std::vector<std::string> marks;
  if (!comm.connected && !comm.clique->folder.empty())
    comm.connected = meetShared(comm, "join", getPlace(comm), marks);
  std::sort(marks.begin(), marks.end());
  if (std::adjacent_find(marks.begin(), marks.end()) != marks.end())
    comm.error = InvalidUsage; // NCCL: "Duplicate GPU detected"
  return comm.connected;
}

bool gridloom::fake::completeSplit(Comm &comm) {
  Clique &parent = *comm.clique;
  Split &splitting = *comm.splitting;
  if (!parent.folder.empty()) {
    const Split::Choice &own = splitting.choices.at(comm.rank);
    std::vector<std::string> marks;
    if (!meetShared(comm, "split" + std::to_string(comm.numSplits),
                    std::to_string(own.color) + " " + std::to_string(own.key), marks))
      return false;
    for (int rank = 0; rank < parent.size; ++rank) {
      char *end = nullptr;
      int color = int(std::strtol(marks[size_t(rank)].c_str(), &end, 10));
      splitting.choices[rank] = {color, int(std::strtol(end, nullptr, 10)), -1};
    }
  }
  if (splitting.choices.size() < size_t(parent.size))
    return false;
  const Split::Choice &own = splitting.choices.at(comm.rank);
  std::vector<std::pair<int, int>> order; // key, rank
  for (const auto &[rank, choice] : splitting.choices)
    if (choice.color == own.color)
      order.emplace_back(choice.key, rank);
  std::sort(order.begin(), order.end());
  auto place = std::find(order.begin(), order.end(), std::pair(own.key, comm.rank));
  std::string parentId;
  for (const auto &[id, clique] : state().cliques)
    if (clique.get() == &parent)
      parentId = id;
  if (own.color >= 0)
    join(comm.split,
         parentId + ".s" + std::to_string(comm.numSplits) + "c" + std::to_string(own.color),
         int(place - order.begin()), int(order.size()), comm.device);
  comm.splitting = nullptr;
  return true;
}

//===----------------------------------------------------------------------===//
// Tests' side
//===----------------------------------------------------------------------===//

void gridloom::fake::awaitKernels(Comm &comm) {
  {
    std::unique_lock lock(state().mutex);
    state().joined.wait(lock, [] { return !state().settings.holdsAborts; });
  }
  machine().await(comm.device, [&] { return comm.pending == 0; });
}

#ifndef GRIDLOOM_FAKE_NCCL_OLD

void gridloom::fake::releaseNcclAborts() {
  std::lock_guard lock(state().mutex);
  state().settings.holdsAborts = false;
  state().joined.notify_all();
}

void gridloom::fake::resetNccl(const NcclSettings &settings) {
  std::lock_guard lock(state().mutex);
  state().settings = settings;
  state().numIds = state().numCliques = 0;
  state().cliques.clear();
  state().comms.clear();
  state().launches.clear();
  state().nodes.clear();
  state().memory.clear();
  state().log.clear();
  state().numCalls.clear();
  state().faults.clear();
}

void gridloom::fake::setNcclError(int rank, int result) {
  std::lock_guard lock(state().mutex);
  for (const auto &comm : state().comms)
    if (comm->rank == rank)
      comm->error = result;
}

std::vector<NcclLogEntry> gridloom::fake::getNcclLog() {
  std::lock_guard lock(state().mutex);
  return state().log;
}

void gridloom::fake::failNcclCall(int device, int number, NcclFault fault) {
  std::lock_guard lock(state().mutex);
  state().faults[{device, number}] = fault;
}

int gridloom::fake::countNcclCalls(int device) {
  std::lock_guard lock(state().mutex);
  return state().numCalls[device];
}

std::vector<std::string> gridloom::fake::findNcclCycles() {
  std::lock_guard lock(state().mutex);
  std::map<Node *, std::set<Node *>> next;
  for (const auto &[device, launches] : state().launches)
    for (size_t i = 0; i + 1 < launches.size(); ++i)
      for (Node *from : launches[i])
        next[from].insert(launches[i + 1].begin(), launches[i + 1].end());

  std::vector<std::string> cycles;
  std::map<Node *, int> mark; // 1: on the path, 2: finished
  std::vector<Node *> path;
  std::function<void(Node *)> visit = [&](Node *node) {
    mark[node] = 1;
    path.push_back(node);
    for (Node *after : next[node]) {
      if (mark[after] == 1) {
        std::string text;
        for (auto it = std::find(path.begin(), path.end(), after); it != path.end(); ++it)
          text += (*it)->name + " -> ";
        cycles.push_back(text + after->name);
      } else if (mark[after] == 0) {
        visit(after);
      }
    }
    path.pop_back();
    mark[node] = 2;
  };
  for (const auto &node : state().nodes)
    if (mark[node.get()] == 0)
      visit(node.get());
  return cycles;
}

#endif

//===----------------------------------------------------------------------===//
// Entry points
//===----------------------------------------------------------------------===//

namespace {

struct UniqueId {
  char bytes[128];
};

struct Config {
  size_t size;
  unsigned magic, version;
  int blocking;
};

constexpr const char *idText = "fake nccl id ";

int getVersion() {
#ifdef GRIDLOOM_FAKE_NCCL_OLD
  return 22000;
#else
  return state().settings.version;
#endif
}

/// Whether this version could be given the configuration.
bool isConfig(const Config *config) {
  return config && config->magic == 0xcafebeef && config->size >= sizeof(Config) &&
         int(config->version) <= getVersion();
}

} // namespace

extern "C" {

#define EXPORT GRIDLOOM_FAKE_EXPORT

EXPORT int ncclGetVersion(int *version) {
  const char *chosen = std::getenv("GRIDLOOM_FAKE_NCCL_VERSION");
  *version = chosen ? int(std::strtol(chosen, nullptr, 10)) : getVersion();
  return Success;
}

EXPORT int ncclGetUniqueId(UniqueId *id) {
  std::lock_guard lock(state().mutex);
  std::string text = idText + std::to_string(getpid()) + "-" + std::to_string(state().numIds++);
  std::memset(id->bytes, 0, sizeof(id->bytes));
  std::memcpy(id->bytes, text.data(), text.size());
  return Success;
}

EXPORT const char *ncclGetErrorString(int result) {
  switch (result) {
  case InvalidArgument:
    return "invalid argument";
  case InvalidUsage:
    return "invalid usage";
  case 6:
    return "remote process exited or there was a network error";
  default:
    return "error of the fake NCCL";
  }
}

EXPORT const char *ncclGetLastError(Comm *) { return ""; }

EXPORT int ncclCommInitRankConfig(Comm **made, int size, UniqueId id, int rank, Config *config) {
  if (int result = enterCall("ncclCommInitRankConfig", -1,
                             std::to_string(rank) + " of " + std::to_string(size)))
    return result;
  std::unique_lock lock(state().mutex);
  std::string text(id.bytes, strnlen(id.bytes, sizeof(id.bytes)));
  if (!text.starts_with(idText) || !isConfig(config) || rank < 0 || rank >= size) {
    machine().report("ncclCommInitRankConfig with an id or a config that is not NCCL's");
    return InvalidArgument;
  }
  std::string name = text.substr(std::strlen(idText));
  if (int result = join(made, name, rank, size, machine().getCurrentDevice()))
    return result;
  if (config->blocking == 0)
    return InProgress;
  Comm *self = *made;
  state().joined.wait(lock, [&] { return isConnected(*self); });
  return Success;
}

EXPORT int ncclCommSplit(Comm *comm, int color, int key, Comm **made, Config *config) {
  if (int result = enterCall("ncclCommSplit", -1, std::to_string(color)))
    return result;
  std::lock_guard lock(state().mutex);
  if (!isUsable(comm, "ncclCommSplit") || !isConfig(config))
    return InvalidArgument;
  if (comm->error != Success)
    return comm->error;
  if (comm->pending > 0)
    machine().report("ncclCommSplit with operations in flight on its parent");
  if (!comm->connected || comm->splitting || machine().getCurrentDevice() != comm->device)
    machine().report("ncclCommSplit of a communicator that is not ready, or of another device");
  auto &splits = comm->clique->splits;
  if (comm->numSplits == splits.size())
    splits.push_back(std::make_shared<Split>());
  comm->splitting = splits[comm->numSplits++];
  comm->splitting->choices[comm->rank] = {color, key, comm->device};
  comm->split = made;
  *made = nullptr;
  return InProgress;
}

EXPORT int ncclCommGetAsyncError(Comm *comm, int *error) {
  std::unique_lock lock(state().mutex);
  if (!isUsable(comm, "ncclCommGetAsyncError"))
    return InvalidArgument;
  if (comm->error != Success) {
    *error = comm->error;
    return Success;
  }
  bool isLastPoll = comm->busy && comm->pollsLeft == 1;
  if (comm->busy && comm->pollsLeft > 0)
    --comm->pollsLeft;
  if (isLastPoll) {
    std::vector<StreamLaunch> launches = std::move(comm->staged);
    comm->staged.clear();
    comm->numStaged = 0;
    lock.unlock();
    for (StreamLaunch &launch : launches)
      machine().submit(*launch.stream, std::move(launch.operation));
    lock.lock();
    comm->busy = false;
  }
  bool isSplit = !comm->splitting || completeSplit(*comm);
  bool closing = false;
  if (comm->finalized)
    for (Comm *member : comm->clique->members)
      closing |= member && !member->aborted && (!member->finalized || member->pending > 0);
  bool shared = !comm->clique->folder.empty();
  *error = isConnected(*comm) && isSplit && !comm->busy && !closing ? Success : InProgress;
  lock.unlock();
  if (shared) // other processes do not report progress
    machine().wakeUp();
  if (closing)
    machine().step();
  return Success;
}

EXPORT int ncclCommFinalize(Comm *comm) {
  machine().enter("ncclCommFinalize");
  std::lock_guard lock(state().mutex);
  if (!isUsable(comm, "ncclCommFinalize"))
    return InvalidArgument;
  if (comm->isInGraph())
    machine().report("ncclCommFinalize waits for ever for a graph that is not destroyed");
  comm->finalized = true;
  return InProgress;
}

EXPORT int ncclCommDestroy(Comm *comm) {
  machine().enter("ncclCommDestroy");
  std::lock_guard lock(state().mutex);
  if (!isUsable(comm, "ncclCommDestroy"))
    return InvalidArgument;
  if (comm->pending > 0)
    machine().report("ncclCommDestroy with operations in flight");
  if (!comm->registrations.empty())
    machine().report("ncclCommDestroy with memory that is still registered");
  comm->destroyed = true;
  leaveShared(*comm);
  machine().untrack(comm, "ncclCommDestroy");
  return Success;
}

EXPORT int ncclCommAbort(Comm *comm) {
  machine().enter("ncclCommAbort");
  {
    std::lock_guard lock(state().mutex);
    if (!isUsable(comm, "ncclCommAbort"))
      return InvalidArgument;
    if (comm->isInGraph())
      machine().report("ncclCommAbort waits for ever for a graph that is not destroyed");
    comm->aborted = true;
    comm->pending -= std::exchange(comm->numStaged, 0); // never launched
    comm->staged.clear();
    leaveShared(*comm);
    machine().untrack(comm, "ncclCommAbort");
  }
  machine().wakeUp();
  if (std::vector<Comm *> *grouped = getGroupAborts())
    grouped->push_back(comm);
  else
    awaitKernels(*comm);
  return Success;
}

#ifndef GRIDLOOM_FAKE_NCCL_OLD

EXPORT int ncclMemAlloc(void **pointer, size_t bytes) {
  if (int result = machine().enter("ncclMemAlloc", -1, std::to_string(bytes)))
    return result;
  *pointer = machine().allocate(bytes);
  if (!*pointer)
    return CudaError;
  std::lock_guard lock(state().mutex);
  state().memory[*pointer] = bytes;
  return Success;
}

EXPORT int ncclMemFree(void *pointer) {
  machine().enter("ncclMemFree");
  std::lock_guard lock(state().mutex);
  if (!state().memory.erase(pointer)) {
    machine().report("ncclMemFree of memory that is not ncclMemAlloc's");
    return InvalidArgument;
  }
  for (const auto &comm : state().comms)
    if (comm->registrations.count(pointer) && !comm->aborted)
      machine().report("ncclMemFree of memory that is still registered");
  return machine().release(static_cast<std::byte *>(pointer), nullptr, "ncclMemFree")
             ? Success
             : InvalidArgument;
}

static int registerBuffer(Comm *comm, void *data, size_t bytes, const char *name) {
  if (int result = enterCall(name, -1, std::to_string(bytes)))
    return result;
  std::lock_guard lock(state().mutex);
  if (!isUsable(comm, name))
    return InvalidArgument;
  auto known = state().memory.find(data);
  if (known == state().memory.end() || known->second < bytes || bytes % 4096) {
    machine().report(std::string(name) + " of memory that is not ncclMemAlloc's, or not pages");
    return InvalidArgument;
  }
  comm->registrations.insert(data);
  return Success;
}

static int deregisterBuffer(Comm *comm, const void *handle, const char *name) {
  machine().enter(name);
  std::lock_guard lock(state().mutex);
  if (isUsable(comm, name) && comm->registrations.erase(handle))
    return Success;
  machine().report(std::string(name) + " of what is not registered");
  return InvalidArgument;
}

EXPORT int ncclCommRegister(Comm *comm, void *data, size_t bytes, void **handle) {
  *handle = data;
  return registerBuffer(comm, data, bytes, "ncclCommRegister");
}

EXPORT int ncclCommDeregister(Comm *comm, void *handle) {
  return deregisterBuffer(comm, handle, "ncclCommDeregister");
}

EXPORT int ncclCommWindowRegister(Comm *comm, void *data, size_t bytes, void **window, int) {
  if (int result = registerBuffer(comm, data, bytes, "ncclCommWindowRegister"))
    return result;
  *window = data;
  std::lock_guard lock(state().mutex);
  auto [first, isFirst] = comm->clique->windowBytes.try_emplace(comm->numWindows++, bytes);
  if (first->second != bytes)
    machine().report("ncclCommWindowRegister of " + std::to_string(bytes) +
                     " bytes, where another rank has " + std::to_string(first->second));
  return Success;
}

EXPORT int ncclCommWindowDeregister(Comm *comm, void *window) {
  return deregisterBuffer(comm, window, "ncclCommWindowDeregister");
}

#endif

} // extern "C"
