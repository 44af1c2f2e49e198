//===- IndexCheckTest.cpp - out-of-range indices and labels ---------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/core/IndexCheck.h"

#include "runtime/core/Error.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

using namespace gridloom::rt;

namespace {

std::string check(std::optional<IndexUse> use, int64_t value) {
  Argument input;
  input.name = "ids";
  input.indices = std::move(use);
  HostArray values = HostArray::allocate(DataType::I64, {2});
  values.as<int64_t>()[1] = value;
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

TEST(IndexCheck, ThereIsNoIndexTooLargeToCountFrom) {
  int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(
      check(IndexUse{"/Gather", 8, 1, 3}, most),
      "node '/Gather': input 'ids' holds the index 9223372036854775807, from which it counts to "
      "9223372036854775807, outside of a dimension of 8");
  EXPECT_NE(check(IndexUse{"/Gather", 8, 0, 3}, std::numeric_limits<int64_t>::min()), "");
}

TEST(IndexCheck, NarrowIndicesAreCheckedToo) {
  Argument input;
  input.name = "ids";
  input.indices = IndexUse{"/Gather", 8, 0, 0};
  HostArray values = HostArray::allocate(DataType::I32, {1});
  values.as<int32_t>()[0] = 8;
  EXPECT_THROW(checkIndices(input, values), Error);
}

/// The error for these labels; empty if they are valid.
std::string checkLabels(LabelUse use, HostArray values) {
  Argument input;
  input.name = "labels";
  input.labels = {std::move(use)};
  try {
    checkIndices(input, values);
  } catch (const Error &error) {
    return error.what();
  }
  return "";
}

/// Two labels in each of three rows; the fifth is `label`.
template <typename T> HostArray makeLabels(DataType type, T label) {
  HostArray values = HostArray::allocate(type, {3, 2});
  std::ranges::fill(values.as<T>(), T(1));
  values.as<T>()[4] = label;
  return values;
}

TEST(IndexCheck, LabelsAreClassesOrIgnored) {
  LabelUse use{"cross_entropy(y, labels)", 5, std::nullopt};
  EXPECT_EQ(checkLabels(use, makeLabels<int64_t>(DataType::I64, 4)), "");
  EXPECT_EQ(
      checkLabels(use, makeLabels<int64_t>(DataType::I64, 5)),
      "input 'labels' holds label 5 in row 2 of the batch; loss 'cross_entropy(y, labels)' has the "
      "5 classes 0 to 4; give it ignore_index=LABEL if rows of this label are to count for "
      "nothing");
  use.ignored = -1;
  EXPECT_EQ(checkLabels(use, makeLabels<int8_t>(DataType::I8, -1)), "");
  EXPECT_EQ(
      checkLabels(use, makeLabels<int8_t>(DataType::I8, -2)),
      "input 'labels' holds label -2 in row 2 of the batch; loss 'cross_entropy(y, labels)' has "
      "the 5 classes 0 to 4 and ignores -1");
  EXPECT_NE(checkLabels(use, makeLabels<uint8_t>(DataType::U8, 255)), ""); // 255 is not -1
  EXPECT_NE(checkLabels(use, makeLabels<uint32_t>(DataType::U32, 5)), "");
  EXPECT_EQ(checkLabels(use, HostArray::allocate(DataType::I64, {0})), "");
}

} // namespace
