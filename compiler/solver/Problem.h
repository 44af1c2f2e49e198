//===- Problem.h - choose a strategy per node -------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_SOLVER_PROBLEM_H
#define GRIDLOOM_SOLVER_PROBLEM_H

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace gridloom::solver {

/// Costs and usages are whole numbers in the problem's own units. A cost of `infiniteCost` or more
/// forbids the choice it belongs to.
using Cost = int64_t;
inline constexpr Cost infiniteCost = 1'000'000'000'000'000'000;

/// Rows of different lengths in one block. Equal rows may share their values.
class Rows {
public:
  size_t size() const { return bounds.size(); }
  std::span<const int64_t> operator[](size_t row) const {
    auto [begin, end] = bounds[row];
    return {values.data() + begin, end - begin};
  }
  void reserve(size_t numRows, size_t numValues) {
    bounds.reserve(numRows);
    values.reserve(numValues);
  }
  /// A new row of zeros, to be written before the next one is added.
  std::span<int64_t> addRow(size_t length) {
    size_t begin = values.size();
    values.resize(begin + length);
    endRow();
    return {values.data() + begin, length};
  }
  /// Appends to the row under construction; `endRow` completes it.
  void append(int64_t value) { values.push_back(value); }
  void endRow() {
    bounds.emplace_back(begun, values.size());
    begun = values.size();
  }
  void addRow(std::span<const int64_t> row) {
    values.insert(values.end(), row.begin(), row.end());
    endRow();
  }
  /// Adds a row that shares the values of an earlier one.
  void repeatRow(size_t row) { bounds.push_back(bounds[row]); }

private:
  std::vector<int64_t> values;
  std::vector<std::pair<size_t, size_t>> bounds; // begin and end of each row
  size_t begun = 0;                              // where the row under construction begins
};

/// A node's memory is in use at the times begin <= t < end.
struct Interval {
  int64_t begin, end;
};

struct Edge {
  uint32_t first, second;
};

/// The problem of the ASPLOS 2025 contest on intra-operator parallelism (IOPDDL): choose a strategy
/// for each node so that the usages of the nodes in use at any one time sum to at most `usageLimit`
/// and the costs of nodes and edges sum to the least.
struct Problem {
  std::vector<Interval> intervals; // of each node
  Rows costs, usages;              // of each node, by its strategy
  std::vector<Edge> edges;
  Rows edgeCosts; // of each edge, row-major: the first node's strategies by the second's
  int64_t usageLimit = 0;

  size_t getNumNodes() const { return intervals.size(); }
  size_t getNumStrategies(size_t node) const { return costs[node].size(); }
};

/// The strategy of each node.
using Assignment = std::vector<uint32_t>;

/// The problem with some of its strategies: of each node those listed, at least one.
Problem keepStrategies(const Problem &problem, const std::vector<std::vector<uint32_t>> &kept);

/// What makes `problem` malformed, in one line with the position in the file's terms; empty if
/// every index, size and sum is in range. The rest of the solver relies on this check.
std::string findFault(const Problem &problem);

} // namespace gridloom::solver

#endif // GRIDLOOM_SOLVER_PROBLEM_H
