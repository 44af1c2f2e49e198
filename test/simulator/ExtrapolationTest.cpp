//===- ExtrapolationTest.cpp - many micro-batches from some ---------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/simulator/Extrapolation.h"

#include "compiler/simulator/Engine.h"

#include <gmock/gmock.h>

using namespace gridloom;
using namespace gridloom::sim;

namespace {

/// A forward pipeline with free transfers; `stages` are the seconds per micro-batch of each stage.
ProgramRun runPipeline(const std::vector<double> &stages, int64_t micro) {
  std::vector<Stage> submitted;
  for (size_t i = 0; i < stages.size(); ++i) {
    auto number = static_cast<int64_t>(i);
    Stage stage{number, {{}, {}, {}}}; // receives, work, sends
    for (int64_t m = 0; m < micro; ++m) {
      int64_t received = 2 * m, done = 2 * m + 1;
      if (i > 0) {
        stage.streams[0].push_back(
            {.kind = Item::Kind::Recv, .peer = number - 1, .iteration = m, .passages = {}});
        stage.streams[0].push_back({.kind = Item::Kind::Record, .event = received});
        stage.streams[1].push_back({.kind = Item::Kind::Wait, .event = received});
      }
      stage.streams[1].push_back({.kind = Item::Kind::Work, .seconds = stages[i]});
      stage.streams[1].push_back({.kind = Item::Kind::Record, .event = done});
      if (i + 1 < stages.size()) {
        stage.streams[2].push_back({.kind = Item::Kind::Wait, .event = done});
        stage.streams[2].push_back(
            {.kind = Item::Kind::Send, .peer = number + 1, .iteration = m, .passages = {}});
      }
    }
    submitted.push_back(std::move(stage));
  }
  std::string error;
  std::optional<Timeline> timeline = sim::run(submitted, error);
  EXPECT_TRUE(timeline) << error;
  ProgramRun run;
  run.seconds = timeline->seconds;
  for (double seconds : stages) {
    StageRun &stage = run.stages.emplace_back();
    SimulatedStep &step = stage.steps.emplace_back();
    step.times = micro;
    step.seconds = seconds * static_cast<double>(micro);
    stage.stats.wall = 1e3 * run.seconds;
    stage.stats.compute = 1e3 * step.seconds;
    stage.stats.isPipeline = true;
    stage.stats.bubble = 1 - step.seconds / run.seconds;
  }
  return run;
}

TEST(ExtrapolationTest, FewMicrobatchesAllRun) {
  for (int64_t steps : {0, 1, 100, 10000, 100000000})
    for (int64_t count = 1; count <= kLeastShown; ++count)
      EXPECT_EQ(countShown(count, steps), count);
  EXPECT_EQ(countShown(1000, 100), 1000);
  EXPECT_EQ(countShown(1000, 100000000), kLeastShown);
  EXPECT_LE(countShown(1000000000, 100) * 100, 1 << 17);
  EXPECT_EQ(countShown(1000000000, 100) % kLeastShown, 0);
}

TEST(ExtrapolationTest, MoreGoOnAtThePaceOfTheSlowestStage) {
  for (const std::vector<double> &stages :
       {std::vector{1.0, 2.0}, {3.0, 1.0, 2.0}, {1.0, 1.0, 1.0, 1.0}, {2.0, 5.0, 1.0, 4.0, 5.0}}) {
    ProgramRun run = runPipeline(stages, 64), exact = runPipeline(stages, 3001);
    extrapolate(run, runPipeline(stages, 32), 32, 64, 3001);
    EXPECT_DOUBLE_EQ(run.seconds, exact.seconds);
    for (size_t i = 0; i < stages.size(); ++i) {
      EXPECT_EQ(run.stages[i].steps[0].times, 3001);
      EXPECT_DOUBLE_EQ(run.stages[i].steps[0].seconds, exact.stages[i].steps[0].seconds);
      EXPECT_NEAR(run.stages[i].stats.bubble, exact.stages[i].stats.bubble, 1e-12);
    }
    EXPECT_THAT(run.partial, testing::ElementsAre(PartialRun{"micro-batches", 64, 3001}));
  }
}

/// 3 of 10 ms of communication are hidden, for any number of micro-batches.
TEST(ExtrapolationTest, SharesFollowFromSums) {
  auto make = [](double micro) {
    ProgramRun run;
    run.seconds = 0.020 * micro + 0.005;
    rt::RunStats &stats = run.stages.emplace_back().stats;
    stats.wall = 1e3 * run.seconds;
    stats.compute = 12 * micro;
    stats.communication = 10 * micro;
    stats.exposed = 7 * micro;
    stats.isPipeline = true;
    return run;
  };
  ProgramRun run = make(64);
  extrapolate(run, make(32), 32, 64, 1000);
  EXPECT_NEAR(run.stats.wall, 20005, 1e-6);
  EXPECT_NEAR(run.stats.communication, 10000, 1e-6);
  EXPECT_NEAR(run.stats.overlap, 0.3, 1e-9);
  EXPECT_NEAR(run.stats.bubble, 1 - 19000.0 / 20005, 1e-9);
}

} // namespace
