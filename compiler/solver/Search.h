//===- Search.h - rounds of walks and bounds on several threads -*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_SOLVER_SEARCH_H
#define GRIDLOOM_SOLVER_SEARCH_H

#include "compiler/solver/Bound.h"
#include "compiler/solver/Elimination.h"
#include "compiler/solver/Walk.h"

#include <cmath>
#include <limits>
#include <memory>

namespace gridloom::solver {

/// Searches a network in rounds. A round is a fixed list of tasks: some walks, from the best state
/// or the last suggestion, and maybe an iteration of the bound; some rounds end with an
/// elimination. Threads share the tasks; results are applied in the order of the list, so the state
/// after N rounds depends on N alone.
class Search {
public:
  /// Also tries an elimination's assignments at the bound's prices of memory, if there is one that
  /// has an order. It must outlive the search. `knownBound` is a lower bound of the cost.
  Search(const Network &network, unsigned numThreads, Elimination *elimination = nullptr,
         double knownBound = -std::numeric_limits<double>::infinity());

  /// Takes the assignment for the best so far, if it is better than an arbitrary one, and walks
  /// from the best state from the first walks on.
  void startFrom(std::vector<uint32_t> chosen);
  void runRound();

  uint64_t getNumRounds() const { return numRounds; }
  const State &getState() const { return *state; }
  bool isFeasible() const { return state->isFeasible(network); }
  /// A lower bound of the network's cost, rounded up to a whole number, as costs are.
  double getBound() const;
  /// Whether the best assignment is feasible and above the bound by at most `gap` times its cost.
  bool isOptimal(double gap) const {
    return isFeasible() && state->cost - gap * std::abs(state->cost) <= getBound();
  }

private:
  bool wantsBound() const;
  void takeSuggestion(std::vector<uint32_t> chosen);
  void eliminate();
  void takeChanges(std::vector<Change> &changes);

  const Network &network;
  unsigned numThreads;
  Bound bound;
  Elimination *elimination;                 // may be null
  std::vector<double> eliminatedPrices;     // of memory, at the last elimination
  double eliminationBound;                  // of eliminations, or known before
  std::vector<std::unique_ptr<Walk>> walks; // of each thread
  std::unique_ptr<State> state;             // the best
  std::unique_ptr<State> suggestion;        // the last one of bound or elimination, if it is new
  uint64_t numRounds = 0, boundWork = 0, walkWork = 0, eliminationWork = 0;
  int numBounds = 0;
  bool hasStart = false;
  Ledger::Effect effect;
};

} // namespace gridloom::solver

#endif // GRIDLOOM_SOLVER_SEARCH_H
