//===- IndexCheckTest.cpp - indices that are out of range -----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/core/IndexCheck.h"

#include "runtime/core/Error.h"

#include <gtest/gtest.h>

using namespace gridloom::rt;

namespace {

std::string check(std::optional<IndexUse> use, int64_t value) {
  Argument input;
  input.name = "ids";
  input.indices = std::move(use);
  HostArray values = HostArray::allocate(DataType::I32, {2});
  values.as<int32_t>()[1] = int32_t(value);
  try {
    checkIndices(input, values);
  } catch (const Error &error) {
    return error.what();
  }
  return "";
}

TEST(IndexCheck, IndicesCountFromBothEnds) {
  IndexUse use{"/Gather", 8, 0, 0};
  EXPECT_EQ(check(use, 7), "");
  EXPECT_EQ(check(use, -8), "");
  EXPECT_EQ(check(use, 8),
            "node '/Gather': input 'ids' holds the index 8, outside of a dimension of 8");
  EXPECT_NE(check(use, -9), "");
  EXPECT_EQ(check(std::nullopt, 99), "");
}

TEST(IndexCheck, PositionsCountOn) {
  IndexUse use{"/Gather", 8, 0, 3};
  EXPECT_EQ(check(use, 4), "");
  EXPECT_EQ(check(use, 5), "node '/Gather': input 'ids' holds the index 5, from which it counts to "
                           "8, outside of a dimension of 8");
}

} // namespace
