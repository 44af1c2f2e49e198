//===- StopSignal.h - signals that request an orderly end -------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_LAUNCH_STOPSIGNAL_H
#define GRIDLOOM_RUNTIME_LAUNCH_STOPSIGNAL_H

#include <array>
#include <csignal>

namespace gridloom::rt {

/// While one exists, the first SIGINT, SIGTERM or SIGHUP of this process and its forked ranks is
/// only recorded. A second one, later than launchers and terminals send duplicates, ends the
/// process as usual. Only one may exist at a time. Ignored signals stay ignored.
class StopSignal {
public:
  StopSignal();
  StopSignal(const StopSignal &) = delete;
  StopSignal &operator=(const StopSignal &) = delete;
  ~StopSignal();

  /// The signal that was received, or 0. Thread-safe.
  static int get();
  /// Called in ranks that launchRanks forked: ignores second signals, since the launcher also gets
  /// them and stops the job.
  static void leaveToLauncher();

private:
  static constexpr std::array signals = {SIGINT, SIGTERM, SIGHUP};
  std::array<struct sigaction, signals.size()> old = {};
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_LAUNCH_STOPSIGNAL_H
