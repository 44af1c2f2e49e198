//===- Futex.cpp - a counter that threads and processes wait on -----------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/comm/local/Futex.h"

#include <climits>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

using namespace gridloom::rt;

/// Not FUTEX_PRIVATE: other processes may share the word.
static long futex(std::atomic<uint32_t> *word, int operation, uint32_t value,
                  const timespec *timeout) {
  return syscall(SYS_futex, reinterpret_cast<uint32_t *>(word), operation, value, timeout, nullptr,
                 0);
}

static void pauseBriefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

Patience Patience::forRanks(int ranks) {
  unsigned cores = std::thread::hardware_concurrency();
  if (cores >= unsigned(ranks))
    return {200, 100};
  return {64, 16};
}

void Counter::advanceTo(uint32_t target) {
  // Both sequentially consistent: either the sleeper sees the new value or we see the sleeper.
  value.store(target, std::memory_order_seq_cst);
  if (sleepers.load(std::memory_order_seq_cst) != 0)
    futex(&value, FUTEX_WAKE, INT_MAX, nullptr);
}

bool Counter::spinUntil(uint32_t target, Patience patience) const {
  for (unsigned i = 0; i < patience.spins; ++i) {
    if (hasReached(target))
      return true;
    pauseBriefly();
  }
  for (unsigned i = 0; i < patience.yields; ++i) {
    if (hasReached(target))
      return true;
    sched_yield();
  }
  return hasReached(target);
}

void Counter::sleepUntil(uint32_t target, std::chrono::milliseconds limit) {
  timespec timeout{time_t(limit.count() / 1000), long(limit.count() % 1000) * 1000000};
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  uint32_t seen = value.load(std::memory_order_seq_cst);
  if (int32_t(seen - target) < 0)
    futex(&value, FUTEX_WAIT, seen, &timeout);
  sleepers.fetch_sub(1, std::memory_order_relaxed);
}
