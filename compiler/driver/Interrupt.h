//===- Interrupt.h - Ctrl-C takes the best plan so far -----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_DRIVER_INTERRUPT_H
#define GRIDLOOM_COMPILER_DRIVER_INTERRUPT_H

#include <csignal>

namespace gridloom {

/// While it exists, the process's first SIGINT is caught and the next one ends the process as
/// usual. There is one object at a time. Does nothing unless SIGINT has its default action, or if a
/// SIGINT was caught before.
class InterruptOnce {
public:
  /// Does nothing unless `isOn`.
  explicit InterruptOnce(bool isOn);
  InterruptOnce(const InterruptOnce &) = delete;
  InterruptOnce &operator=(const InterruptOnce &) = delete;
  ~InterruptOnce();

  /// Whether any object has caught a SIGINT. Any thread may ask.
  static bool wasInterrupted();
  /// For a new compilation: the next SIGINT counts as the first again.
  static void forget();

private:
  bool isOn;
  struct sigaction old = {};
};

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_DRIVER_INTERRUPT_H
