//===- Solver.h - from a problem to an assignment ---------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_SOLVER_SOLVER_H
#define GRIDLOOM_SOLVER_SOLVER_H

#include "compiler/solver/Problem.h"

#include <chrono>
#include <functional>
#include <limits>
#include <optional>

namespace gridloom::solver {

/// What the solver knows after some rounds.
struct Progress {
  uint64_t work = 0;        // rounds
  bool isFeasible = false;  // whether there is an assignment
  Cost cost = infiniteCost; // of the best one
  Cost lowerBound = 0;      // no feasible assignment costs less
};

struct Options {
  using Clock = std::chrono::steady_clock;
  /// When to stop, with the result of the rounds until then. One round is run in any case, and some
  /// more if none has found an assignment.
  Clock::time_point deadline = Clock::time_point::max();
  /// Rounds to run. Their result depends neither on the number of threads nor on their speed.
  uint64_t work = std::numeric_limits<uint64_t>::max();
  /// Stop when the best assignment is above the bound by at most this share of its cost.
  double gap = 0;
  /// Stop at the first feasible assignment, or after `mostRoundsWithoutAny` if there is none.
  bool isFirstEnough = false;
  static constexpr uint64_t mostRoundsWithoutAny = 2000;
  unsigned numThreads = 1;
  /// Asked for an assignment to start from, if the problem is not solved without rounds. It may
  /// return none, or be null.
  std::function<Assignment()> suggestStart;
  /// Asked between rounds, once there is an assignment, whether it is good enough. May be null.
  std::function<bool(const Progress &)> isEnough;
  /// Called between rounds. May be null.
  std::function<void(const Progress &)> onProgress;
};

struct Solution {
  Progress progress;
  Assignment assignment; // empty if none was found
  bool isCut = false;    // Options::isEnough ended the rounds
  /// Why no assignment is feasible, or that none was found; else empty. One line.
  std::string fault;
  /// Whether it is proven that no assignment is feasible. If not, more work may find one.
  bool isProvenInfeasible = false;
};

/// Folds the problem, searches what is left, unfolds the best assignment and checks it against the
/// problem. `problem` must be without fault (findFault). Stops early at an assignment that costs no
/// more than the bound, or than `gap` allows.
Solution solve(const Problem &problem, const Options &options);

} // namespace gridloom::solver

#endif // GRIDLOOM_SOLVER_SOLVER_H
