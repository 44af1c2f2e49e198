//===- ScheduleTest.cpp - learning rates by step --------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/train/Schedule.h"

#include "runtime/core/Error.h"

#include <gmock/gmock.h>

using namespace gridloom::rt;
using testing::HasSubstr;

namespace {

double getFactor(const std::string &text, int64_t step, int64_t steps = 0) {
  return Schedule::parse(text, steps).getFactor(step);
}

std::string getError(const std::string &text, int64_t steps = 0) {
  try {
    Schedule::parse(text, steps);
  } catch (const Error &error) {
    EXPECT_EQ(error.getCode(), ErrorCode::InvalidArgument);
    EXPECT_THAT(error.what(), HasSubstr(kScheduleGrammar));
    return error.what();
  }
  return "no error";
}

TEST(Schedule, ConstantIsOneAfterTheWarmUp) {
  EXPECT_EQ(getFactor("constant", 0), 1);
  EXPECT_EQ(getFactor(" constant ( ) ", 1000000), 1);
  EXPECT_EQ(getFactor("constant(warmup=4)", 0), 0.25); // never 0
  EXPECT_EQ(getFactor("constant(warmup=4)", 3), 1);
  EXPECT_EQ(getFactor("constant(warmup=4)", 4), 1);
}

TEST(Schedule, LinearEndsAtItsMinimum) {
  EXPECT_EQ(getFactor("linear(total=8)", 0), 1);
  EXPECT_EQ(getFactor("linear(total=8)", 2), 0.75);
  EXPECT_EQ(getFactor("linear(total=8)", 8), 0);
  EXPECT_EQ(getFactor("linear(total=8)", 9), 0);
  EXPECT_EQ(getFactor("linear(total=8, min=0.5)", 4), 0.75);
  EXPECT_EQ(getFactor("linear(warmup=2, total=10)", 1), 1);
  EXPECT_EQ(getFactor("linear(warmup=2, total=10)", 6), 0.5);
}

TEST(Schedule, CosineIsHalfWayInTheMiddle) {
  EXPECT_EQ(getFactor("cosine(total=12, warmup=4)", 1), 0.5);
  EXPECT_EQ(getFactor("cosine(total=12, warmup=4)", 4), 1);
  EXPECT_NEAR(getFactor("cosine(total=12, warmup=4)", 6), 0.85355339059327, 1e-14);
  EXPECT_NEAR(getFactor("cosine(total=12, warmup=4)", 8), 0.5, 1e-15);
  EXPECT_EQ(getFactor("cosine(total=12, warmup=4)", 12), 0);
  EXPECT_NEAR(getFactor("cosine(total=4, min=0.1)", 2), 0.55, 1e-15);
  EXPECT_EQ(getFactor("cosine(total=4, min=0.1)", 40), 0.1);
}

TEST(Schedule, StepFallsEverySoManySteps) {
  EXPECT_EQ(getFactor("step(every=3, gamma=0.5)", 2), 1);
  EXPECT_EQ(getFactor("step(every=3, gamma=0.5)", 3), 0.5);
  EXPECT_EQ(getFactor("step(every=3, gamma=0.5)", 8), 0.25);
  EXPECT_EQ(getFactor("step(every=3, gamma=0.5, warmup=2)", 5),
            0.5); // counts after the warm-up
  EXPECT_EQ(getFactor("step(every=3)", 3), 0.1);
}

TEST(Schedule, TheTotalIsTheRunsStepsWhereNoneIsGiven) {
  EXPECT_EQ(getFactor("linear", 5, 10), 0.5);
  EXPECT_EQ(getFactor("linear(total=20)", 5, 10), 0.75);
}

TEST(Schedule, ErrorsNameWhatIsWrong) {
  EXPECT_THAT(getError(""), HasSubstr("schedule '' has no name"));
  EXPECT_THAT(getError("Linear(total=3)"),
              HasSubstr("'Linear(total=3)' is unknown; give constant"));
  EXPECT_THAT(getError("linear"), HasSubstr("needs total=STEPS"));
  EXPECT_THAT(getError("step"), HasSubstr("needs every=STEPS"));
  EXPECT_THAT(getError("cosine(warmup=10)", 10), HasSubstr("a warm-up of 10 steps of 10 in all"));
  EXPECT_THAT(getError("constant(total=3)"), HasSubstr("has no 'total'"));
  EXPECT_THAT(getError("linear(gamma=1)", 5), HasSubstr("has no 'gamma'"));
  EXPECT_THAT(getError("linear(total=3, total=4)"), HasSubstr("has total twice"));
  EXPECT_THAT(getError("linear(total=0)"),
              HasSubstr("total=0, which is not a whole number from 1"));
  EXPECT_THAT(getError("linear(total=1e3)"),
              HasSubstr("total=1e3, which is not a whole number from 1"));
  EXPECT_THAT(getError("linear(total=99999999999999999999)"), HasSubstr("not a whole number"));
  EXPECT_THAT(getError("constant(warmup=-1)"),
              HasSubstr("warmup=-1, which is not a whole number from 0"));
  EXPECT_THAT(getError("cosine(total=3, min=2)"),
              HasSubstr("min=2, which is not a number from 0 to 1"));
  EXPECT_THAT(getError("cosine(total=3, min=nan)"), HasSubstr("min=nan, which is not a number"));
  EXPECT_THAT(getError("linear(total)"), HasSubstr("has 'total' without '='"));
  EXPECT_THAT(getError("linear(total=3"), HasSubstr("lacks ')'"));
  EXPECT_THAT(getError("linear(total=3) x"), HasSubstr("has 'x' behind it"));
}

} // namespace
