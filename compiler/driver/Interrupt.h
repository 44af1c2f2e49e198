//===- Interrupt.h - Ctrl-C that asks for the best so far --------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_DRIVER_INTERRUPT_H
#define GRIDLOOM_COMPILER_DRIVER_INTERRUPT_H

#include <csignal>

namespace gridloom {

/// While there is one, the process's first SIGINT is kept, and the next one ends the process as
/// usual. There is one at a time. Does nothing where SIGINT does not end the process anyway, or one
/// was kept already.
class InterruptOnce {
public:
  /// Without `isOn` it does nothing.
  explicit InterruptOnce(bool isOn);
  InterruptOnce(const InterruptOnce &) = delete;
  InterruptOnce &operator=(const InterruptOnce &) = delete;
  ~InterruptOnce();

  /// Whether there was a SIGINT that any of them has kept. Any thread may ask.
  static bool wasInterrupted();
  /// For a new compilation, of which the next SIGINT is the first again.
  static void forget();

private:
  bool isOn;
  struct sigaction old = {};
};

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_DRIVER_INTERRUPT_H
