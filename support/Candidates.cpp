//===- Candidates.cpp - plans that were compared --------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "support/Candidates.h"

#include <algorithm>
#include <tuple>

using namespace gridloom;

void gridloom::sortCandidates(std::vector<PlanCandidate> &candidates) {
  auto rank = [](const PlanCandidate &candidate) {
    int group = candidate.isChosen() ? 0 : candidate.isRefused() ? 3 : candidate.isLeft() ? 2 : 1;
    double ms = candidate.measuredMs > 0    ? candidate.measuredMs
                : candidate.simulatedMs > 0 ? candidate.simulatedMs
                                            : candidate.sumMs;
    return std::tuple(group, candidate.measuredMs <= 0, candidate.simulatedMs <= 0, ms <= 0, ms);
  };
  std::stable_sort(
      candidates.begin(), candidates.end(),
      [&](const PlanCandidate &a, const PlanCandidate &b) { return rank(a) < rank(b); });
}

/// Programs below a millisecond need more digits.
static Cell timeOrNone(double ms) {
  return ms > 0 ? numberCell(ms, ms < 1 ? 4 : 2) : Cell(nullptr);
}

void gridloom::addCandidates(Document &document, const std::vector<PlanCandidate> &candidates,
                             size_t most) {
  if (candidates.size() < 2)
    return;
  bool isMeasured = std::any_of(candidates.begin(), candidates.end(),
                                [](const PlanCandidate &each) { return each.measuredMs > 0; });
  auto addTime = [&](auto &row, auto &&time) {
    if (isMeasured)
      row.insert(row.begin() + 1, time);
  };
  std::vector<std::string> columns = {"strategy", "simulated_ms", "sum_ms", "memory", "verdict"};
  addTime(columns, "measured_ms");
  document.addTable("candidates", columns);
  auto addRow = [&](std::vector<Cell> row, const Cell &measured) {
    addTime(row, measured);
    document.addRow(std::move(row));
  };
  size_t shown = std::min(most, candidates.size());
  for (size_t i = 0; i < shown; ++i) {
    const PlanCandidate &each = candidates[i];
    addRow({each.strategy, timeOrNone(each.simulatedMs), timeOrNone(each.sumMs),
            each.memoryBytes ? bytesCell(each.memoryBytes) : Cell(nullptr), each.verdict},
           timeOrNone(each.measuredMs));
  }
  if (shown < candidates.size())
    addRow({std::to_string(candidates.size() - shown) + " more: --json", nullptr, nullptr, nullptr,
            ""},
           nullptr);
}
