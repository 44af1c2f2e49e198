//===- RendezvousTest.cpp - do the stages' transfers meet -------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/schedule/Rendezvous.h"

#include "gmock/gmock.h"

using namespace gridloom;
using ::testing::HasSubstr;
using ::testing::Optional;

namespace {

using Kind = StageTrace::Kind;

StageTrace::Item send(int64_t to, int64_t channel) { return {Kind::Send, 0, to, channel, 0}; }
StageTrace::Item recv(int64_t from, int64_t channel) { return {Kind::Recv, 0, from, channel, 0}; }
StageTrace::Item record(int64_t event) { return {Kind::Record, event, 0, 0, 0}; }
StageTrace::Item await(int64_t event) { return {Kind::Wait, event, 0, 0, 0}; }

StageTrace stage(int64_t number, std::vector<StageTrace::Stream> streams) {
  return {number, std::move(streams)};
}

} // namespace

TEST(Rendezvous, NothingAndOneStageEnd) {
  EXPECT_EQ(findDeadlock({}), std::nullopt);
  EXPECT_EQ(findDeadlock({stage(0, {{"compute", {record(0)}}, {"comm", {await(0)}}})}),
            std::nullopt);
}

TEST(Rendezvous, BothDirectionsBesideEachOtherMeet) {
  EXPECT_EQ(findDeadlock({stage(0, {{"send.1", {send(1, 0)}}, {"recv.1", {recv(1, 1)}}}),
                          stage(1, {{"send.0", {send(0, 1)}}, {"recv.0", {recv(0, 0)}}})}),
            std::nullopt);
}

TEST(Rendezvous, SendsOnOneStreamThatMustFinishFirstDoNot) {
  EXPECT_THAT(findDeadlock({stage(0, {{"peer", {send(1, 0), recv(1, 1)}}}),
                            stage(1, {{"peer", {send(0, 1), recv(0, 0)}}})}),
              Optional(HasSubstr("a cycle: stage 0 'peer' iteration 0 sends channel 0 to stage 1; "
                                 "stage 1 'peer' iteration 0 sends channel 1 to stage 0")));
}

TEST(Rendezvous, ThreeStagesInARing) {
  auto member = [](int64_t own, int64_t next, int64_t previous, int64_t out, int64_t in) {
    return stage(own, {{"peer", {send(next, out), recv(previous, in)}}});
  };
  EXPECT_THAT(findDeadlock({member(0, 1, 2, 0, 2), member(1, 2, 0, 1, 0), member(2, 0, 1, 2, 1)}),
              Optional(HasSubstr("a cycle")));
  // One that receives first lets the others end, when what it sends needs nothing it receives.
  EXPECT_EQ(findDeadlock({stage(0, {{"recv", {recv(2, 2)}}, {"send", {send(1, 0)}}}),
                          member(1, 2, 0, 1, 0), member(2, 0, 1, 2, 1)}),
            std::nullopt);
}

TEST(Rendezvous, AChannelOutOfOrderIsNotMet) {
  EXPECT_THAT(findDeadlock({stage(0, {{"send.1", {send(1, 0), send(1, 1)}}}),
                            stage(1, {{"recv.0", {recv(0, 1), recv(0, 0)}}})}),
              Optional(HasSubstr("a cycle")));
}

TEST(Rendezvous, AStageThatIsNotThereNeverAnswers) {
  EXPECT_THAT(
      findDeadlock({stage(0, {{"send.7", {send(7, 3)}}})}),
      Optional(HasSubstr(
          "stage 0 'send.7' iteration 0 sends channel 3 to stage 7, which nobody answers")));
  EXPECT_THAT(findDeadlock({stage(0, {{"comm", {await(4)}}})}),
              Optional(HasSubstr("waits for an event, which nobody answers")));
}
