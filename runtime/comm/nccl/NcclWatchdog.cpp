//===- NcclWatchdog.cpp - detect failures NCCL misses ---------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#include "runtime/comm/nccl/NcclWatchdog.h"

#include "runtime/comm/Call.h"
#include "runtime/device/cuda/CudaGraph.h"

#include <algorithm>
#include <exception>
#include <utility>

namespace gridloom::rt {

using namespace std::chrono;

static std::string describe(const OpContext &op) {
  return Operation{op.kind, op.sequence, std::string(op.origin), ""}.describe();
}

/// "communicator world of ranks 0, 1"
static std::string describe(const NcclMember &member) {
  return "communicator " + member.name + " of " + describeRanks(member.ranks);
}

NcclWatchdog::NcclWatchdog(std::shared_ptr<const NcclLibrary> opened,
                           std::shared_ptr<const CudaContext> owner, int rank, NcclOptions given)
    : library(std::move(opened)), context(std::move(owner)), rank(rank), options(std::move(given)),
      thread([this] { run(); }) {}

NcclWatchdog::~NcclWatchdog() { stop(); }

void NcclWatchdog::stop() {
  {
    std::lock_guard lock(mutex);
    stopping = true;
  }
  wake.notify_all();
  if (thread.joinable())
    thread.join();
}

void NcclWatchdog::throwIfFailed() const {
  if (!failed.load(std::memory_order_acquire))
    return;
  std::lock_guard lock(failureMutex);
  throw Error(*failure);
}

void NcclWatchdog::poll() { throwIfFailed(); }

void NcclWatchdog::fail(const Error &error) {
  std::lock_guard lock(failureMutex);
  if (failure)
    return;
  failure = error;
  failed.store(true, std::memory_order_release);
}

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

/// Adds `member` under a key that its ranks agree on and that no earlier communicator had.
void NcclWatchdog::add(NcclMember &member) {
  members.insert(&member);
  int generation = generations[member.name]++;
  member.key = member.name + (generation ? "#" + std::to_string(generation) : "");
}

NcclLateness NcclWatchdog::beginSetup(NcclMember &member) {
  NcclLateness late{"", member.key + " setup", member.ranks, ++member.setups};
  if (options.progress)
    options.progress->publish(rank, late.key, late.number);
  return late;
}

void NcclWatchdog::settle(Lock &lock, NcclMember &member, nccl::Result result,
                          const std::string &what, milliseconds limit, NcclLateness late) {
  // Most calls finish within microseconds; a sleep takes ten times as long.
  constexpr auto quick = microseconds(100);
  auto start = steady_clock::now();
  member.call = what;
  while (result == nccl::SUCCESS || result == nccl::IN_PROGRESS) {
    nccl::Result state = nccl::SUCCESS;
    result = library->commGetAsyncError(member.handle, &state);
    if (result == nccl::SUCCESS && state == nccl::SUCCESS) {
      member.call.clear();
      return;
    }
    if (state != nccl::SUCCESS)
      result = state;
    if (result != nccl::IN_PROGRESS)
      break;
    auto waited = steady_clock::now() - start;
    // Unlock, since the watchdog must be able to abort, and threads of this process may be the
    // peers.
    lock.unlock();
    if (waited > limit) {
      late.text = what + " did not finish within " + std::to_string(limit.count()) + " ms on " +
                  describe(member);
      Error error = explain(late);
      lock.lock();
      throw error;
    }
    if (waited < quick)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(microseconds(20));
    lock.lock();
    throwIfFailed();
  }
  ErrorCode code = result == nccl::REMOTE_ERROR ? ErrorCode::PeerFailed : ErrorCode::Internal;
  throw Error(code, what + " failed on " + describe(member) + ": " +
                        library->describe(result, member.handle));
}

void NcclWatchdog::connect(NcclMember &member,
                           const std::function<nccl::Result(nccl::Comm *)> &start) {
  context->use();
  Lock lock(mutex);
  throwIfFailed();
  add(member);
  const std::string what = "connecting rank " + std::to_string(rank);
  failJobUnless(lock, [&] {
    NcclLateness late = beginSetup(member);
    nccl::Result result = start(&member.handle);
    if (result != nccl::SUCCESS && result != nccl::IN_PROGRESS)
      throw Error(ErrorCode::Internal, what + " failed on " + describe(member) + ": " +
                                           library->describe(result, nullptr));
    settle(lock, member, result, what, options.transport.deadline, std::move(late));
  });
}

/// Ends the job on any error: only invalid arguments leave NCCL's communicators usable, and the
/// plan determines our arguments.
template <typename Body> void NcclWatchdog::failJobUnless(Lock &lock, Body body) {
  try {
    body();
  } catch (const Error &error) {
    lock.unlock();
    abort(error);
    throw;
  }
}

void NcclWatchdog::split(NcclMember &parent, NcclMember &made, int color, nccl::Config &config) {
  context->use();
  Lock lock(mutex);
  throwIfFailed();
  add(made);
  const std::string what = "connecting rank " + std::to_string(rank);
  failJobUnless(lock, [&] {
    NcclLateness late = beginSetup(parent);
    nccl::Result result = library->commSplit(parent.handle, color, rank, &made.handle, &config);
    settle(lock, parent, result, what, options.transport.deadline, late);
    late.ranks = made.ranks;
    if (made.handle)
      settle(lock, made, nccl::SUCCESS, what, options.transport.deadline, std::move(late));
  });
}

void NcclWatchdog::registerMemory(NcclMember &member, const Memory &memory) {
  context->use();
  Lock lock(mutex);
  throwIfFailed();
  NcclRegistration &registration = member.registrations.emplace_back();
  const std::string what = "registering " + std::to_string(memory.bytes) +
                           " bytes (GRIDLOOM_NCCL_REGISTER=0 leaves this out)";
  failJobUnless(lock, [&] {
    NcclLateness late = beginSetup(member);
    nccl::Result result =
        library->commWindowRegister
            ? library->commWindowRegister(member.handle, memory.data, memory.bytes,
                                          &registration.window, nccl::WIN_COLL_SYMMETRIC)
            : library->commRegister(member.handle, memory.data, memory.bytes, &registration.handle);
    settle(lock, member, result, what, options.transport.deadline, std::move(late));
  });
}

/// In a graph NCCL keeps the order only since CUDA 12.9.
bool NcclWatchdog::isOrdered(const CudaStream &stream) const {
  constexpr int firstInGraphs = 12090;
  return library->keepsOrder() &&
         (!stream.getCapture() || context->use().getVersion() >= firstInGraphs);
}

void NcclWatchdog::keepOrder(CudaStream &stream) {
  bool follows = orderStream && orderStream != &stream && orderCapture == stream.getCapture();
  if (!isOrdered(stream) && follows)
    stream.wait(*orderEvent);
}

void NcclWatchdog::noteOrder(CudaStream &stream) {
  if (isOrdered(stream))
    return;
  if (!orderEvent)
    orderEvent = std::make_unique<CudaEvent>(context);
  stream.record(*orderEvent);
  orderStream = &stream;
  orderCapture = stream.getCapture();
}

std::unique_ptr<CudaEvent> NcclWatchdog::takeEvent(NcclMember &member) {
  if (member.idleEvents.empty())
    return std::make_unique<CudaEvent>(context);
  std::unique_ptr<CudaEvent> event = std::move(member.idleEvents.back());
  member.idleEvents.pop_back();
  return event;
}

bool NcclWatchdog::isIdle() const {
  return std::all_of(members.begin(), members.end(),
                     [](const NcclMember *member) { return member->pending.empty(); });
}

void NcclWatchdog::submit(
    NcclMember &member, CudaStream &stream, const OpContext &op, const std::vector<int> &peers,
    const std::function<nccl::Result(nccl::Comm, nccl::NativeStream)> &enqueue) {
  if (stream.getCapture())
    return capture(member, stream, op, peers, enqueue);
  stream.addMonitor(shared_from_this());
  context->use();
  Lock lock(mutex);
  throwIfFailed();
  bool wasIdle = isIdle();
  NcclOperation &operation = member.pending.emplace_back();
  operation.name = describe(op);
  operation.number = member.issued += peers.empty();
  operation.peers = peers;
  operation.begin = takeEvent(member);
  operation.end = takeEvent(member);
  keepOrder(stream);
  stream.record(*operation.begin);
  failJobUnless(lock, [&] {
    nccl::Result result = enqueue(member.handle, stream.getNative());
    settle(lock, member, result, operation.name, options.transport.deadline,
           {"", member.key, member.ranks, operation.number, peers});
  });
  noteOrder(stream);
  stream.record(*operation.end);
  operation.enqueued = true;
  lock.unlock();
  if (wasIdle) // else the thread polls often anyway
    wake.notify_all();
}

//===----------------------------------------------------------------------===//
// Graphs
//===----------------------------------------------------------------------===//

/// The operations of one graph. Events inside a graph are undefined before the graph reaches them,
/// so the whole graph is watched: as one operation of each communicator.
class NcclGraph final : public GraphGuest {
public:
  explicit NcclGraph(std::shared_ptr<NcclWatchdog> watchdog) : watchdog(std::move(watchdog)) {}

