//===- State.cpp - an assignment with its cost and memory -----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/solver/State.h"

using namespace gridloom::solver;

double State::exchange(const Network &network, std::vector<Change> &changes) {
  double added = 0;
  for (auto &[node, strategy] : changes) {
    const double *costs = network.costs.data() + network.costsAt[node];
    added += costs[strategy] - costs[chosen[node]];
    for (const Network::Link &link : network.getLinks(node)) {
      const double *row = network.getRow(link, node, chosen[link.node]);
      added += row[strategy] - row[chosen[node]];
    }
    std::swap(chosen[node], strategy);
  }
  cost += added;
  return added;
}
