//===- OverlapTest.cpp - work that hides communication --------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/simulator/Overlap.h"

#include <gmock/gmock.h>

using namespace gridloom::sim;

namespace {

SimulatedStep compute(const char *stream = "compute") {
  SimulatedStep step;
  step.kind = step.name = "kernel";
  step.stream = stream;
  return step;
}

SimulatedStep collective() {
  SimulatedStep step;
  step.kind = step.name = "all_reduce";
  step.stream = "communication";
  step.isCommunication = true;
  return step;
}

TEST(OverlapTest, WhatNothingComputesBesideIsExposed) {
  StageRun run;
  run.steps = {compute(), compute(), collective()};
  run.timed = {{0, 0, 0, 4, 0}, {1, 0, 5, 6, 5}, {2, 0, 3, 9, 3}};
  std::vector<Overlap> overlaps = findOverlaps(run);
  EXPECT_EQ(overlaps[2].exposed, 4) << "from 4 to 5 and from 6 to 9";
  EXPECT_EQ(overlaps[2].waiting, 0);
  ASSERT_EQ(overlaps[2].beside.size(), 2u);
  EXPECT_EQ(overlaps[2].beside[0].step, 0u);
  EXPECT_EQ(overlaps[2].beside[0].seconds, 1);
  EXPECT_EQ(overlaps[2].beside[1].seconds, 1);
  EXPECT_EQ(overlaps[0].exposed, 0) << "computation is no communication";
}

TEST(OverlapTest, StreamsThatComputeAtOnceHideOnce) {
  StageRun run;
  run.steps = {compute("a"), compute("b"), collective()};
  run.timed = {{0, 0, 0, 6, 0}, {1, 0, 2, 8, 2}, {2, 0, 1, 10, 1}};
  std::vector<Overlap> overlaps = findOverlaps(run);
  EXPECT_EQ(overlaps[2].exposed, 2);
  ASSERT_EQ(overlaps[2].beside.size(), 2u);
  EXPECT_EQ(overlaps[2].beside[0].step, 1u) << "the longer one first";
  EXPECT_EQ(overlaps[2].beside[0].seconds, 6);
  EXPECT_EQ(overlaps[2].beside[1].seconds, 5);
}

TEST(OverlapTest, WaitingForAPeerIsNoTransfer) {
  StageRun run;
  run.steps = {compute(), collective()};
  run.timed = {{0, 0, 0, 2, 0}, {1, 0, 1, 7, 5}};
  std::vector<Overlap> overlaps = findOverlaps(run);
  EXPECT_EQ(overlaps[1].waiting, 3) << "from 2, when the kernel ends, to 5";
  EXPECT_EQ(overlaps[1].exposed, 2);
  EXPECT_TRUE(overlaps[1].beside.empty()) << "what runs while it waits hides no transfer";
}

TEST(OverlapTest, IterationsAreSummed) {
  StageRun run;
  run.steps = {compute(), collective()};
  for (int64_t i = 0; i < 3; ++i) {
    double begin = 10.0 * double(i);
    run.timed.push_back({0, i, begin, begin + 4, begin});
    run.timed.push_back({1, i, begin + 2, begin + 5, begin + 2});
  }
  std::vector<Overlap> overlaps = findOverlaps(run);
  EXPECT_EQ(overlaps[1].exposed, 3);
  ASSERT_EQ(overlaps[1].beside.size(), 1u);
  EXPECT_EQ(overlaps[1].beside[0].seconds, 6);
}

TEST(OverlapTest, WhatIsNotTimedIsLikeTheRest) {
  StageRun run;
  run.steps = {compute(), collective()};
  run.steps[1].times = 8;
  run.timed = {{0, 0, 0, 4, 0}, {1, 0, 2, 5, 2}, {1, 1, 5, 6, 5}};
  std::vector<Overlap> overlaps = findOverlaps(run);
  EXPECT_EQ(overlaps[1].exposed, 4 * 2);
  EXPECT_EQ(overlaps[1].beside[0].seconds, 4 * 2);
}

} // namespace
