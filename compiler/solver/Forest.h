//===- Forest.h - best choices of nodes that form trees ---------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_SOLVER_FOREST_H
#define GRIDLOOM_SOLVER_FOREST_H

#include "compiler/solver/State.h"

namespace gridloom::solver {

/// Nodes without a cycle among them. Dynamic programming from the leaves to the roots finds their
/// best choices together, while all other nodes stay as they are. Scratch space for one thread.
class Forest {
public:
  explicit Forest(const Network &network);

  void clear();
  /// Adds a node that has an edge to at most one member; false if it has more or is a member
  /// itself.
  bool add(uint32_t node);
  bool has(uint32_t node) const { return stamps[node] == stamp; }
  std::span<const uint32_t> getNodes() const { return nodes; }

  /// Sets each choice's cost to its own plus that of edges to other nodes, and all surcharges to 0.
  void loadCosts(const State &state);
  /// These add surcharges, which only steer the choices: `factor` times costs laid out as the
  /// network's; a price of memory at a time; random ones up to `most`.
  void addCosts(const std::vector<double> &costs, double factor);
  void addPrice(uint32_t time, double price);
  void addNoise(double most, Random &random);

  /// Finds the members' best choices; writes those that differ from the state's to `changes`.
  /// Returns the surcharges that the changes add.
  double solve(const State &state, std::vector<Change> &changes);

  /// Table entries read since the object was made.
  uint64_t getWork() const { return work; }

private:
  static constexpr uint32_t noParent = UINT32_MAX;
  struct Member {
    uint32_t parent;   // a member's number
    size_t linkAt;     // to the parent, in the network's links
    size_t costsAt;    // in `costs` and `surcharges`
    uint32_t strategy; // chosen
  };

  const Network &network;
  std::vector<uint32_t> stamps, numbers; // of each node of the network
  uint32_t stamp = 0;
  std::vector<uint32_t> nodes;
  std::vector<Member> members; // parents before children
  size_t numCosts = 0;
  std::vector<double> costs, surcharges, sums, least;
  uint64_t work = 0;
};

} // namespace gridloom::solver

#endif // GRIDLOOM_SOLVER_FOREST_H
