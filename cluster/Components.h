//===- Components.h - nodes that links join ---------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_CLUSTER_COMPONENTS_H
#define GRIDLOOM_CLUSTER_COMPONENTS_H

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace gridloom::cluster {

/// Connected components of nodes, built one link at a time.
class Components {
public:
  explicit Components(size_t numNodes) : parents(numNodes) {
    std::iota(parents.begin(), parents.end(), 0U);
  }
  /// The first node of the node's set.
  uint32_t find(uint32_t node) {
    while (parents[node] != node)
      node = parents[node] = parents[parents[node]];
    return node;
  }
  /// Joins the sets of two nodes. Returns whether they were different.
  bool join(uint32_t a, uint32_t b) {
    a = find(a);
    b = find(b);
    parents[std::max(a, b)] = std::min(a, b);
    return a != b;
  }

private:
  std::vector<uint32_t> parents;
};

} // namespace gridloom::cluster

#endif // GRIDLOOM_CLUSTER_COMPONENTS_H
