//===- Histogram.cpp - distribution of an array's values ------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/train/Histogram.h"

#include "runtime/arrays/Values.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace gridloom;
using namespace gridloom::rt;

/// The upper limits of all buckets, ascending.
static const std::vector<double> &getLimits() {
  static const std::vector<double> limits = [] {
    std::vector<double> positive = {1e-12};
    while (positive.back() * 1.1 < 1e20)
      positive.push_back(positive.back() * 1.1);
    std::vector<double> all;
    for (size_t i = positive.size(); i-- > 0;)
      all.push_back(-positive[i]);
    all.push_back(0);
    all.insert(all.end(), positive.begin(), positive.end());
    all.push_back(std::numeric_limits<double>::max()); // itself in the last bucket
    return all;
  }();
  return limits;
}

Histogram Histogram::of(const HostArray &array) {
  const std::vector<double> &all = getLimits();
  std::vector<int64_t> found(all.size());
  Histogram histogram;
  for (int64_t i = 0; i < array.getNumElements(); ++i) {
    double value = getElement(array, i);
    if (!std::isfinite(value))
      continue;
    bool isFirst = histogram.numFinite++ == 0;
    histogram.min = isFirst ? value : std::min(histogram.min, value);
    histogram.max = isFirst ? value : std::max(histogram.max, value);
    histogram.sum += value;
    histogram.sumOfSquares += value * value;
    ++found[size_t(std::upper_bound(all.begin(), all.end() - 1, value) - all.begin())];
  }
  size_t last = all.size();
  while (last > 0 && found[last - 1] == 0)
    --last;
  for (size_t i = 0; i < last; ++i) {
    bool joins = !histogram.counts.empty() && histogram.counts.back() == 0 && found[i] == 0;
    if (joins) {
      histogram.limits.back() = all[i];
    } else {
      histogram.limits.push_back(all[i]);
      histogram.counts.push_back(found[i]);
    }
  }
  return histogram;
}
