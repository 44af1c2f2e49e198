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
/// The names of these verbs: all_reduce, ...
std::vector<std::string> getCollectiveNames();

/// How long each collective is timed per size, and in how many rounds; on a busy machine it may
/// take four times as long.
struct StepTiming {
  double seconds;
  int turns;
};
/// The time of one call as a step of a plan, between kernels that wait for it and that it waits
/// for. `bytes` is the larger of a rank's input and output.
struct CollectiveTime {
  std::string name;
  uint64_t bytes;
  double seconds;
};
/// Collective over the ranks of `transport`. Times every f32 collective among all ranks, for each
/// size with at least one element per rank. Returns the same on all ranks.
std::vector<CollectiveTime> timeCollectives(Device &device, Transport &transport,
                                            std::span<const uint64_t> sizes,
                                            const StepTiming &timing);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CLI_COLLECTIVEBENCH_H
