//===- TimeLine.h - memory over time while folding --------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_SOLVER_TIMELINE_H
#define GRIDLOOM_SOLVER_TIMELINE_H

#include "compiler/solver/Model.h"

namespace gridloom::solver {

/// The minimum of any range in constant time, from the minima of all ranges of 2^n values.
class RangeMinimum {
public:
  explicit RangeMinimum(std::vector<int64_t> values);
  /// The minimum over begin <= i < end, which must not be empty.
  int64_t get(uint32_t begin, uint32_t end) const;

private:
  std::vector<std::vector<int64_t>> levels;
};

/// Subtracts from each piece the usage that all its strategies share, and from the limits. Removes
/// pieces without memory or without times. Returns the first time whose limit falls below zero, so
/// that no choice of the remaining strategies fits; the number of times if there is none.
size_t takeCommonUsage(Model &model);

/// Removes times that cannot exceed their limit, or only if another time does.
void removeSlackTimes(Model &model);

} // namespace gridloom::solver

#endif // GRIDLOOM_SOLVER_TIMELINE_H
