//===- Fit.h - rates of a machine from measured times -----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The inverse of Costs.h: finds the rates of a kind of device and of its links with which the
// formulas give the measured times. Works with medians and absolute errors of logarithms, so that a
// few slow moments of the machine do not count.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_CLUSTER_FIT_H
#define GRIDLOOM_CLUSTER_FIT_H

#include "cluster/Costs.h"

namespace gridloom::cluster {

/// A kernel or library call that was timed, including all time until the next can start.
struct WorkSample {
  Work work;
  double seconds;
};

/// Sets launch, rates, memory bandwidth and curves of `kind`. Launch is the time of the smallest
/// work. Bandwidth comes from work of class Other that computes little, arithmetic from work that
/// memory does not slow down; rates without samples stay. Samples whose times are not finite and
/// above 0 are ignored.
void fitWork(std::span<const WorkSample> samples, DeviceKind &kind);

/// A collective that was timed among `members` ranks of one level; bytes as in getRingSeconds.
struct CollectiveSample {
  Collective kind;
  int64_t members;
  double bytes, seconds;
};

/// The links of a level, as in Costs.h.
struct LinkFit {
  double startSeconds, latencySeconds, bytesPerSecond;
  /// The median of |estimate / measured - 1|.
  double medianError;
};
/// All times are above 0; there is at least one sample.
LinkFit fitLinks(std::span<const CollectiveSample> samples);

/// The middle value; the mean of two. There is at least one.
double getMedian(std::vector<double> values);

} // namespace gridloom::cluster

#endif // GRIDLOOM_CLUSTER_FIT_H
