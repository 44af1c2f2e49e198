//===- CpuGraph.h - captured work of CPU streams ----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A graph has the steps of each stream as a list, with all arguments in place, so that a
// step allocates nothing and passes no queue. The threads of the streams run the lists beside each
// other. A thread that comes to a wait first runs what it waits for, unless the list's own thread
// has begun it: a stream that waits for a collective at once does it itself, and no other thread
// wakes for it.
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

/// A kernel with its arguments, cut in pieces of `part` rows.
struct CpuLaunch {
  CpuKernelFunction function;
  std::vector<void *> pointers;
  int64_t rows, part;
  void run(ThreadPool &pool) const;
};

class CpuGraph final : public std::enable_shared_from_this<CpuGraph> {
public:
  CpuGraph(ThreadPool &pool, std::span<Stream *const> streams);

  // Capture, in the order of submission. `list` is a stream's place among the streams.
  void addLaunch(uint32_t list, CpuLaunch launch);
  void addWork(uint32_t list, std::function<void()> work);
  void addRecord(uint32_t list, const CpuEvent::State *event);
  /// A wait for an event that was not recorded in this capture is none: it was before all of this.
  void addWait(uint32_t list, const CpuEvent::State *event);
  void finishCapture();

  /// Runs all lists; on the thread of the first stream, between its other work. Throws the first
  /// failure of any list, and at every run after it.
  void run();

private:
  enum class StepKind : uint8_t { Launch, Work, Record, Wait };
  struct Step {
    StepKind kind;
    uint32_t index; // of the launch, work or event
    /// Of a record: who waits for it is this one list, which the recording list waits for next, so
    /// that the recording thread can go on with it.
    std::optional<uint32_t> handsOver = {};
  };
  struct alignas(64) List {
    CpuStream *stream = nullptr;
    std::vector<Step> steps;
    std::deque<CpuLaunch> launches;
    std::vector<std::function<void()>> works;
    size_t next = 0;                   // of whoever has claimed it
    std::atomic<bool> claimed{false};  // some thread runs its steps
    std::atomic<uint64_t> finished{0}; // the last run that has run all of it
    /// Rung when there may be something to do for a thread that found nothing to.
    std::atomic<uint32_t> bell{0};
  };
  struct Event {
    uint32_t list;                 // that records it
    std::vector<uint32_t> waiters; // lists
    std::atomic<uint64_t> done{0}; // the last run that has recorded it
  };
  using EventIndex = std::optional<uint32_t>;

  bool tryClaim(List &list);
  void release(List &list, uint64_t run);
  void ring(List &list);
  void begin(uint64_t run);
  /// Runs steps of a claimed list until it ends, `until` is recorded, or it has to wait.
  void advance(List &list, uint64_t run, EventIndex until);
  void record(const Step &step, uint64_t run, std::optional<uint32_t> &owed);
  /// Runs what has to be done before `event`, as far as nobody else does it.
  void help(uint32_t event, uint64_t run);
  /// Runs a list to its end, alone or with others.
  void complete(List &list, uint64_t run);
  bool isDone(uint32_t event, uint64_t run) const { return events[event].done >= run; }
  void fail(std::exception_ptr cause);
  void checkFailure();

  ThreadPool &pool;
  std::deque<List> lists; // neither moves
  std::deque<Event> events;
  std::map<const CpuEvent::State *, uint32_t> recorded; // in the capture: the last recording
  uint64_t runs = 0;
  std::atomic<bool> hasFailed{false};
  std::mutex mutex;
  std::exception_ptr failure; // with the mutex
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_DEVICE_CPU_CPUGRAPH_H
