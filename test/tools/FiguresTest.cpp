//===- FiguresTest.cpp - statistics of runs -------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/cli/Figures.h"

#include <gmock/gmock.h>

using namespace gridloom::rt;

namespace {

std::vector<RunStats> makeRuns(const std::vector<double> &walls) {
  std::vector<RunStats> runs;
  for (double wall : walls) {
    runs.emplace_back();
    runs.back().wall = wall;
    runs.back().device = wall / 2;
    runs.back().compute = wall / 4;
  }
  return runs;
}

TEST(Figures, AnEvenNumberOfRunsHasTwoInTheMiddle) {
  RunStats median = getMedian(makeRuns({8, 1, 4, 2}));
  EXPECT_EQ(median.wall, 3);
  EXPECT_EQ(median.device, 1.5);
  EXPECT_EQ(median.compute, 0.75);
  EXPECT_EQ(getMedian(makeRuns({8, 1, 2})).wall, 2);
  EXPECT_EQ(getMedian(makeRuns({8})).wall, 8);
  EXPECT_EQ(formatSpread(makeRuns({0.03, 4.01})),
            "2 runs: median 2.02 ms, fastest 0.030 ms, slowest 4.01 ms");
}

} // namespace
