//===- UsageTest.cpp - suggestions for misspelt names --------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "support/Usage.h"

#include <gmock/gmock.h>

#include <vector>

using namespace gridloom;

TEST(Suggest, NearNamesOnly) {
  std::vector<std::string> known{"summary", "schedule", "kernels", "ir"};
  EXPECT_EQ(suggest("kernel", known), "; did you mean 'kernels'?");
  EXPECT_EQ(suggest("sched", known), "; did you mean 'schedule'?");
  EXPECT_EQ(suggest("shcedule", known), "; did you mean 'schedule'?");
  EXPECT_EQ(suggest("weather", known), "");
  EXPECT_EQ(suggest("", known), "");
}
