//===- Network.cpp - the folded problem in flat arrays --------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/solver/Network.h"

#include <cstring>
#include <map>
#include <tuple>

using namespace gridloom::solver;

Network::Network(const Model &model)
    : limits(model.limits), constant(double(model.constant)), mostCost(constant) {
  Cost largest = 0;
  std::vector<uint32_t> toNetwork(model.nodes.size());
  for (uint32_t i = 0; i < model.nodes.size(); ++i) {
    const ModelNode &node = model.nodes[i];
    if (!node.isAlive)
      continue;
    toNetwork[i] = uint32_t(size.size());
    problemNode.push_back(i);
    size.push_back(uint32_t(node.size()));
    costsAt.push_back(costs.size());
    costs.insert(costs.end(), node.cost.begin(), node.cost.end());
    largest = std::max(largest, addBounds(node.cost));
    spansAt.push_back(spans.size());
    for (const Piece &piece : node.pieces) {
      spans.push_back({piece.begin, piece.end, usages.size()});
      usages.insert(usages.end(), piece.usage.begin(), piece.usage.end());
    }
  }
  costsAt.push_back(costs.size());
  spansAt.push_back(spans.size());
  for (const ModelEdge &edge : model.edges)
    if (edge.isAlive) {
      largest = std::max(largest, addBounds(*edge.cost));
      numEntries += edge.cost->size();
      ++numEdges;
    }
  // A forbidden choice costs more than anything that it could save elsewhere.
  forbidden += double(largest) + 1;
  addLinks(model, toNetwork);
}

/// Adds a table's largest allowed cost to `mostCost`, and the range of its costs, the most that it
/// can save, to `forbidden`. Returns the largest.
Cost Network::addBounds(const std::vector<Cost> &table) {
  Cost least = infiniteCost, most = -infiniteCost;
  for (Cost cost : table)
    if (cost < infiniteCost) {
      least = std::min(least, cost);
      most = std::max(most, cost);
    }
  mostCost += double(most);
  forbidden += double(most - least);
  return most;
}

void Network::addLinks(const Model &model, const std::vector<uint32_t> &toNetwork) {
  linksAt.push_back(0);
  for (uint32_t i : problemNode)
    linksAt.push_back(linksAt.back() + model.nodes[i].degree);
  links.resize(linksAt.back());
  // Matrices that exist, by table, own strategies, and which end of the edge the node is.
  std::map<std::tuple<const void *, uint32_t, bool>, size_t> known;
  std::vector<size_t> next(linksAt.begin(), linksAt.end() - 1);
  uint32_t number = 0;
  for (const ModelEdge &edge : model.edges) {
    if (!edge.isAlive)
      continue;
    uint32_t first = toNetwork[edge.first], second = toNetwork[edge.second];
    size_t atFirst = next[first]++, atSecond = next[second]++;
    auto add = [&](size_t at, uint32_t own, uint32_t other, size_t back, bool isFirst) {
      auto [matrix, isNew] =
          known.try_emplace({edge.cost.get(), size[own], isFirst}, matrices.size());
      links[at] = {other, number, uint32_t(back - linksAt[other]), matrix->second};
      if (!isNew)
        return;
      for (size_t l = 0; l < size[other]; ++l)
        for (size_t k = 0; k < size[own]; ++k) {
          Cost cost = (*edge.cost)[isFirst ? k * size[other] + l : l * size[own] + k];
          matrices.push_back(cost < infiniteCost ? double(cost) : forbidden);
        }
    };
    add(atFirst, first, second, atSecond, true);
    add(atSecond, second, first, atFirst, false);
    ++number;
  }
}

int64_t Network::getUsage(uint32_t node, uint32_t strategy, uint32_t time) const {
  int64_t usage = 0;
  for (const Span &span : getSpans(node))
    if (span.begin <= time && time < span.end)
      usage += usages[span.usageAt + strategy];
  return usage;
}

double Network::getCost(const std::vector<uint32_t> &chosen) const {
  double cost = constant;
  for (uint32_t node = 0; node < getNumNodes(); ++node) {
    cost += costs[costsAt[node] + chosen[node]];
    for (const Link &link : getLinks(node))
      if (node < link.node)
        cost += getRow(link, node, chosen[link.node])[chosen[node]];
  }
  return cost;
}

Assignment Network::toProblem(const std::vector<uint32_t> &chosen, const Model &model) const {
  Assignment assignment(model.nodes.size());
  for (uint32_t node = 0; node < getNumNodes(); ++node)
    assignment[problemNode[node]] = model.nodes[problemNode[node]].strategies[chosen[node]];
  return assignment;
}

static constexpr uint32_t kUnknown = uint32_t(-1);

/// The first of the cheapest strategies beside the neighbours that are not unknown.
uint32_t Network::getCheapest(uint32_t node, const std::vector<uint32_t> &chosen) const {
  std::vector<double> sums(costs.begin() + ptrdiff_t(costsAt[node]),
                           costs.begin() + ptrdiff_t(costsAt[node + 1]));
  for (const Link &link : getLinks(node))
    if (chosen[link.node] != kUnknown) {
      const double *row = getRow(link, node, chosen[link.node]);
      for (size_t k = 0; k < sums.size(); ++k)
        sums[k] += row[k];
    }
  return uint32_t(std::min_element(sums.begin(), sums.end()) - sums.begin());
}

std::vector<uint32_t> Network::fromProblem(const Assignment &assignment, const Model &model) const {
  std::vector<uint32_t> chosen(getNumNodes(), kUnknown);
  for (uint32_t node = 0; node < getNumNodes(); ++node) {
    const std::vector<uint32_t> &left = model.nodes[problemNode[node]].strategies;
    auto it = std::lower_bound(left.begin(), left.end(), assignment[problemNode[node]]);
    if (it != left.end() && *it == assignment[problemNode[node]])
      chosen[node] = uint32_t(it - left.begin());
  }
  for (uint32_t node = 0; node < getNumNodes(); ++node)
    if (chosen[node] == kUnknown)
      chosen[node] = getCheapest(node, chosen);
  return chosen;
}

/// getLeastSums of the first columns, as many as there are lanes.
template <typename Lanes>
static void getLeastSumsOf(const double *matrix, const double *added, size_t rows, size_t columns,
                           double *least) {
  auto load = [](const double *from) {
    Lanes lanes;
    memcpy(&lanes, from, sizeof lanes);
    return lanes;
  };
  Lanes lanes = load(matrix) + added[0];
  for (size_t k = 1; k < rows; ++k) {
    Lanes sum = load(matrix + k * columns) + added[k];
    lanes = sum < lanes ? sum : lanes;
  }
  memcpy(least, &lanes, sizeof lanes);
}

void gridloom::solver::getLeastSums(const double *matrix, const double *added, size_t rows,
                                    size_t columns, double *least) {
  // Compilers keep the order of floating-point minima and so do not vectorise; lanes are explicit.
  using Wide = double __attribute__((vector_size(64)));
  using Narrow = double __attribute__((vector_size(16)));
  size_t l = 0;
  for (; l + 8 <= columns; l += 8)
    getLeastSumsOf<Wide>(matrix + l, added, rows, columns, least + l);
  for (; l + 2 <= columns; l += 2)
    getLeastSumsOf<Narrow>(matrix + l, added, rows, columns, least + l);
  if (l == columns)
    return;
  least[l] = matrix[l] + added[0];
  for (size_t k = 1; k < rows; ++k)
    least[l] = std::min(least[l], matrix[k * columns + l] + added[k]);
}
