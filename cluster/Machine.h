//===- Machine.h - a cluster as a mesh sees it ------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Meshes are placed on the devices in order: device i of the cluster is rank i, the row-major index
// over the mesh. The levels that a group of ranks crosses then follow from the sizes and strides of
// its axes and from the number of consecutive devices that each level connects.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_CLUSTER_MACHINE_H
#define GRIDLOOM_CLUSTER_MACHINE_H

#include "cluster/Cluster.h"

namespace gridloom::cluster {

/// Links of about one speed, with all that are faster.
struct Level {
  /// Every `block` consecutive ranks, from a multiple of it on, are connected by links of this
  /// level and faster ones. The last level connects all, whatever its block is.
  int64_t block;
  double latencySeconds; ///< of the longest path between two ranks of a block
  double bytesPerSecond; ///< of each device when all send at once, in each direction
  bool operator==(const Level &) const = default;
};

/// Everything that costs on a mesh depend on.
struct Machine {
  /// The kinds of the mesh's devices, each once. Their rates are for the cores that each has beside
  /// the mesh's other devices.
  std::vector<DeviceKind> kinds;
  std::vector<Level> levels; ///< the fastest first; none for one device

  /// "H100-80GB", or of several kinds "A100-80GB+H100-80GB".
  std::string getName() const;
  /// Memory of the smallest device; 0 where none is known.
  int64_t getMemoryBytes() const;
  bool operator==(const Machine &) const = default;
};

/// The first `numDevices` of a cluster, which must have as many, all connected. Where links differ,
/// each level has the least bandwidth and the most latency of any of its blocks. Devices share a
/// switch's upward link evenly, and a host's cores, too; a kind gets the fewest cores of any host.
/// Takes n log n time in devices and links.
Machine makeMachine(const Cluster &cluster, int64_t numDevices);

/// An axis of a mesh: ranks `stride` apart.
struct PlacedAxis {
  int64_t size, stride;
};

/// A part of a group that communicates over one level.
struct Tier {
  int64_t members; ///< at least 2; in an outer tier, the number of inner groups
  double latencySeconds, bytesPerSecond;
  bool operator==(const Tier &) const = default;
};

/// The ranks along some axes that communicate, as tiers from the fastest level outward; empty for
/// one rank. The product of all members is the number of ranks.
using Group = std::vector<Tier>;

/// The group along the axes, for those ranks that cross most.
Group placeGroup(const Machine &machine, std::span<const PlacedAxis> axes);

} // namespace gridloom::cluster

#endif // GRIDLOOM_CLUSTER_MACHINE_H
