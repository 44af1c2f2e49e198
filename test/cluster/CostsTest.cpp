//===- CostsTest.cpp - times against their closed forms -------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "cluster/Costs.h"

#include <gmock/gmock.h>

using namespace gridloom::cluster;

namespace {

constexpr double kAlpha = 3e-6, kRate = 2e9, kBytes = 24e6;
const Tier kTier = {6, kAlpha, kRate};
constexpr double kAll = kBytes / kRate; ///< seconds to send everything once

constexpr Collective kKinds[] = {
    Collective::AllReduce, Collective::ReduceScatter, Collective::AllGather, Collective::AllToAll,
    Collective::Broadcast, Collective::Permute,       Collective::Send,      Collective::Recv};

DeviceKind makeKind() {
  DeviceKind kind;
  kind.name = "k";
  kind.bytesPerSecond = 1e9;
  kind.launchSeconds = 5e-6;
  kind.collectiveSeconds = 7e-6;
  kind.flopsPerSecond = {{{0, 1e10, 4e10, 0, 8e10}, {0, 2e9, 0, 0, 0}}};
  return kind;
}

TEST(CostsTest, RingsTakeAStepPerRank) {
  EXPECT_DOUBLE_EQ(getRingSeconds(Collective::AllReduce, kBytes, kTier),
                   10 * kAlpha + 10.0 / 6 * kAll);
  for (Collective kind : {Collective::ReduceScatter, Collective::AllGather, Collective::AllToAll})
    EXPECT_DOUBLE_EQ(getRingSeconds(kind, kBytes, kTier), 5 * kAlpha + 5.0 / 6 * kAll);
}

TEST(CostsTest, TreesTakeStepsInTheLogarithm) {
  EXPECT_DOUBLE_EQ(getTreeSeconds(Collective::AllReduce, kBytes, kTier), 6 * kAlpha + 2 * kAll);
  EXPECT_DOUBLE_EQ(getTreeSeconds(Collective::AllGather, kBytes, kTier),
                   3 * kAlpha + 5.0 / 6 * kAll);
  EXPECT_DOUBLE_EQ(getTreeSeconds(Collective::Broadcast, kBytes, kTier), 3 * kAlpha + kAll);
  EXPECT_DOUBLE_EQ(getTreeSeconds(Collective::AllToAll, kBytes, kTier), 3 * kAlpha + 1.5 * kAll);
  for (int64_t ranks : {2, 4, 8}) // one step per halving
    EXPECT_DOUBLE_EQ(getTreeSeconds(Collective::Broadcast, 0, {ranks, 1, 1}), ranks == 2   ? 1
                                                                              : ranks == 4 ? 2
                                                                                           : 3);
}

TEST(CostsTest, ShortSumsAreExchanged) {
  constexpr double kShort = 8 / kRate;
  for (auto [ranks, steps] : {std::pair(2, 1), {4, 2}, {6, 4}, {8, 3}})
    EXPECT_DOUBLE_EQ(getTreeSeconds(Collective::AllReduce, 8, {ranks, kAlpha, kRate}),
                     steps * (kAlpha + kShort));
}

TEST(CostsTest, TiersReduceInsideAndCommunicateAboutTheirShare) {
  Group group = {{4, 1e-6, 8e9}, {2, 9e-6, 1e9}};
  double scatter = 2e-6 + 0.75 * kBytes / 8e9; // a tree has fewer steps than a ring
  double outer = 9e-6 + kBytes / 4 / 1e9;      // one exchange of two ranks
  EXPECT_DOUBLE_EQ(getTieredSeconds(Collective::AllReduce, kBytes, group), 2 * scatter + outer);
  double half = 9e-6 + 0.5 * kBytes / 4 / 1e9;
  EXPECT_DOUBLE_EQ(getTieredSeconds(Collective::ReduceScatter, kBytes, group), scatter + half);
  EXPECT_DOUBLE_EQ(getTieredSeconds(Collective::AllGather, kBytes, group), scatter + half);
}

TEST(CostsTest, FlatRingsLeaveAHostThroughAllItsAdapters) {
  Group group = {{8, 1e-6, 300e9}, {2, 9e-6, 25e9}};
  EXPECT_EQ(flatten(Collective::AllReduce, group), (Tier{16, 9e-6, 200e9}));
  EXPECT_EQ(flatten(Collective::AllToAll, group), (Tier{16, 9e-6, 25e9}));
  EXPECT_EQ(flatten(Collective::Send, group), (Tier{16, 9e-6, 25e9}));
  Group narrow = {{2, 1e-6, 20e9}, {2, 9e-6, 25e9}};
  EXPECT_EQ(flatten(Collective::AllGather, narrow).bytesPerSecond, 20e9);
}

TEST(CostsTest, TheBestIsTakenAndStarted) {
  Machine machine{{makeKind()}, {}};
  for (Collective kind : kKinds)
    for (const Group &group : {Group{kTier}, Group{{8, 1e-6, 300e9}, {4, 9e-6, 25e9}}})
      for (double bytes : {8.0, 64e3, 4e6, 1e9}) {
        Tier flat = flatten(kind, group);
        EXPECT_DOUBLE_EQ(
            getCollectiveSeconds(machine, kind, bytes, group),
            7e-6 + std::min({getRingSeconds(kind, bytes, flat), getTreeSeconds(kind, bytes, flat),
                             getTieredSeconds(kind, bytes, group)}));
      }
  // Each algorithm is the fastest somewhere.
  Tier wide{5, 1e-6, 1e9};
  EXPECT_LT(getRingSeconds(Collective::AllReduce, 1e9, wide),
            getTreeSeconds(Collective::AllReduce, 1e9, wide));
  EXPECT_GT(getRingSeconds(Collective::AllReduce, 8, wide),
            getTreeSeconds(Collective::AllReduce, 8, wide));
  Group hosts = {{8, 1e-6, 300e9}, {2, 9e-6, 3e9}};
  EXPECT_LT(getTieredSeconds(Collective::AllReduce, 8, hosts),
            getTreeSeconds(Collective::AllReduce, 8, flatten(Collective::AllReduce, hosts)));
}

TEST(CostsTest, OneRankCommunicatesForNothing) {
  Machine machine{{makeKind()}, {}};
  for (Collective kind : kKinds) {
    EXPECT_EQ(getCollectiveSeconds(machine, kind, 1e9, {}), 0);
    EXPECT_EQ(getSentBytes(kind, 1e9, 1), 0);
  }
}

TEST(CostsTest, TimesGrowWithBytesAndRanks) {
  Machine machine{{makeKind()}, {}};
  for (Collective kind : kKinds)
    for (double bytes : {0.0, 1e3, 1e6}) {
      EXPECT_LT(getCollectiveSeconds(machine, kind, bytes, {kTier}),
                getCollectiveSeconds(machine, kind, 2 * bytes + 1, {kTier}));
      for (int64_t ranks = 2; ranks < 100; ranks *= 2)
        EXPECT_LE(getCollectiveSeconds(machine, kind, bytes, {{ranks, kAlpha, kRate}}),
                  getCollectiveSeconds(machine, kind, bytes, {{2 * ranks, kAlpha, kRate}}));
    }
}

TEST(CostsTest, BytesAreThoseOfARing) {
  EXPECT_EQ(getSentBytes(Collective::AllReduce, 120, 6), 200);
  EXPECT_EQ(getSentBytes(Collective::AllGather, 120, 6), 100);
  EXPECT_EQ(getSentBytes(Collective::ReduceScatter, 120, 6), 100);
  EXPECT_EQ(getSentBytes(Collective::AllToAll, 120, 6), 100);
  EXPECT_EQ(getSentBytes(Collective::Permute, 120, 6), 120);
  EXPECT_EQ(getSentBytes(Collective::Send, 120, 2), 120);
  EXPECT_EQ(getSentBytes(Collective::Recv, 120, 2), 0);
}

TEST(CostsTest, NamesAreThoseOfTheIr) {
  EXPECT_EQ(findCollective("all_reduce"), Collective::AllReduce);
  EXPECT_EQ(findCollective("recv"), Collective::Recv);
  EXPECT_EQ(findCollective("matmul"), std::nullopt);
}

TEST(CostsTest, WorkTakesTheLongerOfArithmeticAndTraffic) {
  DeviceKind kind = makeKind();
  Work product{WorkClass::Contraction, NumberType::F32, 1e9, 1e3, 1e3};
  EXPECT_DOUBLE_EQ(getComputeSeconds(kind, product), 5e-6 + 0.1);
  Work copy{WorkClass::Other, NumberType::F32, 1e3, 2e6, 1e6}; // reads count as well
  EXPECT_DOUBLE_EQ(getComputeSeconds(kind, copy), 5e-6 + 3e-3);
  EXPECT_EQ(getComputeSeconds(kind, Work{}), 0);
}

TEST(CostsTest, RatesAreByClassAndType) {
  DeviceKind kind = makeKind();
  EXPECT_EQ(kind.getRate(WorkClass::Contraction, NumberType::Tf32), 4e10);
  EXPECT_EQ(kind.getRate(WorkClass::Contraction, NumberType::F16), 8e10);
  EXPECT_EQ(kind.getRate(WorkClass::Contraction, NumberType::Bf16), 8e10);
  EXPECT_EQ(kind.getRate(WorkClass::Contraction, NumberType::F64), 1e10);
  EXPECT_EQ(kind.getRate(WorkClass::Other, NumberType::F16), 2e9);
  kind.flopsPerSecond[1] = {};
  EXPECT_EQ(kind.getRate(WorkClass::Other, NumberType::F32), 1e10);
}

TEST(CostsTest, SmallWorkIsLessEfficient) {
  DeviceKind kind = makeKind();
  kind.efficiency[0].points = {{1e6, 0.1}, {1e8, 0.5}};
  EXPECT_DOUBLE_EQ(kind.efficiency[0].at(1), 0.1);
  EXPECT_DOUBLE_EQ(kind.efficiency[0].at(1e7), 0.3);
  EXPECT_DOUBLE_EQ(kind.efficiency[0].at(1e12), 0.5);
  EXPECT_DOUBLE_EQ(getComputeSeconds(kind, {WorkClass::Contraction, NumberType::F32, 1e7, 0, 0}),
                   5e-6 + 1e7 / 1e10 / 0.3);
  kind.memoryEfficiency.points = {{1e3, 0.25}};
  EXPECT_DOUBLE_EQ(getComputeSeconds(kind, {WorkClass::Other, NumberType::F32, 0, 500, 500}),
                   5e-6 + 1e3 / 1e9 / 0.25);
}

TEST(CostsTest, TheSlowestDeviceCounts) {
  DeviceKind fast = makeKind(), slow = makeKind();
  slow.name = "slow";
  slow.flopsPerSecond[0][1] = 1e9;
  Work product{WorkClass::Contraction, NumberType::F32, 1e9, 0, 0};
  EXPECT_EQ(getComputeSeconds(Machine{{fast, slow}, {}}, product),
            getComputeSeconds(slow, product));
}

} // namespace
