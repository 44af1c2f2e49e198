//===- LanesTest.cpp ------------------------------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/trace/Lanes.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

using namespace gridloom::rt;

static size_t countBlocks(const std::vector<Lane> &lanes) {
  size_t count = 0;
  for (const Lane &lane : lanes)
    count += lane.size();
  return count;
}

static int64_t countSteps(const std::vector<Lane> &lanes) {
  int64_t count = 0;
  for (const Lane &lane : lanes)
    for (const Block &block : lane)
      count += block.count;
  return count;
}

/// Steps of 10 ns with gaps of 2 ns; each lane has one long step of 1000 ns.
static std::vector<Lane> makeLanes(size_t lanes, int64_t steps) {
  std::vector<Lane> result(lanes);
  for (Lane &lane : result) {
    int64_t at = 0;
    for (int64_t step = 0; step < steps; ++step) {
      int64_t length = step == steps / 2 ? 1000 : 10;
      lane.push_back(
          {.begin = at, .end = at + length, .step = size_t(step), .iteration = step % 3});
      at += length + 2;
    }
  }
  return result;
}

TEST(Lanes, FewBlocksStayAsTheyAre) {
  std::vector<Lane> lanes = makeLanes(2, 50);
  EXPECT_EQ(joinShort(lanes, 100), 0);
  EXPECT_EQ(countBlocks(lanes), 100u);
}

TEST(Lanes, ManyBlocksBecomeFewAndLoseNoStep) {
  for (size_t most : {400, 60, 8}) {
    std::vector<Lane> lanes = makeLanes(4, 1000);
    int64_t resolution = joinShort(lanes, most);
    EXPECT_GT(resolution, 0);
    EXPECT_LE(countBlocks(lanes), most);
    EXPECT_EQ(countSteps(lanes), 4000);
    for (const Lane &lane : lanes) {
      EXPECT_EQ(lane.front().begin, 0);
      EXPECT_EQ(lane.back().end, 1000 * 12 + 990 - 2);
      for (size_t i = 1; i < lane.size(); ++i)
        EXPECT_GT(lane[i].begin, lane[i - 1].end);
    }
  }
}

TEST(Lanes, ALongStepStandsForItself) {
  std::vector<Lane> lanes = makeLanes(1, 1000);
  ASSERT_LT(joinShort(lanes, 400), 1000);
  size_t found = 0;
  for (const Block &block : lanes[0])
    if (block.end - block.begin == 1000) {
      EXPECT_EQ(block.step, 500u);
      EXPECT_EQ(block.count, 1);
      ++found;
    }
  EXPECT_EQ(found, 1u);
}

TEST(Lanes, AJoinedBlockIsNamedByItsLongestStep) {
  std::vector<Lane> lanes{{{.begin = 0, .end = 10, .step = 7},
                           {.begin = 10, .end = 40, .step = 8, .iteration = 2},
                           {.begin = 41, .end = 51, .step = 9}}};
  EXPECT_GT(joinShort(lanes, 1), 0);
  ASSERT_EQ(lanes[0].size(), 1u);
  EXPECT_EQ(lanes[0][0].step, 8u);
  EXPECT_EQ(lanes[0][0].iteration, 2);
  EXPECT_EQ(lanes[0][0].count, 3);
}

TEST(Lanes, StepsAtOneMomentEnd) {
  std::vector<Lane> lanes{{{}, {}, {}}, {{}, {}}};
  EXPECT_GT(joinShort(lanes, 2), 0);
  EXPECT_EQ(countSteps(lanes), 5);
}

TEST(Lanes, PackedBlocksAreGapsAndDurations) {
  Lane lane{{.begin = 5, .end = 9, .step = 3, .iteration = 1},
            {.begin = 12, .end = 20, .step = 4, .iteration = 0, .count = 6}};
  EXPECT_EQ(packLane(lane), nlohmann::json({5, 4, 3, 1, 1, 3, 8, 4, 0, 6}));
  EXPECT_EQ(packLane({}), nlohmann::json::array());
}
