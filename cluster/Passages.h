//===- Passages.h - how communication holds links --------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The formulas of communication, split into latencies and the time that bytes occupy links. The
// times of Costs.h are sums of these; the simulator lets communication that occupies one link share
// it.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_CLUSTER_PASSAGES_H
#define GRIDLOOM_CLUSTER_PASSAGES_H

#include "cluster/Costs.h"

namespace gridloom::cluster {

/// Communication over one tier, or over several as one.
struct Steps {
  double latencySeconds = 0;  ///< of all messages that wait for each other
  double transferSeconds = 0; ///< that the bytes occupy the slowest link, if alone

  double getSeconds() const { return latencySeconds + transferSeconds; }
};

/// As getRingSeconds and getTreeSeconds.
Steps getRingSteps(Collective kind, double bytes, const Tier &tier);
Steps getTreeSteps(Collective kind, double bytes, const Tier &tier);

/// A group, with the machine's level of each tier.
struct PlacedGroup {
  Group tiers;
  std::vector<size_t> levels; ///< as many as tiers
};

PlacedGroup placeOnLevels(const Machine &machine, std::span<const PlacedAxis> axes);

/// How long a passage occupies a device's share of a level, if alone.
struct Load {
  size_t level;
  double seconds;
};

/// A part of a collective or transfer: latencies, then bytes over one or several levels at once.
struct Passage {
  double latencySeconds = 0;
  std::vector<Load> loads; ///< above 0 seconds; the longest is how long the passage takes alone

  double getTransferSeconds() const;
  double getSeconds() const { return latencySeconds + getTransferSeconds(); }
};

/// The consecutive passages that getCollectiveSeconds adds up, without the start; none for one
/// rank.
std::vector<Passage> getPassages(Collective kind, double bytes, const PlacedGroup &group);

} // namespace gridloom::cluster

#endif // GRIDLOOM_CLUSTER_PASSAGES_H
