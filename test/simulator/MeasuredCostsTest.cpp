//===- MeasuredCostsTest.cpp - times of traces ----------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/simulator/MeasuredCosts.h"

#include <gmock/gmock.h>

using namespace gridloom::sim;
using testing::HasSubstr;

namespace {

std::string event(const char *name, const char *node, int rank, int iteration, double us,
                  const char *category = "compute") {
  return std::string(R"({"ph": "X", "name": ")") + name + R"(", "cat": ")" + category +
         R"(", "pid": )" + std::to_string(rank) + R"(, "ts": 0, "dur": )" + std::to_string(us) +
         R"(, "args": {"onnx": ")" + node + R"(", "iteration": )" + std::to_string(iteration) +
         "}}";
}

std::string trace(std::initializer_list<std::string> events) {
  std::string text;
  for (const std::string &each : events)
    text += (text.empty() ? "" : ",") + each;
  return R"({"traceEvents": [)" + text + "]}";
}

MeasuredCosts parse(const std::string &text) {
  std::string error;
  std::optional<MeasuredCosts> costs = MeasuredCosts::parse(text, "t.json", error);
  EXPECT_TRUE(costs) << error;
  return costs.value_or(MeasuredCosts());
}

TEST(MeasuredCostsTest, TimesAreMeans) {
  MeasuredCosts costs = parse(
      trace({event("k0", "a", 0, 0, 4), event("k0", "a", 0, 1, 8), event("k0", "a", 1, 0, 12),
             event("k0", "b", 0, 0, 40), R"({"ph": "M", "name": "process_name", "pid": 0})"}));
  EXPECT_DOUBLE_EQ(*costs.find("k0", "a"), 8e-6);
  EXPECT_DOUBLE_EQ(*costs.find("k0", "b"), 40e-6);
  EXPECT_DOUBLE_EQ(*costs.find("k0", "elsewhere"), 16e-6); // by name alone
  EXPECT_EQ(costs.find("k1", "a"), std::nullopt);
}

/// The time that a rank waits for the last one is not part of the collective.
TEST(MeasuredCostsTest, OfCommunicationTheShortestOfAllRanksCounts) {
  MeasuredCosts costs = parse(trace({event("all_reduce #0", "a", 0, 0, 90, "communication"),
                                     event("all_reduce #0", "a", 1, 0, 10, "communication"),
                                     event("all_reduce #0", "a", 0, 1, 20, "communication"),
                                     event("all_reduce #0", "a", 1, 1, 70, "communication")}));
  EXPECT_DOUBLE_EQ(*costs.find("all_reduce #0", "a"), 15e-6);
}

TEST(MeasuredCostsTest, TurnsOfALoopAreApart) {
  MeasuredCosts costs = parse(trace({event("all_reduce #0", "a", 0, 0, 90, "communication"),
                                     event("all_reduce #0", "a", 0, 0, 10, "communication"),
                                     event("all_reduce #0", "a", 1, 0, 30, "communication"),
                                     event("all_reduce #0", "a", 1, 0, 20, "communication")}));
  EXPECT_DOUBLE_EQ(*costs.find("all_reduce #0", "a"), 20e-6);
}

std::string getError(const std::string &text) {
  std::string error;
  EXPECT_FALSE(MeasuredCosts::parse(text, "t.json", error));
  EXPECT_THAT(error, testing::StartsWith("the costs 't.json' "));
  EXPECT_EQ(error.find('\n'), std::string::npos);
  return error;
}

TEST(MeasuredCostsTest, OtherFilesAreRefused) {
  EXPECT_THAT(getError(""), HasSubstr("are not JSON"));
  EXPECT_THAT(getError("{\n\n"), HasSubstr("are not JSON"));
  EXPECT_THAT(getError("[]"), HasSubstr("have no list 'traceEvents'"));
  EXPECT_THAT(getError("3"), HasSubstr("have no list 'traceEvents'"));
  EXPECT_THAT(getError(R"({"traceEvents": 3})"), HasSubstr("have no list 'traceEvents'"));
  EXPECT_THAT(getError(trace({})), HasSubstr("time no step"));
  EXPECT_THAT(getError(trace({"7"})), HasSubstr("traceEvents[0] is not an object"));
  EXPECT_THAT(getError(trace({event("k", "a", 0, 0, 1), event("k", "a", 0, 0, -2)})),
              HasSubstr("traceEvents[1] has 'dur' -2"));
  EXPECT_THAT(getError(trace({R"({"ph": "X", "name": "k"})"})), HasSubstr("has no 'dur'"));
  EXPECT_THAT(getError(trace({R"({"ph": "X", "dur": 1})"})), HasSubstr("has no 'name'"));
  EXPECT_THAT(getError(trace({R"({"ph": "X", "name": "k", "dur": "1"})"})),
              HasSubstr("has no 'dur'"));
  EXPECT_THAT(getError(trace({R"({"ph": "X", "name": "k", "dur": 1e999})"})), HasSubstr("t.json"));
  EXPECT_THAT(getError(std::string(1 << 20, '[')), HasSubstr("more than 64 lists"));
  // Brackets in names do not count as nesting.
  EXPECT_TRUE(parse(trace({event(std::string(100, '[').c_str(), "a", 0, 0, 1)}))
                  .find(std::string(100, '['), "a"));
}

} // namespace
