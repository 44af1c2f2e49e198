//===- Checker.cpp - what an assignment costs -----------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/solver/Checker.h"

#include <map>

using namespace gridloom::solver;

static std::string findWrongStrategy(const Problem &problem, const Assignment &assignment) {
  if (assignment.size() != problem.getNumNodes())
    return "the assignment has " + std::to_string(assignment.size()) + " nodes, the problem has " +
           std::to_string(problem.getNumNodes());
  for (size_t node = 0; node < assignment.size(); ++node)
    if (assignment[node] >= problem.getNumStrategies(node))
      return "node " + std::to_string(node) + " has no strategy " +
             std::to_string(assignment[node]);
  return "";
}

static void sumCosts(const Problem &problem, const Assignment &assignment, Evaluation &result) {
  auto add = [&](Cost cost, const char *what, size_t index) {
    if (cost < infiniteCost)
      result.cost += cost;
    else if (result.fault.empty())
      result.fault = std::string(what) + " " + std::to_string(index) + " has infinite cost";
  };
  for (size_t node = 0; node < assignment.size(); ++node)
    add(problem.costs[node][assignment[node]], "node", node);
  for (size_t edge = 0; edge < problem.edges.size(); ++edge) {
    auto [first, second] = problem.edges[edge];
    size_t columns = problem.getNumStrategies(second);
    add(problem.edgeCosts[edge][assignment[first] * columns + assignment[second]], "edge", edge);
  }
  if (!result.fault.empty())
    result.cost = infiniteCost;
}

static void sumUsages(const Problem &problem, const Assignment &assignment, Evaluation &result) {
  std::map<int64_t, int64_t> changes; // of the total usage, by time
  for (size_t node = 0; node < assignment.size(); ++node) {
    auto [begin, end] = problem.intervals[node];
    if (begin == end)
      continue;
    changes[begin] += problem.usages[node][assignment[node]];
    changes[end] -= problem.usages[node][assignment[node]];
  }
  int64_t usage = 0;
  for (auto [time, change] : changes) {
    usage += change;
    if (usage > result.peakUsage) {
      result.peakUsage = usage;
      result.peakTime = time;
    }
  }
  if (result.peakUsage > problem.usageLimit && result.fault.empty())
    result.fault = "the usage at time " + std::to_string(result.peakTime) + " is " +
                   std::to_string(result.peakUsage) + ", above the limit of " +
                   std::to_string(problem.usageLimit);
}

Evaluation gridloom::solver::evaluate(const Problem &problem, const Assignment &assignment) {
  Evaluation result;
  result.fault = findWrongStrategy(problem, assignment);
  if (!result.fault.empty()) {
    result.cost = infiniteCost;
    return result;
  }
  sumCosts(problem, assignment, result);
  sumUsages(problem, assignment, result);
  return result;
}
