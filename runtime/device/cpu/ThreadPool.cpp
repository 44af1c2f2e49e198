//===- ThreadPool.cpp - a rank's intra-op threads -------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/device/cpu/ThreadPool.h"

#include "runtime/core/Error.h"

#include <algorithm>
#include <sched.h>
#include <system_error>

#include <utility>

using namespace gridloom::rt;

static void pauseBriefly() {
#ifdef __x86_64__
  __builtin_ia32_pause();
#endif
}

unsigned gridloom::rt::getNumUsableCores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0)
    return unsigned(std::max(1, CPU_COUNT(&set)));
  return std::max(1u, std::thread::hardware_concurrency());
}

ThreadPool::ThreadPool(unsigned threads, std::function<void()> prepare)
    : prepare(std::move(prepare)) {
  try {
    for (unsigned i = 1; i < threads; ++i)
      workers.emplace_back([this] { work(); });
  } catch (const std::system_error &error) {
    stop();
    throw Error(ErrorCode::Unavailable,
                "cannot start thread " + std::to_string(workers.size() + 1) + " of " +
                    std::to_string(threads) + ": " + error.code().message() +
                    "; give fewer with --threads, or raise the limit");
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  {
    std::lock_guard lock(mutex);
    stopping = true;
  }
  wake.notify_all();
  for (std::thread &worker : workers)
    worker.join();
}

void ThreadPool::runTasks(const std::function<void(int64_t)> &task, int64_t count) {
  for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;)
    try {
      task(i);
    } catch (...) {
      std::lock_guard lock(mutex);
      failure = std::current_exception();
    }
}

/// Spins for a while: the next kernel mostly follows within microseconds, and sleeping would take
/// longer.
template <typename Condition> static bool spinUntil(const Condition &condition) {
  for (int spin = 0; spin < 2000; ++spin) {
    if (condition())
      return true;
    pauseBriefly();
  }
  return condition();
}

void ThreadPool::work() {
  prepare();
  while (true) {
    spinUntil([&] { return places.load(std::memory_order_relaxed) != 0; });
    const std::function<void(int64_t)> *task;
    int64_t count;
    {
      std::unique_lock lock(mutex);
      wake.wait(lock, [&] { return stopping || places.load(std::memory_order_relaxed) != 0; });
      if (stopping)
        return;
      places.store(places.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
      active.fetch_add(1, std::memory_order_relaxed);
      task = current;
      count = currentCount;
    }
    runTasks(*task, count);
    // Publishes what the tasks wrote to the caller, which reads `active` with or without the mutex.
    if (active.fetch_sub(1, std::memory_order_release) != 1)
      continue;
    std::lock_guard lock(mutex);
    if (callerSleeps)
      finished.notify_one();
  }
}

void ThreadPool::parallelFor(int64_t count, const std::function<void(int64_t)> &task) {
  if (workers.empty() || count <= 1) {
    for (int64_t i = 0; i < count; ++i)
      task(i);
    return;
  }
  std::lock_guard one(turn);
  auto helpers = unsigned(std::min<int64_t>(count - 1, int64_t(workers.size())));
  {
    std::lock_guard lock(mutex);
    current = &task;
    currentCount = count;
    next.store(0, std::memory_order_relaxed);
    places.store(helpers, std::memory_order_relaxed);
  }
  for (unsigned i = 0; i < helpers; ++i)
    wake.notify_one();
  runTasks(task, count);
  waitForWorkers();
  if (std::exception_ptr thrown = std::exchange(failure, nullptr))
    std::rethrow_exception(thrown);
}

void ThreadPool::waitForWorkers() {
  // All tasks are taken: do not wait for workers that have not joined yet.
  auto isIdle = [&] { return active.load(std::memory_order_acquire) == 0; };
  {
    std::lock_guard lock(mutex);
    places.store(0, std::memory_order_relaxed);
  }
  if (spinUntil(isIdle))
    return;
  std::unique_lock lock(mutex);
  callerSleeps = true;
  finished.wait(lock, isIdle);
  callerSleeps = false;
}