  /// Call with the watchdog locked.
  void add(NcclMember &member, const OpContext &op, const std::vector<int> &peers) {
    auto known = std::find_if(parts.begin(), parts.end(),
                              [&](const Part &part) { return part.member == &member; });
    if (known == parts.end())
      known = parts.insert(known, {&member, describe(op), "", 0, 0, {}, ""});
    known->last = describe(op);
    ++known->count;
    known->collectives += peers.empty();
    known->peers.insert(peers.begin(), peers.end());
  }
  bool has(const NcclMember *member) const {
    return !member || std::any_of(parts.begin(), parts.end(),
                                  [&](const Part &part) { return part.member == member; });
  }
  /// Call with the watchdog locked. NCCL does not release a communicator while a graph uses it.
  void discard() {
    discarded = true;
    if (std::shared_ptr<GraphHandles> made = graph.lock())
      made->discard();
  }
  /// Whether the capture is in progress.
  bool isOpen() const { return !entered; }

  void enter(const std::shared_ptr<GraphHandles> &made) override {
    std::lock_guard lock(watchdog->mutex);
    graph = made;
    entered = true;
    for (Part &part : parts)
      part.name = part.describeAll();
    if (discarded || watchdog->failed)
      discard();
  }
  void launch(CudaStream &stream, const std::function<void()> &submit) override;

private:
  struct Part {
    NcclMember *member;
    std::string first, last;
    uint64_t count, collectives;
    std::set<int> peers; // of transfers
    std::string name;    // of all operations, set after the capture

