//===- ClusterWriter.h - clusters to files ----------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_CLUSTER_CLUSTERWRITER_H
#define GRIDLOOM_CLUSTER_CLUSTERWRITER_H

#include "cluster/Cluster.h"

namespace gridloom::cluster {

/// The text of a file that readCluster reads back as an equal cluster, but for the name, which is
/// then the path. All kinds are described, those of presets too. The names of nodes are new:
/// devices "d0", "d1/0", ... and switches "s0", ...
std::string formatCluster(const Cluster &cluster);

} // namespace gridloom::cluster

#endif // GRIDLOOM_CLUSTER_CLUSTERWRITER_H
