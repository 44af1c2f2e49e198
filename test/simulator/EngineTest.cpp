//===- EngineTest.cpp - the simulator against closed forms ----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/simulator/Engine.h"

#include "cluster/Presets.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>

using namespace gridloom;
using namespace gridloom::sim;
using cluster::Collective;

namespace {

using Passages = std::shared_ptr<const std::vector<cluster::Passage>>;

Item work(double seconds) { return {.kind = Item::Kind::Work, .seconds = seconds}; }
Item record(int64_t event) { return {.kind = Item::Kind::Record, .event = event}; }
Item wait(int64_t event) { return {.kind = Item::Kind::Wait, .event = event}; }

/// One passage without latency that occupies `level` for `seconds`.
Passages hold(double seconds, size_t level = 0) {
  return std::make_shared<std::vector<cluster::Passage>>(
      std::vector<cluster::Passage>{{0, {{level, seconds}}}});
}

Item collective(Passages passages, double start = 0) {
  return {.kind = Item::Kind::Collective, .seconds = start, .passages = std::move(passages)};
}

Item send(int64_t peer, int64_t iteration, Passages passages = nullptr) {
  return {.kind = Item::Kind::Send, .peer = peer, .iteration = iteration, .passages = passages};
}
Item recv(int64_t peer, int64_t iteration, Passages passages = nullptr) {
  return {.kind = Item::Kind::Recv, .peer = peer, .iteration = iteration, .passages = passages};
}

Timeline runAll(const std::vector<Stage> &stages) {
  std::string error;
  std::optional<Timeline> timeline = run(stages, error);
  EXPECT_TRUE(timeline) << error;
  return timeline.value_or(Timeline());
}

double getSeconds(const std::vector<Stage> &stages) { return runAll(stages).seconds; }

//===----------------------------------------------------------------------===//
// Streams
//===----------------------------------------------------------------------===//

TEST(EngineTest, AStreamDoesOneThingAfterAnother) {
  Timeline timeline = runAll({{0, {{work(1), work(2), work(0.5)}, {work(3)}}}});
  EXPECT_EQ(timeline.seconds, 3.5);
  EXPECT_EQ(timeline.spans[0][0][1].begin, 1);
  EXPECT_EQ(timeline.spans[0][0][1].end, 3);
  EXPECT_EQ(timeline.spans[0][1][0].begin, 0);
  EXPECT_EQ(getSeconds({{0, {}}}), 0);
}

TEST(EngineTest, AWaitHoldsAStreamUntilTheEvent) {
  Timeline timeline = runAll({{0, {{work(2), record(7), work(1)}, {wait(7), work(3)}}}});
  EXPECT_EQ(timeline.spans[0][1][1].begin, 2);
  EXPECT_EQ(timeline.seconds, 5);
}

TEST(EngineTest, AllStreamsMeetForACondition) {
  Item meeting{.kind = Item::Kind::Meet};
  EXPECT_EQ(getSeconds({{0, {{work(1), meeting, work(1)}, {work(5), meeting, work(2)}}}}), 7);
  // Two of a loop's ten iterations are simulated. They take 4 seconds, the other eight 16.
  auto turn = [](int64_t number) { return Item{.kind = Item::Kind::Meet, .event = number}; };
  Item last{.kind = Item::Kind::Meet, .event = 2, .since = 0, .repeats = 4};
  EXPECT_EQ(getSeconds({{0, {{work(1), turn(0), work(2), turn(1), work(2), last, work(1)}}}}), 22);
}

TEST(EngineTest, WhatNobodyAnswersIsAnError) {
  std::string error;
  EXPECT_FALSE(run(std::vector<Stage>{{0, {{send(1, 0)}}}, {1, {{work(1)}}}}, error));
  EXPECT_EQ(error, "stage 0 sends to stage 1 on channel 0 in iteration 0, which does not answer");
  EXPECT_FALSE(run(std::vector<Stage>{{0, {{wait(3)}}}}, error));
  EXPECT_EQ(error, "stage 0 waits for an event that nothing records");
  // Each waits for the other to send first.
  std::vector<Stage> crossed{{0, {{recv(1, 0), send(1, 1)}}}, {1, {{recv(0, 1), send(0, 0)}}}};
  EXPECT_FALSE(run(crossed, error));
}

//===----------------------------------------------------------------------===//
// Communication alone
//===----------------------------------------------------------------------===//

/// Ring, tree and hierarchical algorithms: the simulated time is the closed form of the fastest.
TEST(EngineTest, ACollectiveAloneTakesItsClosedForm) {
  for (auto [name, devices] :
       {std::pair("cpu", 8), {"HGX-H100x4", 32}, {"p3.16xlargex2", 16}, {"GB200-NVL72x2", 144}}) {
    std::string error;
    cluster::Machine machine = makeMachine(*cluster::findCluster(name, error), devices);
    for (Collective kind : {Collective::AllReduce, Collective::ReduceScatter, Collective::AllGather,
                            Collective::AllToAll, Collective::Permute})
      for (cluster::PlacedAxis axis : {cluster::PlacedAxis{2, 1}, {8, 1}, {2, 8}, {devices, 1}})
        for (double bytes : {8.0, 64e3, 4e6, 1e9}) {
          if (axis.size * axis.stride > devices)
            continue;
          auto group = placeOnLevels(machine, {&axis, 1});
          auto passages =
              std::make_shared<std::vector<cluster::Passage>>(getPassages(kind, bytes, group));
          double start = getStartSeconds(machine);
          std::vector<Stage> stages{{0, {{collective(passages, start)}}}};
          EXPECT_DOUBLE_EQ(getSeconds(stages),
                           getCollectiveSeconds(machine, kind, bytes, group.tiers));
        }
  }
}

//===----------------------------------------------------------------------===//
// Contention
//===----------------------------------------------------------------------===//

TEST(EngineTest, TwoRingsOnOneLinkTakeTwiceAsLong) {
  cluster::Tier link{6, 0, 2e9};
  cluster::PlacedGroup group{{link}, {0}};
  for (double bytes : {1e3, 24e6, 7e9}) {
    auto ring = std::make_shared<std::vector<cluster::Passage>>(
        getPassages(Collective::ReduceScatter, bytes, group));
    double alone = getSeconds({{0, {{collective(ring)}}}});
    EXPECT_DOUBLE_EQ(alone, getRingSeconds(Collective::ReduceScatter, bytes, link));
    EXPECT_EQ(getSeconds({{0, {{collective(ring)}, {collective(ring)}}}}), 2 * alone);
    EXPECT_DOUBLE_EQ(
        getSeconds({{0, {{collective(ring)}, {collective(ring)}, {collective(ring)}}}}), 3 * alone);
  }
}

TEST(EngineTest, LatenciesPassAtTheSameTime) {
  auto passages =
      std::make_shared<std::vector<cluster::Passage>>(std::vector<cluster::Passage>{{5, {{0, 8}}}});
  EXPECT_EQ(getSeconds({{0, {{collective(passages, 1)}, {collective(passages, 1)}}}}), 1 + 5 + 16);
}

TEST(EngineTest, WhatComesLaterSharesWhatIsLeft) {
  // The first has 2 of its 4 s left when the second, of 1 s, begins. It takes 2 s at half speed.
  Timeline timeline = runAll({{0, {{collective(hold(4))}, {work(2), collective(hold(1))}}}});
  EXPECT_DOUBLE_EQ(timeline.spans[0][1][1].end, 4);
  EXPECT_DOUBLE_EQ(timeline.spans[0][0][0].end, 5);
}

TEST(EngineTest, OtherLevelsAndOtherStagesAreFree) {
  EXPECT_EQ(getSeconds({{0, {{collective(hold(4, 0))}, {collective(hold(4, 1))}}}}), 4);
  EXPECT_EQ(getSeconds({{0, {{collective(hold(4))}}}, {1, {{collective(hold(4))}}}}), 4);
}

/// A collective that is limited by one link leaves more of another link to the others.
TEST(EngineTest, SharesAreFair) {
  auto both = std::make_shared<std::vector<cluster::Passage>>(
      std::vector<cluster::Passage>{{0, {{0, 6}, {1, 3}}}}); // half of level 1's rate
  Timeline timeline =
      runAll({{0, {{collective(both)}, {collective(hold(6, 0))}, {collective(hold(3, 1))}}}});
  // Level 0 gives two of them half its speed each. `both` then needs a quarter of level 1, and the
  // third collective gets the other 3/4.
  EXPECT_DOUBLE_EQ(timeline.spans[0][2][0].end, 4);
  EXPECT_DOUBLE_EQ(timeline.spans[0][0][0].end, 12);
  EXPECT_DOUBLE_EQ(timeline.spans[0][1][0].end, 12);
}

TEST(EngineTest, TransfersInBothDirectionsDoNotMeet) {
  Passages far = hold(4);
  auto stages = [&](bool sameDirection) {
    std::vector<Stage> list{{0, {{send(1, 0, far)}, {}}}, {1, {{recv(0, 0, far)}, {}}}};
    Item there = send(sameDirection ? 1 : 0, 1, far), here = recv(sameDirection ? 0 : 1, 1, far);
    there.channel = here.channel = 9;
    list[sameDirection ? 0 : 1].streams[1] = {there};
    list[sameDirection ? 1 : 0].streams[1] = {here};
    return list;
  };
  EXPECT_EQ(getSeconds(stages(false)), 4);
  EXPECT_EQ(getSeconds(stages(true)), 8);
  // A collective uses both directions.
  auto shared = stages(false);
  shared[0].streams.push_back({collective(far)});
  EXPECT_EQ(getSeconds(shared), 8);
}

//===----------------------------------------------------------------------===//
// Pipelines
//===----------------------------------------------------------------------===//

/// Forward passes of `micro` micro-batches: each stage receives, computes and sends, with transfers
/// on their own streams.
std::vector<Stage> makePipeline(const std::vector<double> &forward, int64_t micro,
                                Passages passages) {
  std::vector<Stage> stages;
  auto count = static_cast<int64_t>(forward.size());
  for (int64_t s = 0; s < count; ++s) {
    std::vector<Item> received, computed, sent;
    for (int64_t i = 0; i < micro; ++i) {
      if (s > 0) {
        received.push_back(recv(s - 1, i, passages));
        received.push_back(record(2 * i));
        computed.push_back(wait(2 * i));
      }
      computed.push_back(work(forward[static_cast<size_t>(s)]));
      computed.push_back(record(2 * i + 1));
      if (s + 1 < count) {
        sent.push_back(wait(2 * i + 1));
        sent.push_back(send(s + 1, i, passages));
      }
    }
    stages.push_back({s, {received, computed, sent}});
  }
  return stages;
}

/// reference: bubble (p - 1) F; of the total (p - 1) / (m + p - 1), for one micro-batch (p - 1) /
/// p.
TEST(EngineTest, ForwardPipelinesHaveTheirBubble) {
  for (int64_t stages : {1, 2, 4, 8})
    for (int64_t micro : {1, 2, 8, 16, 32})
      for (double forward : {1.0, 0.25}) {
        auto p = static_cast<double>(stages), m = static_cast<double>(micro);
        std::vector<double> each(static_cast<size_t>(stages), forward);
        double seconds = getSeconds(makePipeline(each, micro, nullptr));
        EXPECT_EQ(seconds - m * forward, (p - 1) * forward);
        EXPECT_DOUBLE_EQ((seconds - m * forward) / seconds, (p - 1) / (m + p - 1));
      }
}

TEST(EngineTest, TheSlowestStageSetsThePace) {
  std::vector<double> forward{1, 4, 2, 0.5};
  EXPECT_EQ(getSeconds(makePipeline(forward, 6, nullptr)), 7.5 + 5 * 4);
}

TEST(EngineTest, TransfersAreHiddenBehindWork) {
  // 3 stages of 4 s and two transfers of 1 s: the first micro-batch takes 14 s, others add 4 s.
  EXPECT_EQ(getSeconds(makePipeline({4, 4, 4}, 5, hold(1))), 14 + 4 * 4);
  // Transfers that take longer than the compute determine the pace.
  EXPECT_EQ(getSeconds(makePipeline({1, 1, 1}, 5, hold(3))), 3 + 6 + 4 * 3);
}

/// Forward and backward passes in 1F1B order: bubble (p - 1)(F + B).
TEST(EngineTest, OneForwardOneBackward) {
  constexpr double forward = 1, backward = 2;
  for (int64_t stages : {2, 4, 8})
    for (int64_t micro : {8, 16}) {
      std::vector<Stage> list;
      for (int64_t s = 0; s < stages; ++s) {
        std::vector<Item> items;
        std::vector<std::vector<Item>> streams(4); // from previous, to next, from next, to previous
        int64_t done = 0, back = 0, warm = std::min(stages - s - 1, micro);
        auto addForward = [&] {
          if (s > 0) {
            streams[0].push_back(recv(s - 1, done));
            streams[0].push_back(record(done));
            items.push_back(wait(done));
          }
          items.push_back(work(forward));
          items.push_back(record(1000 + done));
          if (s + 1 < stages) {
            streams[1].push_back(wait(1000 + done));
            streams[1].push_back(send(s + 1, done));
          }
          ++done;
        };
        auto addBackward = [&] {
          if (s + 1 < stages) {
            streams[2].push_back(recv(s + 1, back));
            streams[2].push_back(record(2000 + back));
            items.push_back(wait(2000 + back));
          }
          items.push_back(work(backward));
          items.push_back(record(3000 + back));
          if (s > 0) {
            streams[3].push_back(wait(3000 + back));
            streams[3].push_back(send(s - 1, back));
          }
          ++back;
        };
        for (int64_t i = 0; i < warm; ++i)
          addForward();
        while (done < micro) {
          addForward();
          addBackward();
        }
        while (back < micro)
          addBackward();
        streams.push_back(items);
        list.push_back({s, streams});
      }
      double bubble = getSeconds(list) - static_cast<double>(micro) * (forward + backward);
      EXPECT_EQ(bubble, static_cast<double>(stages - 1) * (forward + backward));
    }
}

//===----------------------------------------------------------------------===//
// Cores
//===----------------------------------------------------------------------===//

Item workOn(double cores, double seconds) {
  return {.kind = Item::Kind::Work, .seconds = seconds, .passages = {}, .cores = cores};
}

/// Each stage can use half of the cores.
TEST(EngineTest, StagesShareTheCoresThatThereAre) {
  std::vector<Stage> stages;
  for (int64_t i = 0; i < 4; ++i) {
    stages.push_back({i, {{workOn(0.5, 1)}}});
    EXPECT_EQ(getSeconds(stages), i < 2 ? 1 : (i + 1) / 2.0);
  }
  // Finished stages leave their cores to the others.
  EXPECT_EQ(getSeconds({{0, {{workOn(1, 1)}}}, {1, {{workOn(1, 3)}}}}), 4);
  EXPECT_EQ(getSeconds({{0, {{work(1)}}}, {1, {{workOn(1, 3)}}}}), 3);
}

/// On one core, a copy and work each run at half speed; latencies and starts need no core.
TEST(EngineTest, CopyingTakesCores) {
  Item message = collective(hold(2), 1);
  message.cores = 1;
  EXPECT_EQ(getSeconds({{0, {{workOn(1, 3)}, {message}}}}), 5);
  message.cores = 0.5; // one of two
  EXPECT_EQ(getSeconds({{0, {{workOn(1, 3)}, {message}}}}), 4);
}

} // namespace
