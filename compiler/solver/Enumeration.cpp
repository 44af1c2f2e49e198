//===- Enumeration.cpp - the best assignment of a small network -----------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/solver/Enumeration.h"

using namespace gridloom::solver;

Enumeration::Enumeration(const Network &network)
    : network(network), leastAfter(network.getNumNodes() + 1), slack(network.limits),
      chosen(network.getNumNodes()), bestCost(network.mostCost - network.constant + 0.5) {
  for (uint32_t node = uint32_t(network.getNumNodes()); node-- > 0;) {
    double least = network.forbidden;
    for (uint32_t k = 0; k < network.size[node]; ++k) {
      double cost = network.costs[network.costsAt[node] + k];
      for (const Network::Link &link : network.getLinks(node)) {
        if (link.node > node)
          continue;
        double row = network.forbidden;
        for (uint32_t l = 0; l < network.size[link.node]; ++l)
          row = std::min(row, network.getRow(link, node, l)[k]);
        cost += row;
      }
      least = k == 0 ? cost : std::min(least, cost);
    }
    leastAfter[node] = leastAfter[node + 1] + least;
  }
}

bool Enumeration::run(uint64_t mostSteps) {
  stepsLeft = mostSteps;
  return visit(0, 0);
}

/// The cost of a strategy and of the edges to earlier nodes.
double Enumeration::getAdded(uint32_t node, uint32_t strategy) const {
  double added = network.costs[network.costsAt[node] + strategy];
  for (const Network::Link &link : network.getLinks(node))
    if (link.node < node)
      added += network.getRow(link, node, chosen[link.node])[strategy];
  return added;
}

/// Adds a strategy's memory, or takes it back (`sign` -1); false if it exceeds a limit.
bool Enumeration::use(uint32_t node, uint32_t strategy, int64_t sign) {
  bool fits = true;
  for (const Network::Span &span : network.getSpans(node))
    for (uint32_t t = span.begin; t < span.end; ++t) {
      slack[t] -= sign * network.usages[span.usageAt + strategy];
      fits = fits && slack[t] >= 0;
    }
  return fits;
}

/// Tries all choices from `node` on; false if the steps are used up.
bool Enumeration::visit(uint32_t node, double cost) {
  if (node == network.getNumNodes()) {
    bestCost = cost;
    best = chosen;
    return true;
  }
  for (uint32_t k = 0; k < network.size[node]; ++k) {
    if (stepsLeft-- == 0)
      return stepsLeft = 0, false;
    double next = cost + getAdded(node, k);
    if (next + leastAfter[node + 1] >= bestCost)
      continue;
    chosen[node] = k;
    bool isDone = !use(node, k, 1) || visit(node + 1, next);
    use(node, k, -1);
    if (!isDone)
      return false;
  }
  return true;
}
