//===- FakeClock.h - the time that fake work takes ------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_TEST_FAKE_FAKECLOCK_H
#define GRIDLOOM_TEST_FAKE_FAKECLOCK_H

#include "test/fake/FakeCuda.h"

#include <chrono>

namespace gridloom::fake {

/// The clock of a device's events: the host's clock plus the time that the device's work claims to
/// take. Nothing sleeps, so measured times do not depend on how busy the machine is.
GRIDLOOM_FAKE_EXPORT std::chrono::steady_clock::time_point readClock(int device);
/// Adds the duration of work on a stream of a device.
GRIDLOOM_FAKE_EXPORT void spend(int device, std::chrono::microseconds duration);

} // namespace gridloom::fake

#endif // GRIDLOOM_TEST_FAKE_FAKECLOCK_H
