//===- Fold.h - make the problem smaller without loss -----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_SOLVER_FOLD_H
#define GRIDLOOM_SOLVER_FOLD_H

#include "compiler/solver/Model.h"

#include <string>

namespace gridloom::solver {

/// Removes from a problem what need not be searched: strategies that cannot be feasible or are not
/// needed for the least cost, nodes whose best strategy follows from at most two others, edges that
/// are sums of node costs, and times that do not bind. The least cost stays the same, and so does
/// whether the problem is feasible. Every rule respects memory: a node is only removed if its
/// memory follows as well.
class Folding {
public:
  explicit Folding(const Problem &problem) : problem(problem), model(problem) {}

  /// Applies the rules until none applies. Returns in one line why no assignment is feasible; empty
  /// if the rules do not show that.
  std::string fold();

  const Model &getModel() const { return model; }

  /// The problem's assignment for strategies of the remaining nodes, both in the problem's numbers;
  /// entries of removed nodes are ignored.
  Assignment unfold(Assignment strategies) const;

private:
  /// A removed node's strategy, by those of up to two nodes that were removed later or remain.
  struct Decision {
    uint32_t node;
    std::vector<uint32_t> parents;
    /// By the parents' strategies, row-major; shared by nodes with equal tables.
    std::shared_ptr<const std::vector<uint32_t>> choice;
    std::vector<uint32_t> strategies; // the problem's, left when the node is removed
    std::vector<std::vector<uint32_t>> parentStrategies; // the same of the parents
  };

  bool takeMemory();
  bool removeUnfit();
  bool removeUnfitStrategies(uint32_t node, const class RangeMinimum &room);
  bool forbidUnfitPairs(uint32_t edge, const class RangeMinimum &room);
  bool removeForbidden();
  bool removeDominated(uint32_t node);
  bool splitEdge(uint32_t edge);
  bool foldNode(uint32_t node);
  bool fixNode(uint32_t node);
  bool foldFollower(uint32_t node);
  bool findLeader(uint32_t node, const ModelEdge &edge, std::vector<uint32_t> &follow) const;
  void follow(uint32_t node, uint32_t leader, uint32_t edge, const std::vector<uint32_t> &follow);
  bool eliminateBridge(uint32_t node);

  bool keep(uint32_t node, const std::vector<bool> &isKept);
  void touch(uint32_t node);
  std::vector<uint32_t> getEdges(uint32_t node) const;
  /// Records that the parents' strategies decide the node's, by `choice`.
  void decide(uint32_t node, std::vector<uint32_t> parents,
              std::shared_ptr<const std::vector<uint32_t>> choice);

  const Problem &problem;
  Model model;
  std::vector<Decision> decisions;
  // Nodes to which rules may apply again.
  std::vector<bool> isTouched;
  // Nodes that others have joined. They are touched once a round, since some have thousands of
  // followers and edges.
  std::vector<uint32_t> leaders;
  size_t movedEdges = 0, mostMovedEdges = 0; // by foldFollower, to keep it linear
  using View = std::shared_ptr<const TableView>;
  struct Kept {
    std::vector<bool> strategies;
    std::vector<View> views; // keep the addresses in the key from being reused
  };
  /// The table that replaces a bridge between its neighbours, and the bridge's best strategies.
  struct Bridge {
    Table cost;
    std::shared_ptr<const std::vector<uint32_t>> best;
    View left, right;
  };
  Memo<Kept> keptStrategies;
  Memo<Bridge> bridges;
  std::string conflict;
};

} // namespace gridloom::solver

#endif // GRIDLOOM_SOLVER_FOLD_H