    std::string describeAll() const {
      return count == 1 ? first + " in a graph"
                        : first + " to " + last + ", " + std::to_string(count) +
                              " operations in a graph (run without graphs to see which)";
    }
  };

  std::shared_ptr<NcclWatchdog> watchdog;
  std::weak_ptr<GraphHandles> graph;
  std::vector<Part> parts;
  bool entered = false, discarded = false;
};

void NcclGraph::launch(CudaStream &stream, const std::function<void()> &submit) {
  stream.addMonitor(watchdog);
  watchdog->context->use();
  NcclWatchdog::Lock lock(watchdog->mutex);
  watchdog->throwIfFailed();
  if (discarded)
    throw Error(ErrorCode::Internal, "a graph outlived its communicators");
  bool wasIdle = watchdog->isIdle();
  std::vector<NcclOperation *> operations;
  for (const Part &part : parts) {
    NcclOperation &operation = part.member->pending.emplace_back();
    operation.name = part.name;
    operation.number = part.member->issued += part.collectives;
    if (part.collectives == 0)
      operation.peers.assign(part.peers.begin(), part.peers.end());
    operation.begin = watchdog->takeEvent(*part.member);
    operation.end = watchdog->takeEvent(*part.member);
    stream.record(*operation.begin);
    operations.push_back(&operation);
  }
  try {
    submit();
  } catch (const Error &error) {
    // The peers may have launched their graphs.
    lock.unlock();
    watchdog->abort(error);
    throw;
  }
  for (NcclOperation *operation : operations) {
    stream.record(*operation->end);
    operation->enqueued = true;
  }
  lock.unlock();
  if (wasIdle)
    watchdog->wake.notify_all();
}

/// As submit, for a call that becomes part of a graph.
void NcclWatchdog::capture(
    NcclMember &member, CudaStream &stream, const OpContext &op, const std::vector<int> &peers,
    const std::function<nccl::Result(nccl::Comm, nccl::NativeStream)> &enqueue) {
  context->use();
  Lock lock(mutex);
  throwIfFailed();
  GraphGuest &guest = stream.getCapture()->getGuest(this, [this] {
    auto made = std::make_shared<NcclGraph>(shared_from_this());
    std::erase_if(graphs, [](const auto &known) { return known.expired(); });
    graphs.push_back(made);
    orderStream = nullptr; // earlier events are not in this capture
    return made;
  });
  static_cast<NcclGraph &>(guest).add(member, op, peers);
  keepOrder(stream);
  failJobUnless(lock, [&] {
    nccl::Result result = enqueue(member.handle, stream.getNative());
    settle(lock, member, result, describe(op) + ", captured for a graph (see --no-graphs),",
           options.transport.deadline, {"", member.key, member.ranks, 0, peers});
  });
  noteOrder(stream);
}

/// Discards the graphs with operations of `member`, or all (null). Called with the lock held. False
/// if a capture in progress has such operations.
bool NcclWatchdog::discardGraphs(const NcclMember *member) {
  bool all = true;
  for (const std::weak_ptr<NcclGraph> &known : graphs)
    if (std::shared_ptr<NcclGraph> graph = known.lock(); graph && graph->has(member)) {
      graph->discard();
      all &= !graph->isOpen();
    }
  return all;
}

/// Closes `member` properly, together with its peers, which may still read from this rank's
/// buffers. False if that is not possible.
bool NcclWatchdog::closeOrderly(Lock &lock, NcclMember &member) {
  if (!member.handle || failed || std::uncaught_exceptions() > 0)
    return false;
  try {
    inspect(member);
    if (!member.pending.empty())
      return false;
    for (const NcclRegistration &registration : member.registrations) {
      if (registration.window)
        library->commWindowDeregister(member.handle, registration.window);
      if (registration.handle)
        library->commDeregister(member.handle, registration.handle);
    }
    nccl::Result result = library->commFinalize(member.handle);
    settle(lock, member, result, "closing", std::min(options.transport.deadline, 10000ms),
           {"", member.key, member.ranks, 0});
    library->commDestroy(member.handle);
    member.handle = nullptr;
    return true;
  } catch (const Error &) {
    return false;
  } catch (const NcclLateness &) {
    return false;
  }
}

/// Called after fail.
AbortLimit NcclWatchdog::makeLimit() const {
  return {options.abortLimit, "rank " + std::to_string(rank) + ": " + failure->what()};
}

void NcclWatchdog::close(NcclMember &member) noexcept {
  context->useQuietly();
  Lock lock(mutex);
  discardGraphs(&member);
  if (!closeOrderly(lock, member) && (member.handle || failed)) {
    // Abort all: aborted alone, it would wait for kernels queued behind those of another
    // communicator.
    fail(Error(ErrorCode::PeerFailed,
               describe(member) + " was given up before its operations were done"));
    abortAll(lock);
    // A capture in progress still uses another communicator.
    if (nccl::Comm handle = std::exchange(member.handle, nullptr))
      abortTogether(*library, *context, {&handle, 1}, makeLimit());
  }
  member.pending.clear();
  members.erase(&member);
}

bool NcclWatchdog::abortAll(Lock &lock) {
  aborted.wait(lock, [&] { return !aborting; });
  context->useQuietly();
  // Otherwise this thread, in ncclCommAbort, and the capturing thread would wait for each other;
  // that thread sees the failure at its next call.
  if (!discardGraphs(nullptr))
    return false;
  std::vector<nccl::Comm> handles;
  for (NcclMember *member : members)
    if (nccl::Comm handle = std::exchange(member->handle, nullptr))
      handles.push_back(handle);
  if (handles.empty())
    return true;
  aborting = true;
  lock.unlock();
  abortTogether(*library, *context, handles, makeLimit());
  lock.lock();
  aborting = false;
  aborted.notify_all();
  return true;
}

void NcclWatchdog::tellPeers() {
  {
    std::lock_guard lock(failureMutex);
    if (told)
      return;
    told = true;
  }
  if (options.abortPeers)
    options.abortPeers(failure->what());
}

void NcclWatchdog::abort(const Error &error) {
  fail(error);
  wake.notify_all();
  tellPeers();
}

//===----------------------------------------------------------------------===//
// The watchdog thread
//===----------------------------------------------------------------------===//

Error NcclWatchdog::explain(const NcclLateness &late) const {
  std::vector<int> missing, unknown;
  for (int peer : late.peers.empty() ? late.ranks : late.peers) {
    if (peer == rank)
      continue;
    // After one rank cannot be asked, do not ask the others: each would take as long.
    std::optional<uint64_t> reached;
    bool isAsked = options.progress && late.number > 0 && late.peers.empty() && unknown.empty();
    if (isAsked)
      reached = options.progress->read(peer, late.key);
    if (!reached)
      unknown.push_back(peer);
    else if (*reached < late.number)
      missing.push_back(peer);
  }
  std::string text = late.text;
  if (missing.empty() && unknown.empty())
    text += "; all ranks have reached it, so the network or a GPU is stuck";
  if (!missing.empty())
    text += "; missing: " + describeRanks(missing);
  if (!unknown.empty())
    text += "; rank " + std::to_string(rank) + " waits for " + describeRanks(unknown) +
            (missing.empty() ? "" : " too");
  return Error(ErrorCode::DeadlineExceeded, text);
}

std::string NcclWatchdog::describePending() const {
  const NcclOperation *waiting = nullptr;
  for (const NcclMember *member : members)
    if (!member->pending.empty() && (!waiting || member->pending.front().reached))
      waiting = &member->pending.front();
  if (waiting)
    return waiting->name;
  for (const NcclMember *member : members)
    if (!member->call.empty())
      return member->call + " on " + describe(*member);
  return lastDone.empty() ? "" : "after " + lastDone;
}

void NcclWatchdog::checkDeadline(const NcclMember &member, const NcclOperation &operation) const {
  auto waited = duration_cast<milliseconds>(steady_clock::now() - *operation.reached);
  if (waited < options.transport.deadline)
    return;
  throw NcclLateness{operation.name + " made no progress for " + std::to_string(waited.count()) +
                         " ms (deadline " + std::to_string(options.transport.deadline.count()) +
                         " ms) on " + describe(member),
                     member.key, member.ranks, operation.number, operation.peers};
}

/// Checks the oldest operation; true if it is done and was removed.
bool NcclWatchdog::inspectFront(NcclMember &member) {
  NcclOperation &operation = member.pending.front();
  if (!operation.reached && operation.begin->isDone()) {
    operation.reached = steady_clock::now();
    if (options.progress && operation.peers.empty())
      options.progress->publish(rank, member.key, operation.number);
  }
  if (!operation.enqueued || !operation.end->isDone()) {
    if (operation.reached)
      checkDeadline(member, operation);
    return false;
  }
  lastDone = std::move(operation.name);
  member.idleEvents.push_back(std::move(operation.begin));
  member.idleEvents.push_back(std::move(operation.end));
  member.pending.pop_front();
  return true;
}

void NcclWatchdog::inspect(NcclMember &member) {
  if (!member.handle)
    return;
  nccl::Result state = nccl::SUCCESS;
  nccl::Result result = library->commGetAsyncError(member.handle, &state);
  if (result == nccl::SUCCESS)
    result = state;
  if (result != nccl::SUCCESS && result != nccl::IN_PROGRESS) {
    const std::string what = member.pending.empty() ? "communication" : member.pending.front().name;
    throw Error(ErrorCode::PeerFailed, what + " failed on " + describe(member) + ": " +
                                           library->describe(result, member.handle));
  }
  while (!member.pending.empty() && inspectFront(member))
    ;
}

/// The peers of operations that take longer than `liveness`: before that, a peer that has done its
/// part may leave.
std::vector<int> NcclWatchdog::findAwaited() const {
  std::set<int> ranks;
  for (const NcclMember *member : members)
    if (!member->pending.empty() && member->pending.front().reached &&
        steady_clock::now() - *member->pending.front().reached > options.transport.liveness)
      ranks.insert(member->ranks.begin(), member->ranks.end());
  ranks.erase(rank);
  return {ranks.begin(), ranks.end()};
}

void NcclWatchdog::checkPeers(std::span<const int> awaited) const {
  if (!awaited.empty() && options.checkAwaited)
    options.checkAwaited(awaited);
  else if (options.checkPeers)
    options.checkPeers();
}

/// Checks all members, and peers without the lock; returns the error, if any.
std::optional<Error> NcclWatchdog::inspectAll(Lock &lock) {
  std::optional<NcclLateness> late;
  try {
    context->use();
    for (NcclMember *member : members)
      inspect(*member);
  } catch (const Error &error) {
    return error;
  } catch (const NcclLateness &found) {
    late = found;
  }
  std::vector<int> awaited = findAwaited();
  lock.unlock();
  std::optional<Error> error;
  if (late)
    error = explain(*late);
  else
    try {
      checkPeers(awaited);
    } catch (const Error &caught) {
      error = caught;
    }
  lock.lock();
  if (late || !error)
    return error;
  std::string where = describePending();
  return where.empty() ? *error : Error(where, *error);
}

void NcclWatchdog::run() {
  const TransportOptions &limits = options.transport;
  auto interval = std::clamp(std::min(limits.liveness, limits.deadline) / 20, 1ms, 10ms);
  Lock lock(mutex);
  while (!stopping) {
    if (failed) {
      if (abortAll(lock))
        return;
    } else if (std::optional<Error> error = inspectAll(lock)) {
      lock.unlock();
      abort(*error);
      lock.lock();
      continue;
    }
    wake.wait_for(lock, interval);
  }
}

} // namespace gridloom::rt
