//===- CollectiveBench.h - gridloom bench all_reduce ------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CLI_COLLECTIVEBENCH_H
#define GRIDLOOM_RUNTIME_CLI_COLLECTIVEBENCH_H

#include "runtime/cli/Verbs.h"
#include "runtime/comm/Transport.h"
#include "runtime/device/Device.h"

#include <span>
#include <string>
#include <vector>

namespace gridloom::rt {

/// Adds a verb per collective to `bench`.
std::vector<Verb> addCollectives(CLI::App &bench);
/// Their names: all_reduce, ...
std::vector<std::string> getCollectiveNames();

/// How long each collective of each size is timed, in how many turns; a busy machine may take four
/// times as long.
struct StepTiming {
  double seconds;
  int turns;
};
/// One call as a step of a plan, between kernels that wait for it and it for them. A size is the
/// larger of a rank's input and output.
struct CollectiveTime {
  std::string name;
  uint64_t bytes;
  double seconds;
};
/// Collective over the ranks of `transport`: every collective of f32 among all of them, in each
/// size that has an element for each rank. The same on all ranks.
std::vector<CollectiveTime> timeCollectives(Device &device, Transport &transport,
                                            std::span<const uint64_t> sizes,
                                            const StepTiming &timing);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CLI_COLLECTIVEBENCH_H
