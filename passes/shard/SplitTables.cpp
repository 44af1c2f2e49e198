//===- SplitTables.cpp - a choice of splits as the solver's problem -------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/shard/SplitProblem.h"

#include <span>
#include <unordered_map>

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

void SplitProblem::fillCosts(const Link &link, unsigned first, unsigned second,
                             std::span<solver::Cost> costs) const {
  size_t rows = nodes[first].costs.size(), columns = nodes[second].costs.size();
  for (const Use &use : link.uses) {
    // A table's rows are of the node that makes the tensor.
    const Column &makes = nodes[use.from].tensors[use.fromTensor];
    const Column &needs = nodes[use.to].tensors[use.toTensor];
    size_t width = needs.shardings.size();
    bool isSwapped = use.from > use.to;
    size_t rowStep = isSwapped ? 1 : width, columnStep = isSwapped ? width : 1;
    const Column &ofRows = isSwapped ? needs : makes, &ofColumns = isSwapped ? makes : needs;
    auto add = [&](const Table &table, solver::Cost times) {
      for (size_t i = 0; i < rows; ++i) {
        const solver::Cost *row = table.data() + ofRows.of[i] * rowStep;
        solver::Cost *to = costs.data() + i * columns;
        for (size_t j = 0; j < columns; ++j)
          to[j] = std::min(solver::infiniteCost, to[j] + times * row[ofColumns.of[j] * columnStep]);
      }
    };
    add(*use.reshards, 1);
    if (!use.transfers.empty())
      add(use.transfers, 2);
  }
}

/// A key of all that fillCosts reads; tables go by their addresses.
std::string SplitProblem::describeCosts(const Link &link) const {
  std::string text;
  auto add = [&](const auto &values) {
    size_t count = values.size();
    text.append(reinterpret_cast<const char *>(&count), sizeof count);
    auto bytes = std::as_bytes(std::span(values));
    text.append(reinterpret_cast<const char *>(bytes.data()), bytes.size());
  };
  for (const Use &use : link.uses) {
    auto place = reinterpret_cast<uintptr_t>(use.reshards);
    text.append(reinterpret_cast<const char *>(&place), sizeof place);
    text += use.from > use.to ? '>' : '<';
    add(use.transfers);
    add(nodes[use.from].tensors[use.fromTensor].of);
    add(nodes[use.to].tensors[use.toTensor].of);
  }
  return text;
}

solver::Problem SplitProblem::makeProblem(int64_t memoryBytes) const {
  solver::Problem problem;
  auto last = static_cast<int64_t>(times.size());
  for (const Node &node : nodes) {
    bool counts = memoryBytes > 0 && !node.usages.empty();
    problem.intervals.push_back(
        counts ? solver::Interval{node.interval.begin, std::min(node.interval.end, last)}
               : solver::Interval{0, 0});
    problem.costs.addRow(node.costs);
    problem.usages.addRow(counts ? node.usages : std::vector<int64_t>(node.costs.size()));
  }
  problem.usageLimit = memoryBytes;
  problem.edges.reserve(edges.size());
  std::unordered_map<std::string, size_t> rows; // by content: layers share rows
  for (const auto &[ends, link] : edges) {
    auto [row, isNew] = rows.try_emplace(describeCosts(link), problem.edges.size());
    problem.edges.push_back({ends.first, ends.second});
    if (!isNew)
      problem.edgeCosts.repeatRow(row->second);
    else
      fillCosts(link, ends.first, ends.second,
                problem.edgeCosts.addRow(nodes[ends.first].costs.size() *
                                         nodes[ends.second].costs.size()));
  }
  return problem;
}

/// The one dimension or factor that is split, -1 for none, and the number of its parts; nullopt if
/// there are several, or partial sums.
static std::optional<std::pair<int64_t, int64_t>>
findOnlySplit(ArrayRef<DimShardingAttr> places, ArrayRef<StringAttr> unreduced, const Mesh &mesh) {
  std::pair<int64_t, int64_t> split = {-1, 1};
  for (auto [place, dim] : llvm::enumerate(places)) {
    int64_t parts = 1;
    for (StringAttr axis : dim.getAxes())
      parts *= isMicroAxis(axis) ? 1 : mesh.getSize(axis);
    if (parts > 1 && split.first >= 0)
      return std::nullopt;
    if (parts > 1)
      split = {static_cast<int64_t>(place), parts};
  }
  return unreduced.empty() ? std::optional(split) : std::nullopt;
}

std::vector<std::vector<uint32_t>> SplitProblem::listUniform() const {
  std::vector<std::vector<uint32_t>> all;
  for (const Node &node : nodes) {
    std::map<int64_t, std::pair<int64_t, std::vector<uint32_t>>> most; // parts and strategies
    for (uint32_t k = 0; k < node.costs.size(); ++k) {
      ShardingAttr sharding = node.splits.empty() ? node.tensors.front().get(k) : ShardingAttr();
      auto split = sharding ? findOnlySplit(sharding.getDims(), sharding.getUnreduced(), mesh)
                            : findOnlySplit(node.splits[k].getFactors(),
                                            node.splits[k].getUnreduced(), mesh);
      if (!split)
        continue;
      auto &[parts, strategies] = most[split->first];
      if (split->second > parts)
        strategies.clear();
      if (split->second >= parts)
        strategies.push_back(k);
      parts = std::max(parts, split->second);
    }
    std::vector<uint32_t> &kept = all.emplace_back();
    for (auto &[place, best] : most)
      kept.insert(kept.end(), best.second.begin(), best.second.end());
    if (kept.empty())
      for (uint32_t k = 0; k < node.costs.size(); ++k)
        kept.push_back(k);
  }
  return all;
}
