//===- Interrupt.cpp - Ctrl-C takes the best plan so far ------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/driver/Interrupt.h"

#include <atomic>

using namespace gridloom;

static std::atomic<bool> isInterrupted = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler writes it");

InterruptOnce::InterruptOnce(bool isOn) : isOn(isOn && !isInterrupted) {
  if (!this->isOn)
    return;
  struct sigaction action = {};
  action.sa_handler = [](int) { isInterrupted = true; };
  // The system resets the handler, so that a second signal ends even a stuck process.
  action.sa_flags = static_cast<int>(SA_RESTART | SA_RESETHAND);
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, nullptr, &old);
  this->isOn = old.sa_handler == SIG_DFL;
  if (this->isOn)
    sigaction(SIGINT, &action, nullptr);
}

InterruptOnce::~InterruptOnce() {
  if (isOn)
    sigaction(SIGINT, &old, nullptr);
}

bool InterruptOnce::wasInterrupted() { return isInterrupted; }

void InterruptOnce::forget() { isInterrupted = false; }
