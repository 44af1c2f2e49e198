//===- Histogram.h - distribution of an array's values ----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_TRAIN_HISTOGRAM_H
#define GRIDLOOM_RUNTIME_TRAIN_HISTOGRAM_H

#include "runtime/core/HostArray.h"

#include <vector>

namespace gridloom::rt {

/// Counts an array's finite elements in buckets that grow by a tenth from 1e-12 on, to both sides
/// of 0: fine where weights are small, and the same for all arrays and steps.
struct Histogram {
  double min = 0, max = 0, sum = 0, sumOfSquares = 0; // 0 if no element is finite
  int64_t numFinite = 0;
  /// Ascending. Bucket i counts values in [limits[i - 1], limits[i]); adjacent empty buckets are
  /// merged.
  std::vector<double> limits;
  std::vector<int64_t> counts;

  static Histogram of(const HostArray &array);
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_TRAIN_HISTOGRAM_H
