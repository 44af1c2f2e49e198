//===- NcclWatchdog.cpp - notices what NCCL does not ----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#include "runtime/comm/nccl/NcclWatchdog.h"

#include <algorithm>
#include <exception>

namespace gridloom::rt {

using namespace std::chrono;

static std::string join(std::span<const int> ranks) {
  std::string text;
  for (int rank : ranks)
    text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

static std::string describe(const OpContext &op) {
  std::string text = std::string(op.kind) + " #" + std::to_string(op.sequence);
  if (!op.origin.empty())
    text.append(" (onnx node ").append(op.origin).append(")");
  return text;
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
  if (failure)
    throw Error(*failure);
}

void NcclWatchdog::poll() {
  if (!failed.load(std::memory_order_acquire))
    return;
  std::lock_guard lock(mutex);
  throwIfFailed();
}

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

void NcclWatchdog::settle(Lock &lock, NcclMember &member, nccl::Result result,
                          const std::string &what, milliseconds limit) {
  auto start = steady_clock::now();
  while (result == nccl::SUCCESS || result == nccl::IN_PROGRESS) {
    nccl::Result state = nccl::SUCCESS;
    result = library->commGetAsyncError(member.handle, &state);
    if (result == nccl::SUCCESS && state == nccl::SUCCESS)
      return;
    if (state != nccl::SUCCESS)
      result = state;
    if (result != nccl::IN_PROGRESS)
      break;
    if (steady_clock::now() - start > limit)
      throw Error(ErrorCode::DeadlineExceeded,
                  what + " did not finish within " + std::to_string(limit.count()) +
                      " ms on communicator " + member.name + " of ranks " + join(member.ranks) +
                      describeMissing(member, member.issued));
    // The watchdog must get in to abort, and threads of this process may be the peers.
    lock.unlock();
    std::this_thread::sleep_for(microseconds(20));
    lock.lock();
    throwIfFailed();
  }
  ErrorCode code = result == nccl::REMOTE_ERROR ? ErrorCode::PeerFailed : ErrorCode::Internal;
  throw Error(code, what + " failed on communicator " + member.name + " of ranks " +
                        join(member.ranks) + ": " + library->describe(result, member.handle));
}

void NcclWatchdog::connect(NcclMember &member,
                           const std::function<nccl::Result(nccl::Comm *)> &start) {
  context->use();
  Lock lock(mutex);
  throwIfFailed();
  members.insert(&member);
  const std::string what = "connecting rank " + std::to_string(rank);
  try {
    nccl::Result result = start(&member.handle);
    if (result != nccl::SUCCESS && result != nccl::IN_PROGRESS)
      throw Error(ErrorCode::Internal, what + " failed on communicator " + member.name +
                                           " of ranks " + join(member.ranks) + ": " +
                                           library->describe(result, nullptr));
    settle(lock, member, result, what, options.transport.deadline);
  } catch (const Error &error) {
    abortLocked(error);
    members.erase(&member);
    lock.unlock();
    tellPeers();
    throw;
  }
}

std::unique_ptr<CudaEvent> NcclWatchdog::takeEvent(NcclMember &member) {
  if (member.idleEvents.empty())
    return std::make_unique<CudaEvent>(context);
  std::unique_ptr<CudaEvent> event = std::move(member.idleEvents.back());
  member.idleEvents.pop_back();
  return event;
}

void NcclWatchdog::submit(
    NcclMember &member, CudaStream &stream, const OpContext &op,
    const std::function<nccl::Result(nccl::Comm, nccl::NativeStream)> &enqueue) {
  stream.addMonitor(shared_from_this());
  context->use();
  Lock lock(mutex);
  throwIfFailed();
  NcclOperation &operation = member.pending.emplace_back();
  operation.name = describe(op);
  operation.number = ++member.issued;
  operation.begin = takeEvent(member);
  operation.end = takeEvent(member);
  stream.record(*operation.begin);
  try {
    nccl::Result result = enqueue(member.handle, stream.getNative());
    settle(lock, member, result, operation.name, options.transport.deadline);
  } catch (const Error &error) {
    // Of all NCCL errors only an invalid argument leaves communicators usable, and our arguments
    // are the plan's: nothing can go on.
    abortLocked(error);
    lock.unlock();
    tellPeers();
    throw;
  }
  stream.record(*operation.end);
  operation.enqueued = true;
  lock.unlock();
  wake.notify_all();
}

/// Whether `member` could be given up in order: peers may still read from this rank's buffers, so
/// they close with it.
bool NcclWatchdog::closeOrderly(Lock &lock, NcclMember &member) {
  if (!member.handle || failure || std::uncaught_exceptions() > 0)
    return false;
  try {
    inspect(member);
    if (!member.pending.empty())
      return false;
    nccl::Result result = library->commFinalize(member.handle);
    settle(lock, member, result, "closing", std::min(options.transport.deadline, 10000ms));
    library->commDestroy(member.handle);
    member.handle = nullptr;
    return true;
  } catch (const Error &) {
    return false;
  }
}

void NcclWatchdog::close(NcclMember &member) noexcept {
  context->useQuietly();
  Lock lock(mutex);
  if (!closeOrderly(lock, member) && member.handle)
    library->commAbort(member.handle);
  member.handle = nullptr;
  member.pending.clear();
  members.erase(&member);
}

void NcclWatchdog::abortLocked(const Error &error) {
  if (failure)
    return;
  failure = error;
  failed.store(true, std::memory_order_release);
  context->useQuietly();
  for (NcclMember *member : members) {
    if (member->handle)
      library->commAbort(member->handle);
    member->handle = nullptr;
  }
}

void NcclWatchdog::tellPeers() {
  std::string reason;
  {
    std::lock_guard lock(mutex);
    if (told)
      return;
    told = true;
    reason = failure->what();
  }
  if (options.abortPeers)
    options.abortPeers(reason);
}

void NcclWatchdog::abort(const Error &error) {
  {
    std::lock_guard lock(mutex);
    abortLocked(error);
  }
  tellPeers();
}

//===----------------------------------------------------------------------===//
// The watchdog thread
//===----------------------------------------------------------------------===//

std::string NcclWatchdog::describeMissing(const NcclMember &member, uint64_t number) const {
  std::vector<int> missing;
  for (int peer : member.ranks)
    if (peer != rank && (!options.progress || options.progress->read(peer, member.name) < number))
      missing.push_back(peer);
  if (missing.empty())
    return "; all ranks have reached it, so the network or a GPU is stuck";
  std::string text = missing.size() == 1 ? "rank " : "ranks ";
  text += join(missing);
  return options.progress ? "; missing: " + text
                          : "; rank " + std::to_string(rank) + " waits for " + text;
}

void NcclWatchdog::checkDeadline(const NcclMember &member, const NcclOperation &operation) const {
  auto waited = duration_cast<milliseconds>(steady_clock::now() - *operation.reached);
  if (waited < options.transport.deadline)
    return;
  throw Error(ErrorCode::DeadlineExceeded,
              operation.name + " made no progress for " + std::to_string(waited.count()) +
                  " ms (deadline " + std::to_string(options.transport.deadline.count()) +
                  " ms) on communicator " + member.name + " of ranks " + join(member.ranks) +
                  describeMissing(member, operation.number));
}

/// Looks at the oldest operation; true when it is done and dropped.
bool NcclWatchdog::inspectFront(NcclMember &member) {
  NcclOperation &operation = member.pending.front();
  if (!operation.reached && operation.begin->isDone()) {
    operation.reached = steady_clock::now();
    if (options.progress)
      options.progress->publish(rank, member.name, operation.number);
  }
  if (!operation.enqueued || !operation.end->isDone()) {
    if (operation.reached)
      checkDeadline(member, operation);
    return false;
  }
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
    throw Error(ErrorCode::PeerFailed, what + " failed on communicator " + member.name +
                                           " of ranks " + join(member.ranks) + ": " +
                                           library->describe(result, member.handle));
  }
  while (!member.pending.empty() && inspectFront(member))
    ;
}

void NcclWatchdog::run() {
  const TransportOptions &limits = options.transport;
  auto interval = std::clamp(std::min(limits.liveness, limits.deadline) / 20, 1ms, 10ms);
  Lock lock(mutex);
  while (!stopping && !failure) {
    std::optional<Error> error;
    try {
      context->use();
      if (options.checkPeers)
        options.checkPeers();
      for (NcclMember *member : members)
        inspect(*member);
    } catch (const Error &caught) {
      error = caught;
    }
    if (error) {
      lock.unlock();
      abort(*error);
      return;
    }
    wake.wait_for(lock, interval);
  }
}

} // namespace gridloom::rt
