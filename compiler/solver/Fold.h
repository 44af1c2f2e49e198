//===- Fold.h - make the problem smaller without loss -----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_SOLVER_FOLD_H
#define GRIDLOOM_SOLVER_FOLD_H

#include "compiler/solver/Model.h"

#include <string_view>

namespace gridloom::solver {

/// What was computed from numbers, by these: layers alike ask the same again and again.
template <typename Result> class Memo {
public:
  /// The result for `key`; `compute` makes it of the key the first time.
  template <typename Compute> const Result &get(std::vector<int64_t> key, const Compute &compute) {
    if (auto entry = results.find(key); entry != results.end())
      return entry->second;
    // Where little repeats, memory must not grow with the problem.
    if (stored + key.size() > mostStored) {
      results.clear();
      stored = 0;
    }
    stored += key.size();
    auto entry = results.try_emplace(std::move(key)).first;
    entry->second = compute(std::span<const int64_t>(entry->first));
    return entry->second;
  }

private:
  struct Hash {
    size_t operator()(const std::vector<int64_t> &key) const {
      return std::hash<std::string_view>()(
          {reinterpret_cast<const char *>(key.data()), key.size() * sizeof(int64_t)});
    }
  };
  static constexpr size_t mostStored = 16 << 20; // numbers
  std::unordered_map<std::vector<int64_t>, Result, Hash> results;
  size_t stored = 0;
};

/// Removes from a problem what need not be searched: strategies that no feasible or no best
/// assignment has, nodes whose best strategy follows from at most two others, edges that are sums
/// of node costs, and times that do not bind. The least cost stays the same, and so does whether
/// there is a feasible assignment. Memory is part of every rule: a node is only folded away where
/// its memory follows as well.
class Folding {
public:
  explicit Folding(const Problem &problem) : problem(problem), model(problem) {}

  /// Applies the rules until none does. Returns why no assignment is feasible, as one line; empty
  /// if the rules do not show that.
  std::string fold();

  const Model &getModel() const { return model; }

  /// The problem's assignment for a choice of strategies of the nodes that are left, given by the
  /// problem's numbers; entries of other nodes are ignored.
  Assignment unfold(Assignment strategies) const;

private:
  /// A removed node's strategy, by those of up to two nodes that were removed later, or never.
  struct Decision {
    uint32_t node;
    std::vector<uint32_t> parents;
    std::vector<uint32_t> strategy; // by the parents' strategies of the problem, row-major
  };

  bool takeMemory();
  bool removeUnfit();
  bool removeUnfitStrategies(uint32_t node, const class RangeMinimum &room);
  bool forbidUnfitPairs(uint32_t edge, const class RangeMinimum &room);
  std::vector<bool> findPartners(uint32_t index, const ModelEdge &edge) const;
  bool removeForbidden();
  bool removeDominated(uint32_t node);
  void addTable(uint32_t node, uint32_t edge, std::vector<int64_t> &key) const;
  bool splitEdge(uint32_t edge);
  bool foldNode(uint32_t node);
  bool fixNode(uint32_t node);
  bool foldFollower(uint32_t node);
  bool findLeader(uint32_t node, const ModelEdge &edge, std::vector<uint32_t> &follow) const;
  void follow(uint32_t node, uint32_t leader, uint32_t edge, const std::vector<uint32_t> &follow);
  bool eliminateBridge(uint32_t node);
  struct Bridge;
  static Bridge joinTables(std::span<const int64_t> numbers, size_t size);

  bool keep(uint32_t node, const std::vector<bool> &isKept);
  void touch(uint32_t node);
  std::vector<uint32_t> getEdges(uint32_t node) const;
  size_t getProblemSize(uint32_t node) const { return problem.getNumStrategies(node); }

  const Problem &problem;
  Model model;
  std::vector<Decision> decisions;
  // Nodes whose rules may apply anew.
  std::vector<bool> isTouched;
  // Nodes that others have joined. They are touched together, as some have thousands of followers
  // and of edges.
  std::vector<uint32_t> leaders;
  size_t movedEdges = 0, mostMovedEdges = 0; // by foldFollower, which must stay linear
  /// The table of a bridge between its neighbours, and the best strategies that it is made of.
  struct Bridge {
    std::vector<Cost> cost;
    std::vector<uint32_t> best;
  };
  Memo<std::vector<bool>> keptStrategies;
  Memo<Bridge> bridges;
  std::string conflict;
};

} // namespace gridloom::solver

#endif // GRIDLOOM_SOLVER_FOLD_H
