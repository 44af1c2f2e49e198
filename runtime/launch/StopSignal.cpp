//===- StopSignal.cpp - signals that request an orderly end ---------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/launch/StopSignal.h"

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <ctime>

using namespace gridloom::rt;

/// A terminal and a launcher may both send a signal within this time.
static constexpr int64_t kTwice = 1'000'000'000; // ns

static std::atomic<int> first = 0;
static std::atomic<int64_t> firstTime = 0;
static std::atomic<bool> isLaunchersTask = false;
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free,
              "a signal handler writes them");

static void handle(int signal) {
  int savedError = errno;
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  int64_t time = int64_t(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
  int none = 0;
  if (first.compare_exchange_strong(none, signal)) {
    firstTime = time;
  } else if (!isLaunchersTask && firstTime != 0 && time - firstTime > kTwice) {
    std::signal(signal, SIG_DFL); // blocked in the handler, delivered after it returns
    raise(signal);
  }
  errno = savedError;
}

StopSignal::StopSignal() {
  first = 0;
  firstTime = 0;
  isLaunchersTask = false;
  struct sigaction action = {};
  action.sa_handler = handle;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < signals.size(); ++i) {
    sigaction(signals[i], nullptr, &old[i]);
    if (old[i].sa_handler != SIG_IGN)
      sigaction(signals[i], &action, nullptr);
  }
}

StopSignal::~StopSignal() {
  for (size_t i = 0; i < signals.size(); ++i)
    sigaction(signals[i], &old[i], nullptr);
}

int StopSignal::get() { return first; }

void StopSignal::leaveToLauncher() { isLaunchersTask = true; }
