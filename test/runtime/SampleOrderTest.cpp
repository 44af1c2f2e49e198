//===- SampleOrderTest.cpp - the samples that a step reads ----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/train/SampleOrder.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

using namespace gridloom::rt;
using testing::ElementsAre;

namespace {

std::vector<int64_t> countTo(int64_t size) {
  std::vector<int64_t> numbers(static_cast<size_t>(size));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

TEST(SampleOrder, EachEpochReadsEachSampleOnce) {
  for (int64_t size : {1, 2, 3, 4, 5, 7, 16, 17, 63, 64, 65, 1000, 4097})
    for (uint64_t seed : {uint64_t(0), uint64_t(1), ~uint64_t(0)}) {
      SampleOrder order(size, seed);
      for (int64_t epoch : {int64_t(0), int64_t(1), int64_t(1) << 20}) {
        std::vector<int64_t> read = order.getBatch(epoch * size, size);
        std::sort(read.begin(), read.end());
        EXPECT_EQ(read, countTo(size)) << size << " samples, seed " << seed << ", epoch " << epoch;
      }
    }
}

TEST(SampleOrder, SeedsAndEpochsHaveOrdersOfTheirOwn) {
  SampleOrder order(1000, 7), other(1000, 8);
  EXPECT_NE(order.getBatch(0, 1000), countTo(1000));
  EXPECT_NE(order.getBatch(0, 1000), order.getBatch(1000, 1000));
  EXPECT_NE(order.getBatch(0, 1000), other.getBatch(0, 1000));
}

/// Each sample must come first about equally often, and so must each pair.
TEST(SampleOrder, FewSamplesAreShuffledEvenly) {
  const int64_t epochs = 20000;
  for (int64_t size : {2, 3, 4, 5, 6, 8}) {
    SampleOrder order(size, 3);
    std::map<std::pair<int64_t, int64_t>, int> pairs;
    std::map<int64_t, int> first;
    for (int64_t epoch = 0; epoch < epochs; ++epoch) {
      int64_t a = order.getSample(epoch * size), b = order.getSample(epoch * size + 1);
      ++first[a];
      ++pairs[{a, b}];
    }
    // Within 4.5 standard deviations of a binomial distribution.
    auto isEven = [&](int count, double share) {
      return std::abs(count - share * epochs) < 4.5 * std::sqrt(epochs * share * (1 - share));
    };
    for (auto [a, count] : first)
      EXPECT_TRUE(isEven(count, 1.0 / double(size))) << size << " samples: " << a << ", " << count;
    for (auto [pair, count] : pairs)
      EXPECT_TRUE(isEven(count, 1.0 / double(size * (size - 1))))
          << size << " samples: " << pair.first << " and " << pair.second << ", " << count;
    EXPECT_EQ(int64_t(pairs.size()), size * (size - 1));
  }
}

TEST(SampleOrder, BatchesGoOnInTheNextEpochAndAfterAStop) {
  SampleOrder order(10, 5);
  std::vector<int64_t> whole = order.getBatch(0, 40), inParts;
  for (int64_t cursor = 0; cursor < 40; cursor += 4) {                   // 4 does not divide 10
    std::vector<int64_t> batch = SampleOrder(10, 5).getBatch(cursor, 4); // like a new process
    inParts.insert(inParts.end(), batch.begin(), batch.end());
  }
  EXPECT_EQ(inParts, whole);
  EXPECT_EQ(order.getEpoch(9), 0);
  EXPECT_EQ(order.getEpoch(10), 1);
}

/// Checkpoints depend on the order: it must not change by accident.
TEST(SampleOrder, IsTheSameInEveryVersion) {
  EXPECT_THAT(SampleOrder(8, 1).getBatch(0, 8), ElementsAre(2, 1, 5, 7, 3, 4, 0, 6));
}

} // namespace
