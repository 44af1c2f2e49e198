//===- CpuStream.h - streams and events on the CPU --------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_DEVICE_CPU_CPUSTREAM_H
#define GRIDLOOM_RUNTIME_DEVICE_CPU_CPUSTREAM_H

#include "runtime/device/Device.h"
#include "runtime/device/cpu/CpuMatmul.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

namespace gridloom::rt {

class CpuGraph;
class ThreadPool;
struct CpuLaunch;

/// As in CUDA, a wait is for the latest recording submitted before it; waiting for an event that
/// was never recorded returns at once.
class CpuEvent : public Event {
public:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    uint64_t submitted = 0, completed = 0;
    std::exception_ptr failure;
  };
  std::shared_ptr<State> state = std::make_shared<State>();
};

/// Reports the first error of one device's streams to its handler.
struct CpuErrorSink {
  std::mutex mutex;
  std::function<void(const std::string &)> handler;
  bool reported = false;
  void report(const std::exception_ptr &failure);
};

/// A queue with its own thread. After the first failure it skips all work, passes the failure on
/// through events that it records, and throws it at each synchronize.
class CpuStream : public Stream {
public:
  CpuStream(std::string name, std::shared_ptr<CpuErrorSink> errors);
  ~CpuStream() override;

  void record(Event &event) override;
  void wait(Event &event) override;
  void enqueueHost(std::function<void()> work) override;
  void synchronize() override;
  /// Until called with null, submitted work goes to `graph`, as list number `list`.
  void captureTo(CpuGraph *graph, uint32_t list = 0) {
    captured = graph;
    capturedList = list;
  }
  void launch(ThreadPool &pool, CpuLaunch launch);
  /// Scratch for this stream's work.
  MatmulScratch &getScratch() { return scratch; }

private:
  struct Task {
    std::function<void()> work;
    std::shared_ptr<CpuEvent::State> record; // instead of work
    uint64_t recording = 0;
  };
  void submit(Task task);
  void runLoop();
  void runTask(Task &task);

  std::string name;
  CpuGraph *captured = nullptr; // used by the submitting thread
  uint32_t capturedList = 0;
  MatmulScratch scratch;
  std::shared_ptr<CpuErrorSink> errors;
  std::mutex mutex;
  std::condition_variable wake, idle;
  std::deque<Task> queue;
  bool busy = false, stopping = false;
  std::exception_ptr failure; // written by the thread, read under the mutex
  std::thread thread;
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_DEVICE_CPU_CPUSTREAM_H
