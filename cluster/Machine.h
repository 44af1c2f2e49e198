//===- Machine.h - a cluster as a mesh sees it ------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Meshes are placed on the devices in order: device i of the cluster is rank i, the row-major index
// over the mesh. What a group of ranks has to cross then follows from the sizes and strides of its
// axes and from how far the devices of one level are numbered in a row.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_CLUSTER_MACHINE_H
#define GRIDLOOM_CLUSTER_MACHINE_H

#include "cluster/Cluster.h"

namespace gridloom::cluster {

/// Links of about one speed, with all that are faster.
struct Level {
  /// Every `block` ranks from a multiple of it on are joined by links of this level and faster
  /// ones. The last level joins all, whatever its block is.
  int64_t block;
  double latencySeconds; ///< of the longest way between two ranks of a block
  double bytesPerSecond; ///< that every device sends at once, in each direction
  bool operator==(const Level &) const = default;
};

/// All that costs on a mesh depend on.
struct Machine {
  /// Of the mesh's devices; none twice. Their rates are with the cores that each has beside the
  /// mesh's other devices.
  std::vector<DeviceKind> kinds;
  std::vector<Level> levels; ///< the fastest first; none for one device

  /// "H100-80GB", or of several kinds "A100-80GB+H100-80GB".
  std::string getName() const;
  /// Memory of the smallest device; 0 where none is known.
  int64_t getMemoryBytes() const;
  bool operator==(const Machine &) const = default;
};

/// The first `numDevices` of a cluster that has so many, all joined. Where links differ, each level
/// has the least bandwidth and the most latency of any of its blocks. A link upward from a switch
/// is shared evenly by the devices below it, as are cores by the devices of a host, the fewest of
/// any host for a kind. In time n log n of devices and links.
Machine makeMachine(const Cluster &cluster, int64_t numDevices);

/// An axis of a mesh: ranks `stride` apart.
struct PlacedAxis {
  int64_t size, stride;
};

/// A part of a group that communicates over one level.
struct Tier {
  int64_t members; ///< at least 2; of an outer tier: how many parts of the inner ones
  double latencySeconds, bytesPerSecond;
  bool operator==(const Tier &) const = default;
};

/// The ranks along some axes, which communicate, from the fastest level outward; empty for one
/// rank. The product of all members is the number of ranks.
using Group = std::vector<Tier>;

/// The group along the axes; that of the ranks that have most to cross.
Group placeGroup(const Machine &machine, std::span<const PlacedAxis> axes);

} // namespace gridloom::cluster

#endif // GRIDLOOM_CLUSTER_MACHINE_H
