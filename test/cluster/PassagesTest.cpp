//===- PassagesTest.cpp - passages against the times that they add up to --===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "cluster/Passages.h"

#include "cluster/Presets.h"

#include <gmock/gmock.h>

using namespace gridloom::cluster;

namespace {

constexpr Collective kKinds[] = {
    Collective::AllReduce, Collective::ReduceScatter, Collective::AllGather, Collective::AllToAll,
    Collective::Broadcast, Collective::Permute,       Collective::Send,      Collective::Recv};

Machine makeMachineOf(const char *name, int64_t devices) {
  std::string error;
  std::optional<Cluster> cluster = findCluster(name, error);
  EXPECT_TRUE(cluster) << error;
  return makeMachine(*cluster, devices);
}

double sum(const std::vector<Passage> &passages) {
  double seconds = 0;
  for (const Passage &passage : passages)
    seconds += passage.getSeconds();
  return seconds;
}

/// Every kind at every placement of an axis on four clusters, at sizes at which each algorithm
/// wins.
TEST(PassagesTest, TheySumUpToTheTime) {
  size_t several = 0, wide = 0;
  for (auto [name, devices] :
       {std::pair("cpu", 8), {"HGX-H100x4", 32}, {"p3.16xlargex2", 16}, {"GB200-NVL72x2", 144}}) {
    Machine machine = makeMachineOf(name, devices);
    for (int64_t size : {2, 4, 8, 16})
      for (int64_t stride : {1, 2, 8})
        for (Collective kind : kKinds)
          for (double bytes : {0.0, 8.0, 64e3, 4e6, 1e9}) {
            if (size * stride > devices)
              continue;
            PlacedAxis axis{size, stride};
            PlacedGroup group = placeOnLevels(machine, {&axis, 1});
            EXPECT_EQ(group.tiers, placeGroup(machine, {&axis, 1}));
            ASSERT_EQ(group.levels.size(), group.tiers.size());
            std::vector<Passage> passages = getPassages(kind, bytes, group);
            EXPECT_DOUBLE_EQ(getStartSeconds(machine) + sum(passages),
                             getCollectiveSeconds(machine, kind, bytes, group.tiers));
            several += passages.size() > 1;
            for (const Passage &passage : passages) {
              wide += passage.loads.size() > 1;
              for (const Load &load : passage.loads) {
                EXPECT_LT(load.level, machine.levels.size());
                EXPECT_GT(load.seconds, 0);
              }
            }
          }
  }
  EXPECT_GT(several, 0u); // level by level
  EXPECT_GT(wide, 0u);    // over all levels at once
}

TEST(PassagesTest, TiersGoInAndOutAgain) {
  PlacedGroup group{{{4, 1e-6, 8e9}, {2, 9e-6, 1e9}}, {0, 1}};
  std::vector<Passage> passages = getPassages(Collective::AllReduce, 24e6, group);
  std::vector<size_t> levels;
  for (const Passage &passage : passages) {
    ASSERT_EQ(passage.loads.size(), 1u);
    levels.push_back(passage.loads.front().level);
  }
  EXPECT_THAT(levels, testing::ElementsAre(0, 1, 0));
  EXPECT_DOUBLE_EQ(passages[1].getTransferSeconds(), 24e6 / 4 / 1e9);
}

/// A ring leaves each host of eight devices once and has the bandwidth of all eight for it, so it
/// loads the outer level for an eighth of the time.
TEST(PassagesTest, ARingLoadsEveryLevelByItsShare) {
  PlacedGroup group{{{8, 0, 300e9}, {64, 0, 290e9}}, {0, 1}};
  std::vector<Passage> passages = getPassages(Collective::AllReduce, 1e12, group);
  ASSERT_EQ(passages.size(), 1u);
  ASSERT_EQ(passages[0].loads.size(), 2u);
  EXPECT_DOUBLE_EQ(passages[0].loads[0].seconds, passages[0].getTransferSeconds());
  EXPECT_DOUBLE_EQ(passages[0].loads[1].seconds,
                   passages[0].loads[0].seconds * 300e9 / (8 * 290e9));
}

TEST(PassagesTest, OneRankHasNone) {
  EXPECT_TRUE(getPassages(Collective::AllReduce, 1e6, {}).empty());
}

} // namespace
