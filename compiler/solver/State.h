//===- State.h - an assignment with its cost and memory ---------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_SOLVER_STATE_H
#define GRIDLOOM_SOLVER_STATE_H

#include "compiler/solver/Ledger.h"

namespace gridloom::solver {

/// An assignment of a network that changes step by step. It may be infeasible: states compare by
/// memory above the limits first, then by cost.
struct State {
  State(const Network &network, std::vector<uint32_t> strategies)
      : chosen(std::move(strategies)), ledger(network, chosen), cost(network.getCost(chosen)) {}

  bool isFeasible(const Network &network) const {
    return ledger.getExcess() == 0 && cost < network.mostCost + 0.5;
  }
  bool isBetterThan(const State &other) const {
    return std::pair(ledger.getExcess(), cost) < std::pair(other.ledger.getExcess(), other.cost);
  }

  /// Makes the changes, except in the ledger, and returns the cost that they add. Writes the
  /// replaced strategies to `changes`, so that a second call undoes the first.
  double exchange(const Network &network, std::vector<Change> &changes);

  std::vector<uint32_t> chosen;
  Ledger ledger;
  double cost;
};

/// A sequence of random numbers (SplitMix64: Steele, Lea, Flood, OOPSLA 2014). Standard
/// distributions would make results differ between libraries.
class Random {
public:
  explicit Random(uint64_t seed) : state(seed) {}
  uint64_t next() {
    uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
  }
  /// Below `count`, which is at most 2^32.
  uint32_t below(size_t count) { return uint32_t((next() >> 32) * count >> 32); }
  /// In [0, 1).
  double unit() { return double(next() >> 11) * 0x1p-53; }

private:
  uint64_t state;
};

} // namespace gridloom::solver

#endif // GRIDLOOM_SOLVER_STATE_H
