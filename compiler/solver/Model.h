//===- Model.h - the problem while it is folded -----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_SOLVER_MODEL_H
#define GRIDLOOM_SOLVER_MODEL_H

#include "compiler/solver/Tables.h"

namespace gridloom::solver {

/// Memory that a node's strategies take at the model's times begin <= t < end.
struct Piece {
  uint32_t begin, end;
  std::vector<int64_t> usage; // by strategy
};

/// A node; folding adds the costs and pieces of other nodes to its own.
struct ModelNode {
  std::vector<uint32_t> strategies; // the problem's strategies that are left, ascending
  std::vector<Cost> cost;           // by strategy, at most infiniteCost
  std::vector<Piece> pieces;
  std::vector<uint32_t> edges; // of the model; some may be dead
  uint32_t degree = 0;         // edges that are alive
  bool isAlive = true;

  size_t size() const { return strategies.size(); }
};

struct ModelEdge {
  uint32_t first, second;
  Table cost;
  bool isAlive = true;

  uint32_t getOther(uint32_t node) const { return node == first ? second : first; }
};

/// A problem from which nodes, strategies and times are being removed. Nodes keep the problem's
/// numbers. At most one edge joins two nodes, and none joins a node with itself.
class Model {
public:
  explicit Model(const Problem &problem);

  /// The cost of a choice of both ends, seen from `node`.
  Cost getCost(const ModelEdge &edge, uint32_t node, size_t own, size_t other) const {
    return node == edge.first ? (*edge.cost)[own * nodes[edge.second].size() + other]
                              : (*edge.cost)[other * nodes[edge.second].size() + own];
  }
  /// The edge's table, seen from `node`.
  std::shared_ptr<const TableView> getView(const ModelEdge &edge, uint32_t node) {
    return tables.getView(edge.cost, nodes[node].size(), node == edge.first);
  }

  /// Keeps the strategies whose flag is set, in the node and in its edges.
  void keepStrategies(uint32_t node, const std::vector<bool> &isKept);

  /// Adds a table (row-major, `first` times `second`) to the edge of two nodes; makes the edge if
  /// needed.
  void addEdge(uint32_t first, uint32_t second, const Table &cost);
  void removeEdge(uint32_t edge);
  /// Removes a node without edges.
  void removeNode(uint32_t node);

  /// Combines a node's pieces of the same interval.
  void combinePieces(uint32_t node);

  Tables tables;
  std::vector<ModelNode> nodes;
  std::vector<ModelEdge> edges;
  /// The memory left for the nodes' pieces at each time, and that time in the problem.
  std::vector<int64_t> limits;
  std::vector<int64_t> times;
  Cost constant = 0; // of decided choices

private:
  void addEdges(const Problem &problem);
  void addTimes(const Problem &problem);

  std::unordered_map<uint64_t, uint32_t> edgeOf; // by the two nodes, the lower first
};

} // namespace gridloom::solver

#endif // GRIDLOOM_SOLVER_MODEL_H
