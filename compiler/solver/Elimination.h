//===- Elimination.h - the best assignment of a narrow network --*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_SOLVER_ELIMINATION_H
#define GRIDLOOM_SOLVER_ELIMINATION_H

#include "compiler/solver/Network.h"

namespace gridloom::solver {

/// The cheapest assignment of a network, without limits of memory, by nonserial dynamic programming
/// (Bertele, Brioschi, Nonserial Dynamic Programming, 1972; bucket elimination in Dechter,
/// Artificial Intelligence 113 (1999), section 3). Nodes are eliminated one by one: a table of a
/// node's best strategy, by those of its neighbours, replaces it and joins them. Layers in a row
/// stay narrow: few nodes are neighbours at any time.
class Elimination {
public:
  explicit Elimination(const Network &network) : network(network) {}

  /// Finds an order of elimination, greedily the smallest table first. False if the tables would
  /// have more than `mostEntries` entries, or if filling them would take more than `mostWork`
  /// additions.
  bool findOrder(double mostEntries, double mostWork);
  /// The cheapest assignment if each strategy also costs what `added` says, which is laid out as
  /// the network's costs or empty.
  std::vector<uint32_t> solve(std::span<const double> added = {});

  /// The most additions that `solve` takes, which are its unit of work.
  uint64_t getWork() const { return work; }

private:
  /// A node's elimination. Its neighbours at that time are sorted from the last eliminated to the
  /// first, so that whoever reads the table next is its last dimension.
  struct Step {
    uint32_t node;
    std::vector<uint32_t> scope;
  };
  /// A summand of a step's table: costs by the strategies of nodes of the scope, and of the step's
  /// node, for which they are contiguous.
  struct Term {
    const double *costs;
    std::vector<size_t>
        strides;  ///< by node of the step's scope; 0 if the costs do not depend on it
    size_t depth; ///< of the first nodes of the scope, all that the costs depend on

    /// The costs by the step's node, if the first nodes of the scope have these strategies and the
    /// others do not matter.
    const double *getCosts(std::span<const uint32_t> at) const;
  };

  double countWork();
  std::vector<Term> listTerms(size_t step) const;
  std::vector<double> getOwnCosts(uint32_t node, std::span<const double> added) const;
  /// Fills the step's table.
  void eliminate(size_t step, std::span<const double> added);
  /// The best strategy of the step's node beside those chosen for its scope; the first of equal
  /// ones.
  uint32_t choose(size_t step, std::span<const double> added,
                  std::span<const uint32_t> chosen) const;

  const Network &network;
  std::vector<Step> steps;
  uint64_t work = 0;
  std::vector<size_t> stepOf;                    ///< of each node in `steps`
  std::vector<std::vector<double>> tables;       ///< of each step, by the strategies of its scope
  std::vector<std::vector<size_t>> tablesToRead; ///< by step: the steps whose tables it reads
};

} // namespace gridloom::solver

#endif // GRIDLOOM_SOLVER_ELIMINATION_H
