//===- UsageTest.cpp - command lines that cannot be understood -----------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "support/Usage.h"

#include <CLI/CLI.hpp>
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

TEST(WholeNumbers, HaveNeitherSignNorMoreThan64Bits) {
  CLI::Validator fromOne = wholeNumberFrom(1);
  for (std::string text : {"1", "18446744073709551615"})
    EXPECT_EQ(fromOne(text), "");
  for (std::string text : {"0", "-1", "1.5", ""})
    EXPECT_EQ(fromOne(text), "Value " + text + " is not a whole number from 1");
  std::string large = "18446744073709551616";
  EXPECT_EQ(fromOne(large),
            "Value " + large + " is not a whole number from 1 to 18446744073709551615");
}
