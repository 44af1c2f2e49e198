//===- CpuGraph.h - captured work of CPU streams ----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A graph has a list of steps per stream, with arguments resolved, so that a step neither allocates
// nor passes a queue. The streams' threads run the lists concurrently. A thread that reaches a wait
// first runs the work that it waits for, unless the list's own thread has started it: a stream that
// waits for a collective at once runs it itself, and no other thread wakes up.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_DEVICE_CPU_CPUGRAPH_H
#define GRIDLOOM_RUNTIME_DEVICE_CPU_CPUGRAPH_H

#include "runtime/device/cpu/CpuStream.h"

#include <atomic>
#include <deque>
#include <map>
#include <optional>
#include <vector>

namespace gridloom::rt {

class ThreadPool;

/// The ABI of kernels in cpu.so: pointers to inputs, then outputs, and the rows to compute.
using CpuKernelFunction = void (*)(void *const *pointers, int64_t begin, int64_t end);

/// A kernel with its arguments, split into parts of `part` rows.
struct CpuLaunch {
  CpuKernelFunction function;
  std::vector<void *> pointers;
  int64_t rows, part;
  void run(ThreadPool &pool) const;
};

class CpuGraph final : public std::enable_shared_from_this<CpuGraph> {
public:
  CpuGraph(ThreadPool &pool, std::span<Stream *const> streams);

  // Capture, in order of submission. `list` is a stream's index in `streams`.
  void addLaunch(uint32_t list, CpuLaunch launch);
  void addWork(uint32_t list, std::function<void()> work);
  void addRecord(uint32_t list, const CpuEvent::State *event);
  /// Ignores events that this capture did not record: they are complete before a run.
  void addWait(uint32_t list, const CpuEvent::State *event);
  void finishCapture();

  /// Runs all lists; called on the thread of the first stream, in order with its other work. Throws
  /// the first failure of any list, in every later run too.
  void run();

private:
  enum class StepKind : uint8_t { Launch, Work, Record, Wait };
  struct Step {
    StepKind kind;
    uint32_t index; // of the launch, work or event
    /// For a record: the only list that waits for the event, if the recording list then waits for
    /// that list, so that the recording thread can continue with it.
    std::optional<uint32_t> handsOver = {};
  };
  struct alignas(64) List {
    CpuStream *stream = nullptr;
    std::vector<Step> steps;
    std::deque<CpuLaunch> launches;
    std::vector<std::function<void()>> works;
    size_t next = 0;                   // owned by the claiming thread
    std::atomic<bool> claimed{false};  // a thread runs its steps
    std::atomic<uint64_t> finished{0}; // the last run that completed it
    /// Incremented when there may be work for a sleeping thread.
    std::atomic<uint32_t> bell{0};
  };
  struct Event {
    uint32_t list;                 // that records it
    std::vector<uint32_t> waiters; // lists
    std::atomic<uint64_t> done{0}; // the last run that recorded it
  };
  using EventIndex = std::optional<uint32_t>;

  bool tryClaim(List &list);
  void release(List &list, uint64_t run);
  void ring(List &list);
  void begin(uint64_t run);
  /// Runs steps of a claimed list until it ends, `until` is recorded, or it must wait.
  void advance(List &list, uint64_t run, EventIndex until);
  void record(const Step &step, uint64_t run, std::optional<uint32_t> &owed);
  /// Runs the steps before `event` in its list unless another thread has claimed it.
  void help(uint32_t event, uint64_t run);
  /// Returns when a list has finished; runs it when it is not claimed.
  void complete(List &list, uint64_t run);
  bool isDone(uint32_t event, uint64_t run) const { return events[event].done >= run; }
  void fail(std::exception_ptr cause);
  void checkFailure();

  ThreadPool &pool;
  std::deque<List> lists; // deque: elements do not move
  std::deque<Event> events;
  std::map<const CpuEvent::State *, uint32_t> recorded; // during capture: the last recording
  uint64_t runs = 0;
  std::atomic<bool> hasFailed{false};
  std::mutex mutex;
  std::exception_ptr failure; // guarded by mutex
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_DEVICE_CPU_CPUGRAPH_H
