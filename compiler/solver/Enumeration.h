//===- Enumeration.h - the best assignment of a small network ---*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_SOLVER_ENUMERATION_H
#define GRIDLOOM_SOLVER_ENUMERATION_H

#include "compiler/solver/Network.h"

#include <optional>

namespace gridloom::solver {

/// Finds the best assignment by depth-first branch and bound: an assignment costs at least its
/// first choices plus the least that each later node can add.
class Enumeration {
public:
  explicit Enumeration(const Network &network);

  /// Tries at most `mostSteps` choices; false if the result needs more.
  bool run(uint64_t mostSteps);

  /// The best feasible assignment; nullopt if no assignment is feasible.
  const std::optional<std::vector<uint32_t>> &getBest() const { return best; }

private:
  bool visit(uint32_t node, double cost);
  double getAdded(uint32_t node, uint32_t strategy) const;
  bool use(uint32_t node, uint32_t strategy, int64_t sign);

  const Network &network;
  std::vector<double> leastAfter; // the least that the nodes from each one on add
  std::vector<int64_t> slack;
  std::vector<uint32_t> chosen;
  std::optional<std::vector<uint32_t>> best;
  double bestCost;
  uint64_t stepsLeft = 0;
};

} // namespace gridloom::solver

#endif // GRIDLOOM_SOLVER_ENUMERATION_H
