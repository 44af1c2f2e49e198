//===- StepTimes.h - times of a plan's steps --------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CLI_STEPTIMES_H
#define GRIDLOOM_RUNTIME_CLI_STEPTIMES_H

#include "cluster/Fit.h"
#include "runtime/comm/Transport.h"
#include "runtime/core/Plan.h"

namespace gridloom::rt {

/// The kernels and library calls of a program without loops, in order: what the plan says that each
/// computes, reads and writes.
std::vector<cluster::Work> listWork(const schema::Stage &stage,
                                    const schema::Specialisation &program);

/// Collective over the ranks of `transport`, each of which runs the whole plan, which is for one
/// rank, at the same time on `device`. Every specialisation runs for about `seconds`, three times
/// at least. The times of this rank, with the pause before the next step: of the runs the mean
/// without the longest tenth.
std::vector<cluster::WorkSample> timeSteps(const std::shared_ptr<const Plan> &plan, Device &device,
                                           Transport &transport, double seconds);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CLI_STEPTIMES_H
