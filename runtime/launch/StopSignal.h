//===- StopSignal.h - signals that ask to end in order ----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_LAUNCH_STOPSIGNAL_H
#define GRIDLOOM_RUNTIME_LAUNCH_STOPSIGNAL_H

#include <array>
#include <csignal>

namespace gridloom::rt {

/// While there is one, the first SIGINT, SIGTERM or SIGHUP of this process, and of the ranks that
/// it forks, is kept for who asks. A second one, later than what launchers and terminals send
/// twice, ends the process as usual. There is one at a time. Signals that are ignored stay so.
class StopSignal {
public:
  StopSignal();
  StopSignal(const StopSignal &) = delete;
  StopSignal &operator=(const StopSignal &) = delete;
  ~StopSignal();

  /// The number of the signal that came, 0 for none. Any thread may ask.
  static int get();
  /// In a rank that launchRanks has forked: a second signal does nothing, since the launcher gets
  /// it too and stops the job.
  static void leaveToLauncher();

private:
  static constexpr std::array signals = {SIGINT, SIGTERM, SIGHUP};
  std::array<struct sigaction, signals.size()> old = {};
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_LAUNCH_STOPSIGNAL_H
