//===- ThreadPool.h - a rank's intra-op threads -----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_DEVICE_CPU_THREADPOOL_H
#define GRIDLOOM_RUNTIME_DEVICE_CPU_THREADPOOL_H

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace gridloom::rt {

/// The intra-op threads of one rank. The caller of parallelFor is one of them: a pool of size one
/// starts no threads.
class ThreadPool {
public:
  /// `prepare` runs first on each thread that the pool starts. Throws Unavailable if the system
  /// cannot start a thread.
  ThreadPool(unsigned threads, std::function<void()> prepare);
  ~ThreadPool();
  ThreadPool(const ThreadPool &) = delete;
  ThreadPool &operator=(const ThreadPool &) = delete;

  unsigned getNumThreads() const { return unsigned(workers.size()) + 1; }

  /// Calls task(i) for i in [0, count), spread over at most `count` threads, and returns when all
  /// are done; rethrows one exception if there were any. Concurrent callers take turns.
  void parallelFor(int64_t count, const std::function<void(int64_t)> &task);

private:
  void stop();
  void work();
  void runTasks(const std::function<void(int64_t)> &task, int64_t count);
  void waitForWorkers();

  std::mutex turn; // held by the caller whose tasks run
  std::mutex mutex;
  std::condition_variable wake, finished;
  const std::function<void(int64_t)> *current = nullptr;
  int64_t currentCount = 0;
  std::atomic<int64_t> next{0};
  /// How many more workers may join the current tasks; changed under the mutex.
  std::atomic<unsigned> places{0};
  std::atomic<unsigned> active{0}; // workers that joined; incremented under the mutex
  std::exception_ptr failure;      // of the current tasks; set under the mutex
  bool callerSleeps = false;
  bool stopping = false;
  std::function<void()> prepare;
  std::vector<std::thread> workers;
};

/// Cores this process may run on.
unsigned getNumUsableCores();

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_DEVICE_CPU_THREADPOOL_H
