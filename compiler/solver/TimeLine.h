//===- TimeLine.h - memory over time while folding --------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_SOLVER_TIMELINE_H
#define GRIDLOOM_SOLVER_TIMELINE_H

#include "compiler/solver/Model.h"

namespace gridloom::solver {

/// The least value in any range, in constant time: minima of all ranges of 2^n values.
class RangeMinimum {
public:
  explicit RangeMinimum(std::vector<int64_t> values);
  /// Of begin <= i < end, which must not be empty.
  int64_t get(uint32_t begin, uint32_t end) const;

private:
  std::vector<std::vector<int64_t>> levels;
};

/// Takes from each piece what all its strategies use, and from the limits. Pieces without memory or
/// without times disappear. Returns the first time whose limit falls below zero, or the number of
/// times: below it, no choice of the strategies that are left fits.
size_t takeCommonUsage(Model &model);

/// Removes times that cannot exceed their limit, or cannot without another one doing so.
void removeSlackTimes(Model &model);

} // namespace gridloom::solver

#endif // GRIDLOOM_SOLVER_TIMELINE_H
