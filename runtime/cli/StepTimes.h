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

/// The kernels and library calls of a program without loops, in order: what each computes, reads
/// and writes according to the plan.
std::vector<cluster::Work> listWork(const schema::Stage &stage,
                                    const schema::Specialisation &program);

/// Collective over the ranks of `transport`, each of which runs the whole plan (of one rank) on
/// `device` at the same time. Runs every specialisation for about `seconds`, at least three times.
/// Returns this rank's times, including the pause before the next step: the mean over runs without
/// the longest tenth.
std::vector<cluster::WorkSample> timeSteps(const std::shared_ptr<const Plan> &plan, Device &device,
                                           Transport &transport, double seconds);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CLI_STEPTIMES_H
