//===- SolverTesting.h - random problems and their optima -------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_TEST_SOLVER_SOLVERTESTING_H
#define GRIDLOOM_TEST_SOLVER_SOLVERTESTING_H

#include "compiler/solver/Checker.h"
#include "compiler/solver/State.h"

#include <algorithm>
#include <optional>

namespace gridloom::solver {

struct Shape {
  uint32_t leastNodes, mostNodes, mostStrategies;
  double edgesPerNode;
  size_t costsPerInfinity = 8;
};

/// A problem whose limit is at least the smallest possible peak and at most halfway from it to the
/// largest. One in `costsPerInfinity` costs is infinite, so the problem may be infeasible.
inline Problem makeRandomProblem(uint64_t seed, Shape shape) {
  Random random(seed);
  Problem problem;
  uint32_t numNodes = shape.leastNodes + random.below(shape.mostNodes - shape.leastNodes + 1);
  auto makeCost = [&](int64_t most) {
    return random.below(shape.costsPerInfinity) == 0 ? infiniteCost
                                                     : int64_t(random.below(size_t(most)));
  };
  Assignment least, most;
  for (uint32_t i = 0; i < numNodes; ++i) {
    int64_t begin = random.below(8);
    problem.intervals.push_back({begin, begin + random.below(5)});
    uint32_t strategies = 1 + random.below(shape.mostStrategies);
    std::vector<int64_t> usages;
    for (uint32_t k = 0; k < strategies; ++k) {
      problem.costs.append(k == 0 ? int64_t(random.below(50)) : makeCost(50));
      usages.push_back(random.below(20));
    }
    problem.costs.endRow();
    problem.usages.addRow(usages);
    least.push_back(uint32_t(std::min_element(usages.begin(), usages.end()) - usages.begin()));
    most.push_back(uint32_t(std::max_element(usages.begin(), usages.end()) - usages.begin()));
  }
  for (size_t e = 0; e < size_t(shape.edgesPerNode * numNodes); ++e) {
    Edge edge{random.below(numNodes), random.below(numNodes)};
    problem.edges.push_back(edge);
    size_t entries = problem.getNumStrategies(edge.first) * problem.getNumStrategies(edge.second);
    for (size_t i = 0; i < entries; ++i)
      problem.edgeCosts.append(makeCost(30));
    problem.edgeCosts.endRow();
  }
  int64_t low = evaluate(problem, least).peakUsage, high = evaluate(problem, most).peakUsage;
  problem.usageLimit = low + int64_t(random.below(size_t(high - low + 1))) / 2;
  return problem;
}

/// The least cost of any feasible assignment, found by trying all; none if there is none.
inline std::optional<Cost> findOptimum(const Problem &problem) {
  std::optional<Cost> best;
  Assignment assignment(problem.getNumNodes());
  // Prunes by cost only and leaves memory to the checker: independent of how the solver treats it.
  auto visit = [&](auto &self, uint32_t node, Cost cost) -> void {
    if (cost >= infiniteCost || (best && cost >= *best))
      return;
    if (node == assignment.size()) {
      if (evaluate(problem, assignment).isFeasible())
        best = cost;
      return;
    }
    for (uint32_t k = 0; k < problem.getNumStrategies(node); ++k) {
      assignment[node] = k;
      Cost next = cost + problem.costs[node][k];
      for (size_t e = 0; e < problem.edges.size(); ++e) {
        auto [first, second] = problem.edges[e];
        if (std::max(first, second) == node && next < infiniteCost)
          next += problem.edgeCosts[e][assignment[first] * problem.getNumStrategies(second) +
                                       assignment[second]];
      }
      self(self, node + 1, next);
    }
  };
  visit(visit, 0, 0);
  return best;
}

} // namespace gridloom::solver

#endif // GRIDLOOM_TEST_SOLVER_SOLVERTESTING_H
