//===- SessionExchangeTest.cpp - unsplit values of a job ------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "Arrays.h"
#include "PlanBuilder.h"
#include "runtime/core/Error.h"
#include "runtime/core/InProcessJob.h"

#include <gmock/gmock.h>
#include <thread>

using namespace gridloom;
using namespace gridloom::rt;
using namespace gridloom::test;
using testing::ElementsAreArray;
using testing::HasSubstr;

namespace {

class Job : public testing::Test {
protected:
  TemporaryFolder folder;
  std::unique_ptr<InProcessJob> start(PlanBuilder &builder) {
    return std::make_unique<InProcessJob>(Plan::load(builder.write(folder.getPath())));
  }
};

/// A plan with states that are split in all ways over a mesh.
class States : public Job, public testing::WithParamInterface<std::pair<int, int>> {
protected:
  static PlanBuilder makePlan(int data, int model) {
    PlanBuilder plan;
    plan.addAxis("data", data);
    plan.addAxis("model", model);
    plan.addCopyEntry({2});
    auto divide = [](int64_t size, int64_t parts) { return (size + parts - 1) / parts; };
    schema::Stage &stage = plan.stages[0];
    PlanBuilder::addState(stage, "replicated", {5, 3}, {5, 3});
    PlanBuilder::addState(stage, "rows", {5, 3}, {divide(5, data), 3}, {{"data"}, {}});
    PlanBuilder::addState(stage, "both", {5, 3}, {divide(5, data), divide(3, model)},
                          {{"data"}, {"model"}});
    PlanBuilder::addState(stage, "one", {7}, {divide(7, int64_t{data} * model)},
                          {{"model", "data"}});
    PlanBuilder::addState(stage, "scalar", {}, {});
    PlanBuilder::addState(stage, "empty", {0, 4}, {0, 4}, {{"data"}, {}});
    return plan;
  }
};

/// Calls work(rank) on a thread for each rank.
void onRanks(int ranks, const std::function<void(int)> &work) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back(work, rank);
  for (std::thread &thread : threads)
    thread.join();
}

TEST_P(States, WholeValuesGoInAndOut) {
  auto [data, model] = GetParam();
  PlanBuilder plan = makePlan(data, model);
  auto job = start(plan);
  std::map<std::string, std::vector<int64_t>> shapes = {{"replicated", {5, 3}}, {"rows", {5, 3}},
                                                        {"both", {5, 3}},       {"one", {7}},
                                                        {"scalar", {}},         {"empty", {0, 4}}};
  float first = 1;
  for (const auto &[name, shape] : shapes) {
    std::vector<float> values =
        iota(HostArray::borrow(DataType::F32, shape, nullptr).getNumElements(), first += 100);
    std::vector<HostArray> toRoot(size_t(data * model)), toAll(toRoot.size());
    onRanks(data * model, [&, &name = name, &shape = shape](int rank) {
      Session &session = job->getSession(rank);
      session.setGlobalState(name, view(values, shape));
      toRoot[size_t(rank)] = session.gatherState(name);
      toAll[size_t(rank)] = session.gatherStateToAll(name);
    });
    for (size_t rank = 0; rank < toRoot.size(); ++rank) {
      EXPECT_EQ(toAll[rank].getShape(), shape) << name;
      EXPECT_EQ(toVector(toAll[rank]), values) << name << " on rank " << rank;
      if (rank > 0)
        EXPECT_TRUE(toRoot[rank].isNull()) << name;
    }
    EXPECT_EQ(toVector(toRoot[0]), values) << name;
  }
  // Beyond the value's end is padding, which is zero.
  HostArray last = job->getSession(data * model - 1).getState("one");
  int64_t padded = last.getNumElements() * data * model;
  for (int64_t i = 0; i < std::min(padded - 7, last.getNumElements()); ++i)
    EXPECT_EQ(last.as<float>()[size_t(last.getNumElements() - 1 - i)], 0);
}
INSTANTIATE_TEST_SUITE_P(All, States,
                         testing::Values(std::pair(1, 1), std::pair(2, 1), std::pair(3, 1),
                                         std::pair(1, 4), std::pair(2, 2)));

TEST_F(Job, WrongWholeStatesAreNamed) {
  PlanBuilder plan;
  plan.addCopyEntry({2});
  PlanBuilder::addState(plan.stages[0], "v", {2, 3}, {2, 3});
  auto job = start(plan);
  Session &session = job->getSession(0);
  std::vector<float> values = iota(6);
  EXPECT_THAT([&] { session.setGlobalState("v", view(values, {3, 2})); },
              testing::ThrowsMessage<Error>(HasSubstr("state 'v' is f32[2, 3], not f32[3, 2]")));
  EXPECT_THAT(
      [&] { session.gatherState("u"); },
      testing::ThrowsMessage<Error>(HasSubstr("the plan has no state 'u'; its states are: v")));
  session.setGlobalState("v", view(values, {2, 3})); // the session is still usable
  EXPECT_EQ(toVector(session.gatherState("v")), values);
}

/// One state only in the second stage, one in both: rank 0 gathers both.
TEST_F(Job, StatesOfStagesAreGathered) {
  PlanBuilder plan(2);
  plan.addAxis("pipe", 2);
  plan.addAxis("model", 2);
  plan.setStageAxis("pipe");
  plan.addCopyEntry({2});
  PlanBuilder::addState(plan.stages[0], "step", {1}, {1});
  PlanBuilder::addState(plan.stages[1], "step", {1}, {1});
  PlanBuilder::addState(plan.stages[1], "w", {3, 3}, {3, 2}, {{}, {"model"}});
  auto job = start(plan);
  std::vector<float> values = iota(9), step = {7};
  std::vector<std::vector<float>> gathered(4), steps(4);
  onRanks(4, [&](int rank) {
    Session &session = job->getSession(rank);
    session.setGlobalState("w", view(values, {3, 3}));
    session.setGlobalState("step", view(step, {1}));
    gathered[size_t(rank)] = toVector(session.gatherStateToAll("w"));
    HostArray root = session.gatherState("step");
    steps[size_t(rank)] = root.isNull() ? std::vector<float>() : toVector(root);
  });
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(gathered[size_t(rank)], values);
    EXPECT_EQ(steps[size_t(rank)], rank == 0 ? step : std::vector<float>());
    EXPECT_EQ(toVector(job->getSession(rank).getState("step")), step);
  }
  EXPECT_THAT(toVector(job->getSession(3).getState("w")),
              ElementsAreArray({3.f, 0.f, 6.f, 0.f, 9.f, 0.f}));
}

TEST_F(Job, BytesAreExchanged) {
  PlanBuilder plan;
  plan.addAxis("data", 3);
  plan.addCopyEntry({2});
  auto job = start(plan);
  std::vector<std::vector<std::vector<std::byte>>> received(3);
  onRanks(3, [&](int rank) {
    std::vector<std::byte> mine(5, std::byte(rank + 1));
    received[size_t(rank)] = job->getSession(rank).exchange(mine);
  });
  for (int rank = 0; rank < 3; ++rank)
    for (int other = 0; other < 3; ++other)
      EXPECT_EQ(received[size_t(rank)][size_t(other)],
                std::vector<std::byte>(5, std::byte(other + 1)));
}

} // namespace
