//===- NcclAbort.cpp - abort several communicators ------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#include "runtime/comm/nccl/NcclAbort.h"

#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <vector>

namespace gridloom::rt {

using namespace std::chrono;

// Since this version a group of aborts sets all flags before it waits for kernels.
static constexpr int firstGroupAbort = 22200;

namespace {

/// Ends the process unless it is destroyed in time.
class Timer {
public:
  explicit Timer(const AbortLimit &limit) : limit(limit) {
    try {
      thread = std::thread([this] { run(); });
    } catch (const std::system_error &) {
      return; // no thread, so no limit
    }
  }
  Timer(const Timer &) = delete;
  Timer &operator=(const Timer &) = delete;
  ~Timer() {
    {
      std::lock_guard lock(mutex);
      over = true;
    }
    changed.notify_all();
    if (thread.joinable())
      thread.join();
  }

private:
  void run() {
    std::unique_lock lock(mutex);
    if (changed.wait_for(lock, limit.time, [&] { return over; }))
      return;
    std::string line = "error: " + limit.subject + "; aborting NCCL took longer than " +
                       std::to_string(limit.time.count()) + " ms, so the process ends\n";
    // _exit: destructors and exit handlers would wait for the thread inside NCCL.
    if (write(STDERR_FILENO, line.data(), line.size()) < 0)
      _exit(abortExitStatus);
    _exit(abortExitStatus);
  }

  const AbortLimit &limit;
  std::mutex mutex;
  std::condition_variable changed;
  bool over = false;
  std::thread thread;
};

} // namespace

static void abortInGroup(const NcclLibrary &library, std::span<const nccl::Comm> communicators) {
  library.groupStart();
  for (nccl::Comm communicator : communicators)
    library.commAbort(communicator);
  library.groupEnd();
}

static void abortInThreads(const NcclLibrary &library, const CudaContext &context,
                           std::span<const nccl::Comm> communicators) {
  auto abortOne = [&](nccl::Comm communicator) {
    context.useQuietly();
    library.commAbort(communicator);
  };
  std::vector<std::thread> threads;
  for (size_t i = 0; i + 1 < communicators.size(); ++i)
    try {
      threads.emplace_back(abortOne, communicators[i]);
    } catch (const std::system_error &) {
      abortOne(communicators[i]); // the timer ends the process if this waits for the others
    }
  abortOne(communicators.back());
  for (std::thread &thread : threads)
    thread.join();
}

void abortTogether(const NcclLibrary &library, const CudaContext &context,
                   std::span<const nccl::Comm> communicators, const AbortLimit &limit) noexcept {
  if (communicators.empty())
    return;
  Timer timer(limit);
  context.useQuietly();
  if (communicators.size() == 1)
    library.commAbort(communicators.front());
  else if (library.getVersionCode() >= firstGroupAbort)
    abortInGroup(library, communicators);
  else
    abortInThreads(library, context, communicators);
}

} // namespace gridloom::rt
