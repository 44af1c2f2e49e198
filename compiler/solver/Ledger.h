//===- Ledger.h - memory in use over time -----------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_SOLVER_LEDGER_H
#define GRIDLOOM_SOLVER_LEDGER_H

#include "compiler/solver/Network.h"

namespace gridloom::solver {

struct Change {
  uint32_t node, strategy;
};

/// The memory that an assignment of a network leaves at each time.
class Ledger {
public:
  Ledger(const Network &network, const std::vector<uint32_t> &chosen);

  /// Sum over time of the usage above the limits.
  double getExcess() const { return excess; }
  int64_t getSlack(uint32_t time) const { return slack[time]; }
  /// The first time with the least slack; there must be a time.
  uint32_t getWorstTime() const;

  /// The effect of changes. Scratch space that each thread owns.
  struct Effect {
    double excess = 0;      // afterwards
    int64_t worst = 0;      // the largest usage above a limit, at times that change
    uint32_t worstTime = 0; // where it is
    std::vector<std::pair<uint32_t, int64_t>> steps; // of the usage, by time
  };
  /// Computes the effect of `changes` to `chosen`, the ledger's assignment. Reuses the buffers of
  /// `effect`.
  void compute(const std::vector<uint32_t> &chosen, std::span<const Change> changes,
               Effect &effect) const;
  /// Applies what `compute` has found.
  void apply(const Effect &effect);

private:
  static constexpr uint32_t blockSize = 64;
  template <typename Visit> void forEachRange(const Effect &effect, Visit visit) const;
  void updateBlock(uint32_t block);

  const Network *network;
  std::vector<int64_t> slack;      // limit - usage
  std::vector<int64_t> leastSlack; // of each block of times
  double excess = 0;
};

} // namespace gridloom::solver

#endif // GRIDLOOM_SOLVER_LEDGER_H
