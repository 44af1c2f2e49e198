//===- ClusterFile.h - clusters in files ------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_CLUSTER_CLUSTERFILE_H
#define GRIDLOOM_CLUSTER_CLUSTERFILE_H

#include "cluster/Cluster.h"

namespace gridloom::cluster {

/// The most links of a file; those of a group count per device.
inline constexpr int64_t kMaxLinks = 3 << 20;

/// Reads a file as docs/clusters.md describes it. None, with one line in `error` that names the
/// file and the place, if it cannot be read or does not describe a cluster.
std::optional<Cluster> readCluster(const std::string &path, std::string &error);

} // namespace gridloom::cluster

#endif // GRIDLOOM_CLUSTER_CLUSTERFILE_H
