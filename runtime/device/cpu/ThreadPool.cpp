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
    task(i);
}

void ThreadPool::work() {
  prepare();
  uint64_t seen = 0;
  while (true) {
    // The next kernel mostly follows within microseconds; sleeping would cost more than it.
    for (int spin = 0; spin < 2000 && generation.load(std::memory_order_relaxed) == seen; ++spin)
      pauseBriefly();
    const std::function<void(int64_t)> *task;
    int64_t count;
    {
      std::unique_lock lock(mutex);
      wake.wait(lock, [&] { return stopping || generation.load() != seen; });
      if (stopping)
        return;
      seen = generation.load();
      task = current;
      count = currentCount;
    }
    runTasks(*task, count);
    std::lock_guard lock(mutex);
    if (--active == 0)
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
  {
    std::lock_guard lock(mutex);
    current = &task;
    currentCount = count;
    next.store(0, std::memory_order_relaxed);
    active = unsigned(workers.size());
    ++generation;
  }
  wake.notify_all();
  runTasks(task, count);
  std::unique_lock lock(mutex);
  finished.wait(lock, [&] { return active == 0; });
}
