//===- Model.cpp - the problem while it is folded -------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/solver/Model.h"

#include <map>
#include <numeric>

using namespace gridloom::solver;

static uint64_t getKey(uint32_t first, uint32_t second) {
  return uint64_t(std::min(first, second)) << 32 | std::max(first, second);
}

Model::Model(const Problem &problem) {
  nodes.resize(problem.getNumNodes());
  for (size_t i = 0; i < nodes.size(); ++i) {
    ModelNode &node = nodes[i];
    node.strategies.resize(problem.getNumStrategies(i));
    std::iota(node.strategies.begin(), node.strategies.end(), 0);
    for (Cost cost : problem.costs[i])
      node.cost.push_back(std::min(cost, infiniteCost));
  }
  addEdges(problem);
  addTimes(problem);
}

void Model::addEdges(const Problem &problem) {
  edgeOf.reserve(problem.edges.size());
  edges.reserve(problem.edges.size());
  std::unordered_map<const Cost *, Table> known; // edges may share a row
  for (size_t e = 0; e < problem.edges.size(); ++e) {
    auto [first, second] = problem.edges[e];
    std::span<const Cost> cost = problem.edgeCosts[e];
    if (first != second) {
      Table &table = known[cost.data()];
      if (!table) {
        std::vector<Cost> least(cost.begin(), cost.end());
        for (Cost &value : least)
          value = std::min(value, infiniteCost);
        table = tables.add(std::move(least));
      }
      addEdge(first, second, table);
      continue;
    }
    size_t size = nodes[first].size();
    for (size_t k = 0; k < size; ++k)
      nodes[first].cost[k] =
          addCosts(nodes[first].cost[k], std::min(cost[k * size + k], infiniteCost));
  }
}

/// Only times whose set of live nodes is in no other time's set can be the peak: those from a
/// node's begin up to the next end.
void Model::addTimes(const Problem &problem) {
  std::map<int64_t, std::pair<bool, bool>> events; // whether nodes begin, end
  for (auto [begin, end] : problem.intervals)
    if (begin < end) {
      events[begin].first = true;
      events[end].second = true;
    }
  bool hasBegun = false;
  int64_t last = 0;
  for (auto [time, event] : events) {
    if (event.second && hasBegun) {
      times.push_back(last);
      hasBegun = false;
    }
    hasBegun |= event.first;
    last = time;
  }
  limits.assign(times.size(), problem.usageLimit);
  auto toModel = [&](int64_t time) {
    return uint32_t(std::lower_bound(times.begin(), times.end(), time) - times.begin());
  };
  for (uint32_t i = 0; i < nodes.size(); ++i) {
    auto [begin, end] = problem.intervals[i];
    if (begin < end)
      nodes[i].pieces.push_back(
          {toModel(begin), toModel(end), {problem.usages[i].begin(), problem.usages[i].end()}});
  }
}

void Model::keepStrategies(uint32_t index, const std::vector<bool> &isKept) {
  auto filter = [&](auto &values) {
    size_t kept = 0;
    for (size_t k = 0; k < isKept.size(); ++k)
      if (isKept[k])
        values[kept++] = values[k];
    values.resize(kept);
  };
  ModelNode &node = nodes[index];
  for (uint32_t e : node.edges) {
    ModelEdge &edge = edges[e];
    if (!edge.isAlive)
      continue;
    edge.cost = tables.keep(edge.cost, index == edge.first, isKept);
  }
  filter(node.strategies);
  filter(node.cost);
  for (Piece &piece : node.pieces)
    filter(piece.usage);
}

void Model::addEdge(uint32_t first, uint32_t second, const Table &cost) {
  auto [entry, isNew] = edgeOf.try_emplace(getKey(first, second), uint32_t(edges.size()));
  if (isNew) {
    for (uint32_t node : {first, second}) {
      nodes[node].edges.push_back(entry->second);
      ++nodes[node].degree;
    }
    edges.push_back({first, second, cost});
    return;
  }
  ModelEdge &edge = edges[entry->second];
  edge.cost = tables.sum(edge.cost, cost, nodes[second].size(), edge.first != first);
}

void Model::removeEdge(uint32_t index) {
  ModelEdge &edge = edges[index];
  edge.isAlive = false;
  edge.cost.reset();
  edgeOf.erase(getKey(edge.first, edge.second));
  for (uint32_t end : {edge.first, edge.second}) {
    ModelNode &node = nodes[end];
    // Only now and then, so that the edges of a star are removed in linear time.
    if (--node.degree < node.edges.size() / 2)
      std::erase_if(node.edges, [&](uint32_t e) { return !edges[e].isAlive; });
  }
}

void Model::removeNode(uint32_t node) {
  nodes[node].isAlive = false;
  nodes[node].pieces = {};
}

void Model::combinePieces(uint32_t index) {
  std::vector<Piece> &pieces = nodes[index].pieces;
  auto getInterval = [](const Piece &piece) { return std::pair(piece.begin, piece.end); };
  std::sort(pieces.begin(), pieces.end(),
            [&](const Piece &a, const Piece &b) { return getInterval(a) < getInterval(b); });
  size_t kept = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (kept == 0 || getInterval(pieces[kept - 1]) != getInterval(pieces[i])) {
      if (kept != i)
        pieces[kept] = std::move(pieces[i]);
      ++kept;
      continue;
    }
    for (size_t k = 0; k < pieces[i].usage.size(); ++k)
      pieces[kept - 1].usage[k] += pieces[i].usage[k];
  }
  pieces.resize(kept);
}
