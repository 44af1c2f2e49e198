//===- Bound.h - lower bounds and memory prices -----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_SOLVER_BOUND_H
#define GRIDLOOM_SOLVER_BOUND_H

#include "compiler/solver/Network.h"

namespace gridloom::solver {

/// A lower bound by Lagrangian relaxation. Prices on the memory at each time replace the limits;
/// what remains is an energy of nodes and edges, bounded by messages between neighbours: sequential
/// tree-reweighted message passing (Kolmogorov, IEEE PAMI 28 (2006), section 4). Prices follow a
/// deflected subgradient (Camerini, Fratta, Maffioli, Math. Programming Study 3 (1975)) with
/// Polyak's step lengths (Held, Wolfe, Crowder, Math. Programming 6 (1974)).
class Bound {
public:
  explicit Bound(const Network &network);

  /// One pass forward and back with the current prices, then a step of the prices. `best` is the
  /// cost of the best feasible assignment, or infinity.
  void iterate(double best);

  /// The largest bound so far, in the units of cost; rounding errors are subtracted.
  double getBound() const { return bestBound; }
  /// The assignment that the last pass suggests.
  const std::vector<uint32_t> &getSuggestion() const { return suggestion; }
  /// The cost of the memory of each node's strategies at the prices of the best bound; laid out as
  /// the network's costs.
  const std::vector<double> &getMemoryCosts() const { return bestMemoryCosts; }
  /// The cost of the memory limits at the same prices.
  double getLimitsCost() const;
  /// Table entries that one iteration reads: the unit of work.
  size_t getWork() const;

private:
  void collect(uint32_t node);
  void send(uint32_t node, bool isForward);
  double passBack();
  void passForward();
  void updateMemoryCosts();
  void updatePrices(double best);
  void findGradient(std::vector<double> &gradient) const;

  const Network &network;
  std::vector<size_t> messagesAt; // of each link's message to its node
  std::vector<double> messages;
  std::vector<double> weight; // of each node: 1 / max(links to earlier nodes, links to later ones)
  std::vector<double> belief, outgoing; // of the current node
  std::vector<double> prices, bestPrices, direction;
  std::vector<double> memoryCosts, bestMemoryCosts;
  std::vector<uint32_t> suggestion;
  double bound = 0, bestBound;
  double stepScale = 1;
  int stepsWithoutGain = 0;
};

} // namespace gridloom::solver

#endif // GRIDLOOM_SOLVER_BOUND_H
