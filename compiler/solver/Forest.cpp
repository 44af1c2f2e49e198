//===- Forest.cpp - best choices of nodes that form trees -----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/solver/Forest.h"

using namespace gridloom::solver;

Forest::Forest(const Network &network)
    : network(network), stamps(network.getNumNodes()), numbers(network.getNumNodes()) {
  clear();
}

void Forest::clear() {
  ++stamp;
  nodes.clear();
  members.clear();
  numCosts = 0;
}

bool Forest::add(uint32_t node) {
  if (has(node))
    return false;
  Member member{noParent, 0, numCosts, 0};
  for (size_t at = network.linksAt[node]; at < network.linksAt[node + 1]; ++at) {
    if (!has(network.links[at].node))
      continue;
    if (member.parent != noParent)
      return false;
    member.parent = numbers[network.links[at].node];
    member.linkAt = at;
  }
  stamps[node] = stamp;
  numbers[node] = uint32_t(members.size());
  nodes.push_back(node);
  members.push_back(member);
  numCosts += network.size[node];
  return true;
}

void Forest::loadCosts(const State &state) {
  costs.resize(numCosts);
  surcharges.assign(numCosts, 0);
  for (size_t i = 0; i < nodes.size(); ++i) {
    uint32_t node = nodes[i];
    size_t size = network.size[node];
    double *own = costs.data() + members[i].costsAt;
    std::copy_n(network.costs.data() + network.costsAt[node], size, own);
    for (const Network::Link &link : network.getLinks(node)) {
      if (has(link.node))
        continue;
      const double *row = network.getRow(link, node, state.chosen[link.node]);
      for (size_t k = 0; k < size; ++k)
        own[k] += row[k];
      work += size;
    }
  }
}

void Forest::addCosts(const std::vector<double> &more, double factor) {
  for (size_t i = 0; i < nodes.size(); ++i)
    for (size_t k = 0; k < network.size[nodes[i]]; ++k)
      surcharges[members[i].costsAt + k] += factor * more[network.costsAt[nodes[i]] + k];
}

void Forest::addPrice(uint32_t time, double price) {
  for (size_t i = 0; i < nodes.size(); ++i)
    for (const Network::Span &span : network.getSpans(nodes[i]))
      if (span.begin <= time && time < span.end)
        for (size_t k = 0; k < network.size[nodes[i]]; ++k)
          surcharges[members[i].costsAt + k] += price * double(network.usages[span.usageAt + k]);
}

void Forest::addNoise(double most, Random &random) {
  for (double &surcharge : surcharges)
    surcharge += most * random.unit();
}

double Forest::solve(const State &state, std::vector<Change> &changes) {
  sums.resize(numCosts);
  for (size_t i = 0; i < numCosts; ++i)
    sums[i] = costs[i] + surcharges[i];
  for (size_t i = members.size(); i-- > 0;) {
    const Member &member = members[i];
    if (member.parent == noParent)
      continue;
    const Network::Link &link = network.links[member.linkAt];
    double *parent = sums.data() + members[member.parent].costsAt;
    size_t size = network.size[nodes[i]], parentSize = network.size[link.node];
    least.resize(std::max(least.size(), parentSize));
    network.getLeastSums(link, nodes[i], sums.data() + member.costsAt, least.data());
    for (size_t l = 0; l < parentSize; ++l)
      parent[l] += least[l];
    work += size * parentSize;
  }
  changes.clear();
  double added = 0;
  for (size_t i = 0; i < members.size(); ++i) {
    Member &member = members[i];
    uint32_t node = nodes[i], old = state.chosen[node];
    double *own = sums.data() + member.costsAt;
    size_t size = network.size[node];
    if (member.parent != noParent) {
      const double *row =
          network.getRow(network.links[member.linkAt], node, members[member.parent].strategy);
      for (size_t k = 0; k < size; ++k)
        own[k] += row[k];
    }
    member.strategy = uint32_t(std::min_element(own, own + size) - own);
    if (own[old] <= own[member.strategy])
      member.strategy = old;
    if (member.strategy == old)
      continue;
    changes.push_back({node, member.strategy});
    const double *surcharge = surcharges.data() + member.costsAt;
    added += surcharge[member.strategy] - surcharge[old];
  }
  return added;
}
