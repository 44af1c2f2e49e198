//===- Tables.h - costs of two nodes' strategies ----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_SOLVER_TABLES_H
#define GRIDLOOM_SOLVER_TABLES_H

#include "compiler/solver/Problem.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <unordered_map>

namespace gridloom::solver {

/// A sum that saturates at infiniteCost; finite terms may be negative.
inline Cost addCosts(Cost a, Cost b) {
  return std::max(a, b) >= infiniteCost ? infiniteCost : std::min(a + b, infiniteCost);
}

/// Caches results that are computed from numbers: equal layers ask for the same again and again.
template <typename Result> class Memo {
public:
  using Key = std::vector<int64_t>;

  /// The result for `key`, computed on first use. `weight` is about how many numbers it holds.
  template <typename Compute> const Result &get(Key key, size_t weight, const Compute &compute) {
    if (auto entry = results.find(key); entry != results.end())
      return entry->second;
    // If little repeats, memory must not grow with the problem.
    if (stored + key.size() + weight > mostStored) {
      results.clear();
      stored = 0;
    }
    stored += key.size() + weight;
    return results.try_emplace(std::move(key), compute()).first->second;
  }

private:
  struct Hash {
    size_t operator()(const Key &key) const {
      return std::hash<std::string_view>()(
          {reinterpret_cast<const char *>(key.data()), key.size() * sizeof(int64_t)});
    }
  };
  static constexpr size_t mostStored = 16 << 20; // numbers
  std::unordered_map<Key, Result, Hash> results;
  size_t stored = 0;
};

/// The costs of two nodes' strategies, row-major, at most infiniteCost. Immutable: edges of equal
/// layers share a table.
using Table = std::shared_ptr<const std::vector<Cost>>;

/// A table seen from one of its nodes.
struct TableView {
  Table source; // keeps its address from being reused
  Table costs;  // row-major by the node's own strategies
  size_t columns;
  std::vector<size_t> least; // by own strategy, the column of the least cost
  bool allowsAll = true;     // whether each own strategy has a finite cost

  std::span<const Cost> getRow(size_t strategy) const {
    return std::span(*costs).subspan(strategy * columns, columns);
  }
  bool allows(size_t strategy) const { return getRow(strategy)[least[strategy]] < infiniteCost; }
};

/// Makes tables, and shares equal ones as long as one is in use. Remembers which tables it made
/// from others.
class Tables {
public:
  Table add(std::vector<Cost> costs);
  /// An edge's table seen from the node with `size` strategies, which is the edge's first if
  /// `isFirst`.
  std::shared_ptr<const TableView> getView(const Table &table, size_t size, bool isFirst);
  /// The table with only those of this node's strategies whose flag is set.
  Table keep(const Table &table, bool isFirst, const std::vector<bool> &isKept);
  /// The rows of these strategies of a node that has `size`; in the result that node is the first.
  Table select(const Table &table, size_t size, bool isFirst,
               const std::vector<uint32_t> &strategies);
  /// The sum of a table and another whose second node has `columns` strategies. With `isSwapped`
  /// that second node is the table's first.
  Table sum(const Table &table, const Table &other, size_t columns, bool isSwapped);

private:
  struct Made {
    Table result;
    std::vector<Table> sources; // keep their addresses from being reused
  };

  std::unordered_map<size_t, std::weak_ptr<const std::vector<Cost>>> known; // by hash
  Memo<std::shared_ptr<const TableView>> views;
  Memo<Made> kept, selected, sums;
};

/// A table's number in keys: unique while the table exists.
inline int64_t getNumber(const Table &table) {
  return static_cast<int64_t>(reinterpret_cast<intptr_t>(table.get()));
}

} // namespace gridloom::solver

#endif // GRIDLOOM_SOLVER_TABLES_H
