//===- Cluster.h - devices and the links between them -----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_CLUSTER_CLUSTER_H
#define GRIDLOOM_CLUSTER_CLUSTER_H

#include "cluster/DeviceKind.h"

#include <algorithm>
#include <optional>

namespace gridloom::cluster {

/// The most devices of a cluster, as of a mesh.
inline constexpr int64_t kMaxDevices = 1 << 20;

/// A link between two nodes: devices come first, then switches.
struct Link {
  uint32_t from, to;
  double latencySeconds;
  std::array<double, 2> bytesPerSecond; ///< in each direction, at the same time

  /// The slower direction: collectives and pairs of transfers use both.
  double getBytesPerSecond() const { return std::min(bytesPerSecond[0], bytesPerSecond[1]); }
  bool operator==(const Link &) const = default;
};

/// Devices in a row that share the cores of a host: ranks on a CPU.
struct SharedCores {
  uint32_t first, count;
  int64_t cores;
  bool operator==(const SharedCores &) const = default;
};

struct Cluster {
  std::string name; ///< as the user gave it
  std::vector<DeviceKind> kinds;
  std::vector<uint32_t> devices; ///< the kind of each, in order of ranks
  uint32_t numSwitches = 0;
  std::vector<Link> links;
  std::vector<SharedCores> sharedCores; ///< disjoint, in order of devices

  int64_t getNumDevices() const { return static_cast<int64_t>(devices.size()); }
  size_t getNumNodes() const { return devices.size() + numSwitches; }
  bool operator==(const Cluster &) const = default;
};

/// A device that is not connected with device 0; none if all are. In linear time.
std::optional<uint32_t> findSeparateDevice(const Cluster &cluster);

} // namespace gridloom::cluster

#endif // GRIDLOOM_CLUSTER_CLUSTER_H
