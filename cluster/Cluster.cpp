//===- Cluster.cpp - devices and the links between them ---------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "cluster/Cluster.h"

#include "cluster/Components.h"

using namespace gridloom::cluster;

std::optional<uint32_t> gridloom::cluster::findSeparateDevice(const Cluster &cluster) {
  Components components(cluster.getNumNodes());
  for (const Link &link : cluster.links)
    components.join(link.from, link.to);
  for (uint32_t device = 1; device < cluster.devices.size(); ++device)
    if (components.find(device) != components.find(0))
      return device;
  return std::nullopt;
}
