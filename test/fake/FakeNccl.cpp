//===- FakeNccl.cpp - NCCL between ranks on fake GPUs ---------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#include "test/fake/FakeNcclState.h"
#include "test/fake/FakeReduce.h"

#include <algorithm>
#include <cstring>
#include <utility>

using namespace gridloom::fake;

namespace {

struct Staged {
  Comm *comm;
  Stream *stream;
  Request request;
};
thread_local int groupDepth = 0;
thread_local std::vector<Staged> group;
thread_local std::vector<Comm *> groupAborts;

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
  part.index = index;
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
  part.index = index;
  part.slot = sends ? 0 : 1;
  part.node->requests[part.slot] = request;
  const auto &other = part.node->requests[1 - part.slot];
  if (other && (other->count != request.count || other->type != request.type))
    poison(clique, *part.node,
           part.node->name + ": " + part.node->requests[0]->describe() + " meets " +
               part.node->requests[1]->describe());
}

} // namespace

void gridloom::fake::compute(const Node &node) {
  const Request &first = *node.requests[0];
  size_t bytes = first.count * getTypeBytes(first.type);
  size_t size = node.requests.size();
  auto in = [&](size_t rank) { return static_cast<const std::byte *>(node.requests[rank]->in); };
  auto out = [&](size_t rank) { return static_cast<std::byte *>(node.requests[rank]->out); };
  // copy_n, because a null pointer is allowed for no bytes.
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
      std::copy_n(result.data(), bytes, out(rank));
    return;
  }
  case Kind::AllReduce:
    result.assign(in(0), in(0) + bytes);
    for (size_t rank = 1; rank < size; ++rank)
      reduceInto(result.data(), in(rank), first.count, first.type, first.extra);
    for (size_t rank = 0; rank < size; ++rank)
      std::copy_n(result.data(), bytes, out(rank));
    return;
  case Kind::ReduceScatter:
    result.resize(bytes * size);
    for (size_t part = 0; part < size; ++part) {
      std::copy_n(in(0) + part * bytes, bytes, result.data() + part * bytes);
      for (size_t rank = 1; rank < size; ++rank)
        reduceInto(result.data() + part * bytes, in(rank) + part * bytes, first.count, first.type,
                   first.extra);
    }
    for (size_t rank = 0; rank < size; ++rank)
      std::copy_n(result.data() + rank * bytes, bytes, out(rank));
    return;
  case Kind::AllGather:
    for (size_t rank = 0; rank < size; ++rank)
      result.insert(result.end(), in(rank), in(rank) + bytes);
    for (size_t rank = 0; rank < size; ++rank)
      std::copy_n(result.data(), result.size(), out(rank));
    return;
  case Kind::AllToAll:
    for (size_t rank = 0; rank < size; ++rank)
      result.insert(result.end(), in(rank), in(rank) + bytes * size);
    for (size_t to = 0; to < size; ++to)
      for (size_t from = 0; from < size; ++from)
        std::copy_n(result.data() + (from * size + to) * bytes, bytes, out(to) + from * bytes);
    return;
  }
}

std::vector<Comm *> *gridloom::fake::getGroupAborts() {
  constexpr int firstInGroups = 22200;
  return groupDepth > 0 && state().settings.version >= firstInGroups ? &groupAborts : nullptr;
}

NcclState &gridloom::fake::state() {
  static NcclState instance;
  return instance;
}

//===----------------------------------------------------------------------===//
// Launching
//===----------------------------------------------------------------------===//

