//===- DeadlockTest.cpp - deadlocks between stages ------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/schedule/Deadlock.h"

#include "gmock/gmock.h"

using namespace gridloom;
using ::testing::HasSubstr;
using ::testing::Optional;

namespace {

using Kind = StageTrace::Kind;

StageTrace::Item send(int64_t to, int64_t channel) {
  return {.kind = Kind::Send, .peer = to, .channel = channel};
}
StageTrace::Item recv(int64_t from, int64_t channel) {
  return {.kind = Kind::Recv, .peer = from, .channel = channel};
}
StageTrace::Item record(int64_t event) { return {.kind = Kind::Record, .event = event}; }
StageTrace::Item await(int64_t event) { return {.kind = Kind::Wait, .event = event}; }
StageTrace::Item join(std::string communicator, std::vector<int64_t> members, int64_t call,
                      std::string node = "") {
  return {.kind = Kind::Collective,
          .channel = call,
          .communicator = std::move(communicator),
          .members = std::move(members),
          .node = std::move(node)};
}

StageTrace stage(int64_t number, std::vector<StageTrace::Stream> streams) {
  return {number, std::move(streams)};
}

} // namespace

TEST(Deadlock, NothingAndOneStageEnd) {
  EXPECT_EQ(findDeadlock({}), std::nullopt);
  EXPECT_EQ(findDeadlock({stage(0, {{"compute", {record(0)}}, {"comm", {await(0)}}})}),
            std::nullopt);
}

TEST(Deadlock, BothDirectionsBesideEachOtherMeet) {
  EXPECT_EQ(findDeadlock({stage(0, {{"send.1", {send(1, 0)}}, {"recv.1", {recv(1, 1)}}}),
                          stage(1, {{"send.0", {send(0, 1)}}, {"recv.0", {recv(0, 0)}}})}),
            std::nullopt);
}

TEST(Deadlock, SendsOnOneStreamThatMustFinishFirstDoNot) {
  EXPECT_THAT(
      findDeadlock({stage(0, {{"peer", {send(1, 0), recv(1, 1)}}}),
                    stage(1, {{"peer", {send(0, 1), recv(0, 0)}}})}),
      Optional(HasSubstr(
          "a cycle: stage 0 'peer' iteration 0 sends channel 0 to stage 1 waits for stage 1 "
          "'peer' iteration 0 sends channel 1 to stage 0 waits for stage 0 'peer'")));
}

TEST(Deadlock, ThreeStagesInARing) {
  auto member = [](int64_t own, int64_t next, int64_t previous, int64_t out, int64_t in) {
    return stage(own, {{"peer", {send(next, out), recv(previous, in)}}});
  };
  EXPECT_THAT(findDeadlock({member(0, 1, 2, 0, 2), member(1, 2, 0, 1, 0), member(2, 0, 1, 2, 1)}),
              Optional(HasSubstr("a cycle")));
  // A stage that receives and sends on separate streams breaks the cycle.
  EXPECT_EQ(findDeadlock({stage(0, {{"recv", {recv(2, 2)}}, {"send", {send(1, 0)}}}),
                          member(1, 2, 0, 1, 0), member(2, 0, 1, 2, 1)}),
            std::nullopt);
}

TEST(Deadlock, AChannelOutOfOrderIsNotMet) {
  EXPECT_THAT(findDeadlock({stage(0, {{"send.1", {send(1, 0), send(1, 1)}}}),
                            stage(1, {{"recv.0", {recv(0, 1), recv(0, 0)}}})}),
              Optional(HasSubstr("a cycle")));
}

TEST(Deadlock, AStageThatIsNotThereNeverAnswers) {
  EXPECT_THAT(
      findDeadlock({stage(0, {{"send.7", {send(7, 3)}}})}),
      Optional(HasSubstr(
          "stage 0 'send.7' iteration 0 sends channel 3 to stage 7, which nobody answers")));
  EXPECT_THAT(findDeadlock({stage(0, {{"comm", {await(4)}}})}),
              Optional(HasSubstr("awaits an event, which nobody answers")));
}

TEST(Deadlock, CallsOfACommunicatorMeetInOneOrder) {
  auto rank = [](int64_t number, std::vector<StageTrace::Item> items) {
    StageTrace trace = stage(number, {{"comm", std::move(items)}});
    trace.noun = "rank";
    return trace;
  };
  StageTrace::Item x = join("x", {0, 1}, 0, "q"), y = join("y", {0, 1}, 0, "k");
  EXPECT_EQ(findDeadlock({rank(0, {x, y}), rank(1, {x, y})}), std::nullopt);
  EXPECT_THAT(findDeadlock({rank(0, {x, y}), rank(1, {y, x})}),
              Optional(HasSubstr("a cycle: rank 0 'comm' iteration 0 joins call 0 of communicator "
                                 "'x' (node 'q') waits for "
                                 "rank 1 'comm' iteration 0 joins call 0 of communicator 'y' (node "
                                 "'k') waits for rank 0")));
  EXPECT_THAT(findDeadlock({rank(0, {x}), rank(1, {})}), Optional(HasSubstr("nobody answers")));
}
