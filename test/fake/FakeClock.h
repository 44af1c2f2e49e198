//===- FakeClock.h - the time that fake work takes --------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_TEST_FAKE_FAKECLOCK_H
#define GRIDLOOM_TEST_FAKE_FAKECLOCK_H

#include "test/fake/FakeCuda.h"

#include <chrono>

namespace gridloom::fake {

/// What events of a device are timed by: the host's clock, and what the device's work has said it
/// takes. Nobody sleeps, so what a test measures does not depend on how busy the machine is.
GRIDLOOM_FAKE_EXPORT std::chrono::steady_clock::time_point readClock(int device);
/// Work on a stream of a device takes so long.
GRIDLOOM_FAKE_EXPORT void spend(int device, std::chrono::microseconds duration);

} // namespace gridloom::fake

#endif // GRIDLOOM_TEST_FAKE_FAKECLOCK_H