namespace {

/// Runs the parts of one launch: all arrive together, and it ends when all are done.
Step run(std::vector<Part> &parts) {
  bool progressed = false;
  bool finished = true;
  {
    std::lock_guard lock(state().mutex);
    for (Part &part : parts) {
      if (part.comm->aborted)
        continue;
      Node &node = *part.node;
      if (node.requests[part.slot]->lost) {
        finished = false;
        continue;
      }
      if (!part.comm->clique->folder.empty()) {
        if (!node.done && runShared(part))
          node.done = progressed = true;
      } else if (!part.arrived) {
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

/// One operation for `calls`, which have the same device and stream. Call with the state locked.
Operation makeOperation(int device, const std::vector<Staged> &calls) {
  auto parts = std::make_shared<std::vector<Part>>();
  std::vector<Access> accesses;
  std::vector<Node *> nodes;
  for (const Staged &call : calls) {
    Part part{call.comm, nullptr, 0, 0};
    (call.request.isTransfer() ? attachTransfer : attachCollective)(part, *call.comm, call.request);
    std::vector<Access> own;
    addAccesses(own, *call.comm, call.request);
    checkOverlap(own, part.node->name);
    accesses.insert(accesses.end(), own.begin(), own.end());
    nodes.push_back(part.node.get());
    ++call.comm->pending;
    state().log.push_back({call.comm->clique->number, call.comm->rank, call.request.isTransfer(),
                           call.request.describe()});
    parts->push_back(std::move(part));
  }
  state().launches[device].push_back(nodes);
  std::string name = parts->front().node->name;
  return {std::move(name), std::move(accesses), [parts] { return run(*parts); }};
}

/// The operation for a capture: each replay makes new operations.
Operation makeCaptured(int device, const std::vector<Staged> &calls) {
  Operation operation{
      kindNames[static_cast<int>(calls.front().request.kind)], {}, [] { return Step::Done; }};
  auto held = std::make_shared<int>();
  for (const Staged &call : calls)
    call.comm->graphs.push_back(held);
  operation.renew = [=] {
    std::lock_guard lock(state().mutex);
    for (const Staged &call : calls)
      isUsable(call.comm, "a graph with an NCCL operation");
    (void)held;
    return makeOperation(device, calls);
  };
  return operation;
}

/// Turns the calls of a group into one launch per stream. Call with the state locked.
std::vector<StreamLaunch> makeLaunches(const std::vector<Staged> &staged) {
  std::vector<Stream *> streams;
  for (const Staged &call : staged)
    if (std::find(streams.begin(), streams.end(), call.stream) == streams.end())
      streams.push_back(call.stream);
  std::vector<StreamLaunch> launches;
  for (Stream *stream : streams) {
    std::vector<Staged> calls;
    std::copy_if(staged.begin(), staged.end(), std::back_inserter(calls),
                 [&](const Staged &call) { return call.stream == stream; });
    launches.push_back(
        {stream, (stream->capture ? makeCaptured : makeOperation)(stream->device, calls)});
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
      comm.numStaged = staged.size();
      return InProgress;
    }
  }
  for (StreamLaunch &launch : launches)
    machine().submit(*launch.stream, std::move(launch.operation));
  return Success;
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
    if (comm->splitting)
      machine().report(std::string(name) + " while its communicator is split");
    if (stream->device != comm->device || machine().getCurrentDevice() != comm->device)
      machine().report(std::string(name) + " with a stream or context of another device");
    bool rooted =
        request.kind == Kind::Broadcast || request.kind == Kind::Send || request.kind == Kind::Recv;
    if (rooted && (request.extra < 0 || request.extra >= comm->clique->size))
      return InvalidArgument;
  }
  Request staged = request;
  if (int result = enterCall(name, stream->number,
                             std::to_string(request.count) + " " + std::to_string(request.type) +
                                 " " + std::to_string(request.extra),
                             &staged.lost))
    return result;
  if (groupDepth > 0) {
    group.push_back({comm, stream, staged});
    return Success;
  }
  return launch({{comm, stream, staged}});
}

} // namespace

//===----------------------------------------------------------------------===//
// Entry points
//===----------------------------------------------------------------------===//

extern "C" {

#define EXPORT GRIDLOOM_FAKE_EXPORT

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
  if (--groupDepth > 0)
    return Success;
  for (Comm *comm : std::exchange(groupAborts, {}))
    awaitKernels(*comm);
  if (group.empty())
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
