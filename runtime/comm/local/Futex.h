//===- Futex.h - a counter that threads and processes wait on ---*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_COMM_LOCAL_FUTEX_H
#define GRIDLOOM_RUNTIME_COMM_LOCAL_FUTEX_H

#include <atomic>
#include <chrono>
#include <cstdint>

namespace gridloom::rt {

/// How long a waiter spins and yields before it sleeps. Yielding costs little on an idle machine
/// and lets the awaited rank run on a busy one, so it is longer than spinning; with more ranks than
/// cores both are short.
struct Patience {
  unsigned spins = 0;
  unsigned yields = 0;
  static Patience forRanks(int ranks);
};

/// A monotonic counter in shared memory, on its own cache line. Comparison is by signed difference,
/// so it may wrap. Zero-filled memory is a valid counter at zero.
class alignas(64) Counter {
public:
  /// Whether the count has reached `target`; acquires what was written before that advance.
  bool hasReached(uint32_t target) const {
    return int32_t(value.load(std::memory_order_acquire) - target) >= 0;
  }
  uint32_t get() const { return value.load(std::memory_order_acquire); }

  /// Sets the count and wakes all sleepers. Only one thread may advance a counter.
  void advanceTo(uint32_t target);

  /// Spins and yields; true if the count has reached `target`.
  bool spinUntil(uint32_t target, Patience patience) const;

  /// Sleeps until an advance, for at most `limit`; may return early.
  void sleepUntil(uint32_t target, std::chrono::milliseconds limit);

private:
  std::atomic<uint32_t> value{0};
  std::atomic<uint32_t> sleepers{0};
};

static_assert(sizeof(Counter) == 64 && std::atomic<uint32_t>::is_always_lock_free);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_COMM_LOCAL_FUTEX_H
