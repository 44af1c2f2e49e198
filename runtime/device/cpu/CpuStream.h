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

/// As with CUDA, a wait is for the latest recording submitted before the wait was; an event nobody
/// recorded holds nobody up.
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

/// Collects errors of the streams of one device.
struct CpuErrorSink {
  std::mutex mutex;
  std::function<void(const std::string &)> handler;
  bool reported = false;
  void report(const std::exception_ptr &failure);
};

/// A queue with a thread of its own. After the first failure it skips all work, hands the failure
/// on with every event it records, and throws it at each synchronize.
class CpuStream : public Stream {
public:
  CpuStream(std::string name, std::shared_ptr<CpuErrorSink> errors);
  ~CpuStream() override;

  void record(Event &event) override;
  void wait(Event &event) override;
  void enqueueHost(std::function<void()> work) override;
  void synchronize() override;
  /// Until it is called with null, what is submitted goes to `graph`, as list number `list`.
  void captureTo(CpuGraph *graph, uint32_t list = 0) {
    captured = graph;
    capturedList = list;
  }
  void launch(ThreadPool &pool, CpuLaunch launch);
  /// Scratch of this stream's work.
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
  CpuGraph *captured = nullptr; // of the thread that submits
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
