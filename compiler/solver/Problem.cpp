//===- Problem.cpp - choose a strategy per node ---------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/solver/Problem.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

using namespace gridloom::solver;

// Sums up to this fit into 64 bits with room for the solver's own terms.
static constexpr int64_t largestSum = std::numeric_limits<int64_t>::max() / 4;
static constexpr size_t mostNodes = std::numeric_limits<uint32_t>::max() / 2;
static constexpr size_t mostStrategies = 1 << 16;

static std::string at(const char *table, size_t row) {
  return std::string(table) + "[" + std::to_string(row) + "]";
}

static std::string countOf(size_t count, const char *what) {
  return std::to_string(count) + " " + what;
}

Problem gridloom::solver::keepStrategies(const Problem &problem,
                                         const std::vector<std::vector<uint32_t>> &kept) {
  Problem result;
  result.intervals = problem.intervals;
  result.edges = problem.edges;
  result.usageLimit = problem.usageLimit;
  for (size_t node = 0; node < kept.size(); ++node) {
    for (uint32_t strategy : kept[node]) {
      result.costs.append(problem.costs[node][strategy]);
      result.usages.append(problem.usages[node][strategy]);
    }
    result.costs.endRow();
    result.usages.endRow();
  }
  // Equal layers share rows, so that they are folded once.
  std::map<std::tuple<const int64_t *, std::vector<uint32_t>, std::vector<uint32_t>>, size_t> rows;
  for (size_t edge = 0; edge < problem.edges.size(); ++edge) {
    auto [first, second] = problem.edges[edge];
    std::span<const int64_t> costs = problem.edgeCosts[edge];
    auto [row, isNew] = rows.try_emplace({costs.data(), kept[first], kept[second]}, edge);
    if (!isNew) {
      result.edgeCosts.repeatRow(row->second);
      continue;
    }
    for (uint32_t i : kept[first])
      for (uint32_t j : kept[second])
        result.edgeCosts.append(costs[i * problem.getNumStrategies(second) + j]);
    result.edgeCosts.endRow();
  }
  return result;
}

static std::string findFaultOfNode(const Problem &problem, size_t node) {
  auto [begin, end] = problem.intervals[node];
  if (begin < 0 || begin > end)
    return at("nodes.intervals", node) + " is [" + std::to_string(begin) + ", " +
           std::to_string(end) + "]; it must have 0 <= begin <= end";
  size_t strategies = problem.getNumStrategies(node);
  if (strategies == 0)
    return at("nodes.costs", node) + " is empty: the node has no strategy";
  if (strategies > mostStrategies)
    return at("nodes.costs", node) + " has " + countOf(strategies, "strategies; at most ") +
           std::to_string(mostStrategies) + " are supported";
  if (problem.usages[node].size() != strategies)
    return at("nodes.usages", node) + " has " + countOf(problem.usages[node].size(), "values, ") +
           at("nodes.costs", node) + " has " + std::to_string(strategies);
  return "";
}

static std::string findFaultOfEdge(const Problem &problem, size_t edge) {
  Edge ends = problem.edges[edge];
  for (uint32_t node : {ends.first, ends.second})
    if (node >= problem.getNumNodes())
      return at("edges.nodes", edge) + " names node " + std::to_string(node) + "; there are " +
             countOf(problem.getNumNodes(), "nodes");
  size_t rows = problem.getNumStrategies(ends.first);
  size_t columns = problem.getNumStrategies(ends.second);
  if (problem.edgeCosts[edge].size() != rows * columns)
    return at("edges.costs", edge) + " has " + countOf(problem.edgeCosts[edge].size(), "values; ") +
           "nodes " + std::to_string(ends.first) + " and " + std::to_string(ends.second) +
           " need " + std::to_string(rows) + " * " + std::to_string(columns);
  return "";
}

/// Adds the row's largest finite value to `sum`; false if a value is negative or the sum too large.
static bool addLargest(std::span<const int64_t> row, int64_t &sum) {
  int64_t largest = 0;
  for (int64_t value : row) {
    if (value < 0)
      return false;
    if (value < infiniteCost)
      largest = std::max(largest, value);
  }
  return largest <= largestSum - sum && (sum += largest, true);
}

static std::string findFaultOfSums(const Problem &problem) {
  auto describe = [](const char *table, size_t row) {
    return at(table, row) +
           " has a negative value, or the largest values of all rows sum to more "
           "than " +
           std::to_string(largestSum);
  };
  int64_t cost = 0, usage = 0;
  for (size_t node = 0; node < problem.getNumNodes(); ++node) {
    if (!addLargest(problem.costs[node], cost))
      return describe("nodes.costs", node);
    for (int64_t value : problem.usages[node])
      if (value >= infiniteCost)
        return at("nodes.usages", node) + " has a usage of " + std::to_string(value) +
               "; it must be below " + std::to_string(infiniteCost);
    if (!addLargest(problem.usages[node], usage))
      return describe("nodes.usages", node);
  }
  for (size_t edge = 0; edge < problem.edges.size(); ++edge)
    if (!addLargest(problem.edgeCosts[edge], cost))
      return describe("edges.costs", edge);
  return "";
}

std::string gridloom::solver::findFault(const Problem &problem) {
  size_t numNodes = problem.getNumNodes();
  if (numNodes == 0)
    return "the problem has no nodes";
  if (numNodes > mostNodes || problem.edges.size() > mostNodes)
    return "more than " + std::to_string(mostNodes) + " nodes or edges are not supported";
  if (problem.costs.size() != numNodes || problem.usages.size() != numNodes)
    return "nodes.intervals has " + countOf(numNodes, "rows, nodes.costs has ") +
           countOf(problem.costs.size(), "and nodes.usages has ") +
           std::to_string(problem.usages.size());
  if (problem.edgeCosts.size() != problem.edges.size())
    return "edges.nodes has " + countOf(problem.edges.size(), "rows, edges.costs has ") +
           std::to_string(problem.edgeCosts.size());
  if (problem.usageLimit < 0)
    return "usage_limit is " + std::to_string(problem.usageLimit) + "; it must not be negative";
  for (size_t node = 0; node < numNodes; ++node)
    if (std::string fault = findFaultOfNode(problem, node); !fault.empty())
      return fault;
  for (size_t edge = 0; edge < problem.edges.size(); ++edge)
    if (std::string fault = findFaultOfEdge(problem, edge); !fault.empty())
      return fault;
  return findFaultOfSums(problem);
}
