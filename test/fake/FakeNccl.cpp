//===- FakeNccl.cpp - NCCL between threads of one process -----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#include "test/fake/FakeNccl.h"

#include "test/fake/FakeMachine.h"
#include "test/fake/FakeReduce.h"

#include <algorithm>
#include <climits>
#include <cstring>
#include <utility>

using namespace gridloom::fake;

namespace {

enum Result : int {
  Success = 0,
  InternalError = 3,
  InvalidArgument = 4,
  InvalidUsage = 5,
  InProgress = 7,
};

enum class Kind { AllReduce, AllGather, ReduceScatter, AllToAll, Broadcast, Send, Recv };
constexpr const char *kindNames[] = {"ncclAllReduce", "ncclAllGather", "ncclReduceScatter",
                                     "ncclAlltoAll",  "ncclBroadcast", "ncclSend",
                                     "ncclRecv"};

/// One call of one rank. `extra` is the reduction, the root or the peer.
struct Request {
  Kind kind;
  const void *in;
  void *out;
  size_t count;
  int type;
  int extra;

  std::string describe() const {
    return std::string(kindNames[static_cast<int>(kind)]) + " of " + std::to_string(count) +
           " elements of type " + std::to_string(type) + ", " + std::to_string(extra);
  }
};

struct Comm;

/// An operation that several ranks take part in: a collective, or a send and its receive.
struct Node {
  std::string name;
  std::vector<std::optional<Request>> requests; // by rank; send, receive
  size_t arrived = 0;
  bool done = false;
  bool poisoned = false;
};

struct Clique {
  int number = 0;
  int size = 0;
  std::vector<Comm *> members;
  std::vector<std::shared_ptr<Node>> collectives;
  std::map<std::pair<int, int>, std::vector<std::shared_ptr<Node>>> transfers;
};

/// A rank's part in a node.
struct Part {
  Comm *comm;
  std::shared_ptr<Node> node;
  size_t slot;
  bool arrived = false;
};

struct StreamLaunch {
  Stream *stream;
  Operation operation;
};

struct Comm {
  std::shared_ptr<Clique> clique;
  int rank = 0;
  int device = 0;
  int error = Success;
  bool connected = false;
  bool aborted = false;
  bool finalized = false;
  bool destroyed = false;
  size_t pending = 0;
  size_t numCollectives = 0;
  std::map<std::pair<int, int>, size_t> numSends, numRecvs;
  int pollsLeft = 0;
  bool busy = false; // the last call is not on its stream yet
  std::vector<StreamLaunch> staged;
};

struct State {
  std::mutex mutex;
  std::condition_variable joined;
  NcclSettings settings;
  int numIds = 0;
  std::map<int, std::shared_ptr<Clique>> cliques;
  std::vector<std::unique_ptr<Comm>> comms;
  // Per device, what was launched in order; a launch is the nodes that progress together.
  std::map<int, std::vector<std::vector<Node *>>> launches;
  std::vector<std::shared_ptr<Node>> nodes;
};

struct Staged {
  Comm *comm;
  Stream *stream;
  Request request;
};
thread_local int groupDepth = 0;
thread_local std::vector<Staged> group;

State &state() {
  static State instance;
  return instance;
}
Machine &machine() { return Machine::get(); }

//===----------------------------------------------------------------------===//
// Matching and computing
//===----------------------------------------------------------------------===//

void poison(Clique &clique, Node &node, const std::string &finding) {
  machine().report(finding);
  node.poisoned = true;
  for (Comm *member : clique.members)
    if (member)
      member->error = InvalidUsage;
}

void attachCollective(Part &part, Comm &comm, const Request &request) {
  Clique &clique = *comm.clique;
  size_t index = comm.numCollectives++;
  if (index == clique.collectives.size()) {
    auto node = std::make_shared<Node>();
    node->name = std::string(kindNames[static_cast<int>(request.kind)]) + " #" +
                 std::to_string(index) + " of communicator " + std::to_string(clique.number);
    node->requests.resize(static_cast<size_t>(clique.size));
    state().nodes.push_back(node);
    clique.collectives.push_back(node);
  }
  part.node = clique.collectives[index];
  part.slot = static_cast<size_t>(comm.rank);
  for (size_t other = 0; other < part.node->requests.size(); ++other) {
    const auto &known = part.node->requests[other];
    if (known && known->describe() != request.describe()) {
      poison(clique, *part.node,
             "rank " + std::to_string(comm.rank) + " calls " + request.describe() +
                 " as operation #" + std::to_string(index) + " of communicator " +
                 std::to_string(clique.number) + ", where rank " + std::to_string(other) +
                 " calls " + known->describe());
      break;
    }
  }
  part.node->requests[part.slot] = request;
}

void attachTransfer(Part &part, Comm &comm, const Request &request) {
  Clique &clique = *comm.clique;
  bool sends = request.kind == Kind::Send;
  std::pair<int, int> route =
      sends ? std::pair(comm.rank, request.extra) : std::pair(request.extra, comm.rank);
  size_t index = sends ? comm.numSends[route]++ : comm.numRecvs[route]++;
  auto &transfers = clique.transfers[route];
  if (index == transfers.size()) {
    auto node = std::make_shared<Node>();
    node->name = "transfer #" + std::to_string(index) + " from " + std::to_string(route.first) +
                 " to " + std::to_string(route.second) + " of communicator " +
                 std::to_string(clique.number);
    node->requests.resize(2);
    state().nodes.push_back(node);
    transfers.push_back(node);
  }
  part.node = transfers[index];
  part.slot = sends ? 0 : 1;
  part.node->requests[part.slot] = request;
  const auto &other = part.node->requests[1 - part.slot];
  if (other && (other->count != request.count || other->type != request.type))
    poison(clique, *part.node,
           part.node->name + ": " + part.node->requests[0]->describe() + " meets " +
               part.node->requests[1]->describe());
}

void compute(Node &node) {
  const Request &first = *node.requests[0];
  size_t bytes = first.count * getTypeBytes(first.type);
  size_t size = node.requests.size();
  auto in = [&](size_t rank) { return static_cast<const std::byte *>(node.requests[rank]->in); };
  auto out = [&](size_t rank) { return static_cast<std::byte *>(node.requests[rank]->out); };
  std::vector<std::byte> result;
  switch (first.kind) {
  case Kind::Send:
    std::memmove(out(1), in(0), bytes);
    return;
  case Kind::Recv:
    return;
  case Kind::Broadcast: {
    auto root = static_cast<size_t>(first.extra);
    result.assign(in(root), in(root) + bytes);
    for (size_t rank = 0; rank < size; ++rank)
      std::memcpy(out(rank), result.data(), bytes);
    return;
  }
  case Kind::AllReduce:
    result.assign(in(0), in(0) + bytes);
    for (size_t rank = 1; rank < size; ++rank)
      reduceInto(result.data(), in(rank), first.count, first.type, first.extra);
    for (size_t rank = 0; rank < size; ++rank)
      std::memcpy(out(rank), result.data(), bytes);
    return;
  case Kind::ReduceScatter:
    result.resize(bytes * size);
    for (size_t part = 0; part < size; ++part) {
      std::memcpy(result.data() + part * bytes, in(0) + part * bytes, bytes);
      for (size_t rank = 1; rank < size; ++rank)
        reduceInto(result.data() + part * bytes, in(rank) + part * bytes, first.count, first.type,
                   first.extra);
    }
    for (size_t rank = 0; rank < size; ++rank)
      std::memcpy(out(rank), result.data() + rank * bytes, bytes);
    return;
  case Kind::AllGather:
    for (size_t rank = 0; rank < size; ++rank)
      result.insert(result.end(), in(rank), in(rank) + bytes);
    for (size_t rank = 0; rank < size; ++rank)
      std::memcpy(out(rank), result.data(), result.size());
    return;
  case Kind::AllToAll:
    for (size_t rank = 0; rank < size; ++rank)
      result.insert(result.end(), in(rank), in(rank) + bytes * size);
    for (size_t to = 0; to < size; ++to)
      for (size_t from = 0; from < size; ++from)
        std::memcpy(out(to) + from * bytes, result.data() + (from * size + to) * bytes, bytes);
    return;
  }
}

//===----------------------------------------------------------------------===//
// Launching
//===----------------------------------------------------------------------===//

/// Runs the parts of one launch: all of them arrive together, and it is done when all of them are.
Step run(std::vector<Part> &parts) {
  bool progressed = false;
  bool finished = true;
  {
    std::lock_guard lock(state().mutex);
    for (Part &part : parts) {
      if (part.comm->aborted)
        continue;
      Node &node = *part.node;
      if (!part.arrived) {
        part.arrived = true;
        ++node.arrived;
        if (node.arrived == node.requests.size() && !node.poisoned) {
          compute(node);
          node.done = progressed = true;
        }
      }
      finished &= node.done;
    }
    if (finished)
      for (Part &part : parts)
        --part.comm->pending;
  }
  if (progressed)
    machine().wakeUp();
  return finished ? Step::Done : Step::Blocked;
}

void addAccesses(std::vector<Access> &accesses, const Comm &comm, const Request &request) {
  size_t bytes = request.count * getTypeBytes(request.type);
  size_t all = bytes * static_cast<size_t>(comm.clique->size);
  auto reads = [&](size_t size) { accesses.push_back({request.in, size, false}); };
  auto writes = [&](size_t size) { accesses.push_back({request.out, size, true}); };
  switch (request.kind) {
  case Kind::AllReduce:
    reads(bytes);
    writes(bytes);
    break;
  case Kind::AllGather:
    reads(bytes);
    writes(all);
    break;
  case Kind::ReduceScatter:
    reads(all);
    writes(bytes);
    break;
  case Kind::AllToAll:
    reads(all);
    writes(all);
    break;
  case Kind::Broadcast:
    if (comm.rank == request.extra)
      reads(bytes);
    writes(bytes);
    break;
  case Kind::Send:
    reads(bytes);
    break;
  case Kind::Recv:
    writes(bytes);
    break;
  }
}

void checkOverlap(const std::vector<Access> &accesses, const std::string &name) {
  if (accesses.size() != 2 || accesses[0].data == accesses[1].data)
    return;
  auto *in = static_cast<const std::byte *>(accesses[0].data);
  auto *out = static_cast<const std::byte *>(accesses[1].data);
  if (in < out + accesses[1].bytes && out < in + accesses[0].bytes &&
      accesses[0].bytes >= accesses[1].bytes)
    machine().report(name + " has buffers that overlap partially");
}

/// Turns the calls of a group into one launch per stream. With the state locked.
std::vector<StreamLaunch> makeLaunches(const std::vector<Staged> &staged) {
  std::vector<Stream *> streams;
  for (const Staged &call : staged)
    if (std::find(streams.begin(), streams.end(), call.stream) == streams.end())
      streams.push_back(call.stream);
  std::vector<StreamLaunch> launches;
  for (Stream *stream : streams) {
    auto parts = std::make_shared<std::vector<Part>>();
    std::vector<Access> accesses;
    std::vector<Node *> nodes;
    for (const Staged &call : staged) {
      if (call.stream != stream)
        continue;
      Part part{call.comm, nullptr, 0};
      bool transfer = call.request.kind == Kind::Send || call.request.kind == Kind::Recv;
      (transfer ? attachTransfer : attachCollective)(part, *call.comm, call.request);
      std::vector<Access> own;
      addAccesses(own, *call.comm, call.request);
      checkOverlap(own, part.node->name);
      accesses.insert(accesses.end(), own.begin(), own.end());
      nodes.push_back(part.node.get());
      ++call.comm->pending;
      parts->push_back(std::move(part));
    }
    state().launches[stream->device].push_back(nodes);
    std::string name = parts->front().node->name;
    launches.push_back(
        {stream, {std::move(name), std::move(accesses), [parts] { return run(*parts); }}});
  }
  return launches;
}

int launch(std::vector<Staged> staged) {
  std::vector<StreamLaunch> launches;
  {
    std::lock_guard lock(state().mutex);
    launches = makeLaunches(staged);
    if (state().settings.polls > 0) {
      Comm &comm = *staged.front().comm;
      comm.busy = true;
      comm.pollsLeft = state().settings.polls;
      comm.staged = std::move(launches);
      return InProgress;
    }
  }
  for (StreamLaunch &launch : launches)
    machine().submit(*launch.stream, std::move(launch.operation));
  return Success;
}

bool isUsable(Comm *comm, const char *call) {
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

int call(Comm *comm, void *streamHandle, const Request &request) {
  const char *name = kindNames[static_cast<int>(request.kind)];
  Stream *stream = machine().checkStream(streamHandle, name);
  {
    std::lock_guard lock(state().mutex);
    if (!stream || !isUsable(comm, name))
      return InvalidArgument;
    if (comm->error != Success)
      return comm->error;
    if (!comm->connected)
      machine().report(std::string(name) + " before the communicator is connected");
    if (comm->busy)
      machine().report(std::string(name) + " while the call before it is in progress");
    if (comm->finalized)
      machine().report(std::string(name) + " after ncclCommFinalize");
    if (stream->device != comm->device || machine().getCurrentDevice() != comm->device)
      machine().report(std::string(name) + " with a stream or context of another device");
    bool rooted =
        request.kind == Kind::Broadcast || request.kind == Kind::Send || request.kind == Kind::Recv;
    if (rooted && (request.extra < 0 || request.extra >= comm->clique->size))
      return InvalidArgument;
  }
  if (int result =
          machine().enter(name, stream->number,
                          std::to_string(request.count) + " " + std::to_string(request.type) + " " +
                              std::to_string(request.extra)))
    return result;
  if (groupDepth > 0) {
    group.push_back({comm, stream, request});
    return Success;
  }
  return launch({{comm, stream, request}});
}

} // namespace

//===----------------------------------------------------------------------===//
// Tests' side
//===----------------------------------------------------------------------===//

#ifndef GRIDLOOM_FAKE_NCCL_OLD

void gridloom::fake::resetNccl(const NcclSettings &settings) {
  std::lock_guard lock(state().mutex);
  state().settings = settings;
  state().numIds = 0;
  state().cliques.clear();
  state().comms.clear();
  state().launches.clear();
  state().nodes.clear();
}

void gridloom::fake::setNcclError(int rank, int result) {
  std::lock_guard lock(state().mutex);
  for (const auto &comm : state().comms)
    if (comm->rank == rank)
      comm->error = result;
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

} // namespace

extern "C" {

#define EXPORT GRIDLOOM_FAKE_EXPORT

EXPORT int ncclGetVersion(int *version) {
#ifdef GRIDLOOM_FAKE_NCCL_OLD
  *version = 22000;
#else
  *version = state().settings.version;
#endif
  return Success;
}

EXPORT int ncclGetUniqueId(UniqueId *id) {
  std::lock_guard lock(state().mutex);
  std::string text = idText + std::to_string(state().numIds++);
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
  if (int result = machine().enter("ncclCommInitRankConfig", -1,
                                   std::to_string(rank) + " of " + std::to_string(size)))
    return result;
  std::unique_lock lock(state().mutex);
  std::string text(id.bytes, strnlen(id.bytes, sizeof(id.bytes)));
  if (!text.starts_with(idText) || config->magic != 0xcafebeef || config->size < sizeof(Config) ||
      rank < 0 || rank >= size) {
    machine().report("ncclCommInitRankConfig with an id or a config that is not NCCL's");
    return InvalidArgument;
  }
  int number = std::atoi(text.c_str() + std::strlen(idText));
  auto &clique = state().cliques[number];
  if (!clique) {
    clique = std::make_shared<Clique>();
    clique->number = number;
    clique->size = size;
    clique->members.resize(static_cast<size_t>(size));
  }
  if (clique->size != size || clique->members[static_cast<size_t>(rank)]) {
    machine().report("two ranks " + std::to_string(rank) + ", or sizes that differ, of one id");
    return InvalidArgument;
  }
  auto comm = std::make_unique<Comm>();
  comm->clique = clique;
  comm->rank = rank;
  comm->device = machine().getCurrentDevice();
  for (Comm *member : clique->members)
    if (member && member->device == comm->device)
      return InvalidUsage; // NCCL: "Duplicate GPU detected"
  *made = comm.get();
  clique->members[static_cast<size_t>(rank)] = comm.get();
  state().comms.push_back(std::move(comm));
  machine().track(*made, "nccl communicator of rank " + std::to_string(rank));
  bool complete =
      std::find(clique->members.begin(), clique->members.end(), nullptr) == clique->members.end();
  if (complete)
    for (Comm *member : clique->members)
      member->connected = true;
  state().joined.notify_all();
  if (config->blocking == 0)
    return InProgress;
  Comm *self = *made;
  state().joined.wait(lock, [&] { return self->connected; });
  return Success;
}

EXPORT int ncclCommGetAsyncError(Comm *comm, int *error) {
  std::unique_lock lock(state().mutex);
  if (!isUsable(comm, "ncclCommGetAsyncError"))
    return InvalidArgument;
  if (comm->error != Success) {
    *error = comm->error;
    return Success;
  }
  if (comm->busy && comm->pollsLeft > 0 && --comm->pollsLeft == 0) {
    std::vector<StreamLaunch> launches = std::move(comm->staged);
    comm->staged.clear();
    lock.unlock();
    for (StreamLaunch &launch : launches)
      machine().submit(*launch.stream, std::move(launch.operation));
    lock.lock();
    comm->busy = false;
  }
  bool closing = false;
  if (comm->finalized)
    for (Comm *member : comm->clique->members)
      closing |= member && !member->aborted && (!member->finalized || member->pending > 0);
  *error = comm->connected && !comm->busy && !closing ? Success : InProgress;
  lock.unlock();
  if (closing)
    machine().step();
  return Success;
}

EXPORT int ncclCommFinalize(Comm *comm) {
  machine().enter("ncclCommFinalize");
  std::lock_guard lock(state().mutex);
  if (!isUsable(comm, "ncclCommFinalize"))
    return InvalidArgument;
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
  comm->destroyed = true;
  machine().untrack(comm, "ncclCommDestroy");
  return Success;
}

EXPORT int ncclCommAbort(Comm *comm) {
  machine().enter("ncclCommAbort");
  {
    std::lock_guard lock(state().mutex);
    if (!isUsable(comm, "ncclCommAbort"))
      return InvalidArgument;
    comm->aborted = true;
    machine().untrack(comm, "ncclCommAbort");
  }
  machine().wakeUp();
  return Success;
}

EXPORT int ncclGroupStart() {
  machine().enter("ncclGroupStart");
  ++groupDepth;
  return Success;
}

EXPORT int ncclGroupEnd() {
  machine().enter("ncclGroupEnd");
  if (groupDepth == 0) {
    machine().report("ncclGroupEnd without ncclGroupStart");
    return InvalidUsage;
  }
  if (--groupDepth > 0 || group.empty())
    return Success;
  return launch(std::exchange(group, {}));
}

EXPORT int ncclAllReduce(const void *in, void *out, size_t count, int type, int operation,
                         Comm *comm, void *stream) {
  return call(comm, stream, {Kind::AllReduce, in, out, count, type, operation});
}
EXPORT int ncclAllGather(const void *in, void *out, size_t count, int type, Comm *comm,
                         void *stream) {
  return call(comm, stream, {Kind::AllGather, in, out, count, type, 0});
}
EXPORT int ncclReduceScatter(const void *in, void *out, size_t count, int type, int operation,
                             Comm *comm, void *stream) {
  return call(comm, stream, {Kind::ReduceScatter, in, out, count, type, operation});
}
EXPORT int ncclBroadcast(const void *in, void *out, size_t count, int type, int root, Comm *comm,
                         void *stream) {
  return call(comm, stream, {Kind::Broadcast, in, out, count, type, root});
}
EXPORT int ncclSend(const void *in, size_t count, int type, int peer, Comm *comm, void *stream) {
  return call(comm, stream, {Kind::Send, in, nullptr, count, type, peer});
}
EXPORT int ncclRecv(void *out, size_t count, int type, int peer, Comm *comm, void *stream) {
  return call(comm, stream, {Kind::Recv, nullptr, out, count, type, peer});
}
#ifndef GRIDLOOM_FAKE_NCCL_OLD
EXPORT int ncclAlltoAll(const void *in, void *out, size_t count, int type, Comm *comm,
                        void *stream) {
  return call(comm, stream, {Kind::AllToAll, in, out, count, type, 0});
}
#endif

} // extern "C"
