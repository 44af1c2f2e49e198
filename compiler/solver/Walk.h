//===- Walk.h - improve an assignment around one place ----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_SOLVER_WALK_H
#define GRIDLOOM_SOLVER_WALK_H

#include "compiler/solver/Forest.h"

namespace gridloom::solver {

/// A short search from a state: it disturbs some nodes, then solves forests around them while
/// others stay (iterated local search with the large neighbourhoods of Forest). Scratch space for
/// one thread; results depend on the arguments alone.
class Walk {
public:
  explicit Walk(const Network &network) : network(network), forest(network) {}

  /// Returns the changes from `best` to the last state of the walk; none if that is worse. A walk
  /// that starts at `best` mostly disturbs some nodes first. `memoryCosts` are the Bound's.
  std::vector<Change> run(const State &best, const State &start,
                          const std::vector<double> &memoryCosts, Random random);

  uint64_t getWork() const { return forest.getWork(); }

private:
  void growConnected(uint32_t seed, size_t size, Random &random);
  void growAtTime(uint32_t time, size_t size, Random &random);
  void grow(size_t size, Random &random);
  uint32_t pickNodeAt(uint32_t time, Random &random) const;
  uint32_t pickTime(const State &state, uint32_t node, Random &random) const;
  void selectForest(const State &state, uint32_t place, size_t size, Random &random);
  void disturb(State &state, Random &random);
  bool improve(State &state, const std::vector<double> &memoryCosts, Random &random);
  bool take(State &state);
  void raisePrice(const State &state, double gain);

  const Network &network;
  Forest forest;
  std::vector<uint32_t> frontier;
  std::vector<Change> changes;
  Ledger::Effect effect;
};

} // namespace gridloom::solver

#endif // GRIDLOOM_SOLVER_WALK_H
