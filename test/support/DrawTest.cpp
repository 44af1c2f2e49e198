//===- DrawTest.cpp - initial values of tensors ---------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "support/Draw.h"

#include "support/Philox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

using namespace gridloom;
using ::testing::ElementsAre;
using Distribution = Draw::Distribution;

namespace {

constexpr size_t kCount = 100000;

// The generator's published outputs, for counters and keys of zeros, ones, and digits of pi.
TEST(Philox, PublishedAnswers) {
  EXPECT_THAT(Philox::compute({0, 0, 0, 0}, {0, 0}),
              ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  uint32_t ones = 0xffffffff;
  EXPECT_THAT(Philox::compute({ones, ones, ones, ones}, {ones, ones}),
              ElementsAre(0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
  EXPECT_THAT(
      Philox::compute({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
      ElementsAre(0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));
}

/// The counter is the block of four elements and the stream, the key is the seed.
TEST(Draw, WordsAreOfIndexStreamAndSeed) {
  Draw draw{Distribution::Uniform, 0, 1, 0x299f31d0a4093822, 0x0370734413198a2e};
  uint64_t block = 0x05a308d3243f6a88;
  auto words =
      Philox::compute({0x243f6a88, 0x05a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0});
  std::vector<double> made(4);
  draw.fill(4 * block, 4, made.data());
  for (size_t i = 0; i < 4; ++i)
    EXPECT_EQ(made[i], (words[i] >> 8) * 0x1p-24) << i;
}

double getNormalShare(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

TEST(Draw, QuantilesInvertTheNormalDistribution) {
  for (double p = 0x1p-33; p < 0.5; p *= 1.37) {
    double x = getNormalQuantile(p);
    // For small p, the relative error of p is x times the error of x.
    EXPECT_NEAR(getNormalShare(x) / p, 1, 1e-14 * (1 + x * x)) << p;
    EXPECT_NEAR(getNormalQuantile(1 - p), -getNormalQuantile(1 - (1 - p)), 1e-15 * (1 + x * x))
        << p;
  }
  EXPECT_EQ(getNormalQuantile(0.5), 0);
  EXPECT_NEAR(getNormalQuantile(0.975), 1.959963984540054, 1e-15);
  EXPECT_NEAR(getNormalQuantile(0x1p-33), -6.337957754553789, 1e-14);
}

/// The largest difference between the values' empirical distribution function and `share`.
double getLargestGap(std::vector<double> values, const std::function<double(double)> &share) {
  std::sort(values.begin(), values.end());
  double gap = 0, n = static_cast<double>(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    double expected = share(values[i]), below = static_cast<double>(i);
    gap = std::max({gap, expected - below / n, (below + 1) / n - expected});
  }
  return gap;
}

struct Moments {
  double mean = 0, variance = 0;
};

Moments getMoments(const std::vector<double> &values) {
  Moments moments;
  for (double value : values)
    moments.mean += value / static_cast<double>(values.size());
  for (double value : values)
    moments.variance +=
        (value - moments.mean) * (value - moments.mean) / static_cast<double>(values.size());
  return moments;
}

/// Kolmogorov-Smirnov: for 1e5 correct draws the gap exceeds 1.95 / sqrt(n) in one of a thousand
/// samples (Smirnov 1948). Means and variances are within four standard deviations.
TEST(Draw, IsDistributedAsItSays) {
  const double n = kCount, gap = 1.95 / std::sqrt(n);
  for (uint64_t seed : {0, 1, 2, 77})
    for (const char *name : {"fc.weight", "fc.bias"}) {
      uint64_t stream = Draw::makeStream(name);
      std::vector<double> values(kCount);
      Draw{Distribution::Normal, 0.5, 0.02, seed, stream}.fill(0, kCount, values.data());
      Moments moments = getMoments(values);
      EXPECT_NEAR(moments.mean, 0.5, 4 * 0.02 / std::sqrt(n));
      EXPECT_NEAR(moments.variance / 0.0004, 1, 4 * std::sqrt(2 / n));
      EXPECT_LT(getLargestGap(values, [](double x) { return getNormalShare((x - 0.5) / 0.02); }),
                gap);
      Draw{Distribution::Uniform, -3, 5, seed, stream}.fill(0, kCount, values.data());
      moments = getMoments(values);
      EXPECT_NEAR(moments.mean, 1, 4 * std::sqrt(64 / 12.0 / n));
      EXPECT_NEAR(moments.variance / (64 / 12.0), 1, 4 * std::sqrt(0.8 / n));
      EXPECT_LT(getLargestGap(values, [](double x) { return (x + 3) / 8; }), gap);
      EXPECT_GE(*std::min_element(values.begin(), values.end()), -3);
      EXPECT_LT(*std::max_element(values.begin(), values.end()), 5);
    }
}

/// Neighbouring elements, other seeds and other names are uncorrelated: the mean of their products
/// is within four standard deviations of 0.
TEST(Draw, IsIndependent) {
  auto make = [](uint64_t seed, const char *name) {
    std::vector<double> values(kCount);
    Draw{Distribution::Normal, 0, 1, seed, Draw::makeStream(name)}.fill(0, kCount, values.data());
    return values;
  };
  auto correlate = [](const std::vector<double> &a, const std::vector<double> &b, size_t shift) {
    double sum = 0;
    for (size_t i = 0; i + shift < kCount; ++i)
      sum += a[i] * b[i + shift];
    return sum / static_cast<double>(kCount);
  };
  double most = 4 / std::sqrt(double(kCount));
  std::vector<double> values = make(3, "w1");
  for (size_t shift : {1, 2, 3, 4, 5, 1024})
    EXPECT_LT(std::abs(correlate(values, values, shift)), most) << shift;
  EXPECT_LT(std::abs(correlate(values, make(4, "w1"), 0)), most);
  EXPECT_LT(std::abs(correlate(values, make(3, "w2"), 0)), most);
}

TEST(Draw, PartsAreThoseOfTheWhole) {
  for (Distribution distribution :
       {Distribution::Constant, Distribution::Uniform, Distribution::Normal}) {
    Draw draw{distribution, -0.25, 0.75, 9, Draw::makeStream("a")};
    std::vector<float> whole(1003), part(1003);
    draw.fill(uint64_t(1) << 40, whole.size(), whole.data());
    for (size_t cut : {1, 2, 3, 4, 5, 333, 1000}) {
      for (size_t begin = 0; begin < whole.size(); begin += cut)
        draw.fill((uint64_t(1) << 40) + begin, std::min(cut, whole.size() - begin),
                  part.data() + begin);
      EXPECT_EQ(part, whole) << cut;
    }
    std::vector<double> wide(whole.size());
    draw.fill(uint64_t(1) << 40, wide.size(), wide.data());
    for (size_t i = 0; i < wide.size(); ++i)
      ASSERT_EQ(static_cast<float>(wide[i]), whole[i]);
  }
}

/// Checkpoints and papers refer to these numbers, so they must never change.
TEST(Draw, IsTheSameForever) {
  EXPECT_EQ(Draw::makeStream(""), 0xcbf29ce484222325);
  EXPECT_EQ(Draw::makeStream("a"), 0xaf63dc4c8601ec8c);
  std::vector<double> zeros(2);
  Draw{Distribution::Constant, 1.5, 7, 1, 2}.fill(5, 2, zeros.data());
  EXPECT_THAT(zeros, ElementsAre(1.5, 1.5));
  // Seed 0 and stream 0 give the published words 0x6627e8d5 and 0xe169c58d.
  std::vector<double> numbers(2);
  Draw{Distribution::Uniform, 0, 1, 0, 0}.fill(0, 2, numbers.data());
  EXPECT_THAT(numbers, ElementsAre(0x6627e8 * 0x1p-24, 0xe169c5 * 0x1p-24));
  Draw{Distribution::Normal, 0, 1, 0, 0}.fill(0, 2, numbers.data());
  EXPECT_NEAR(numbers[0], -0.2558159704329815, 1e-14);
  EXPECT_NEAR(numbers[1], 1.1775912391721348, 1e-14);
}

} // namespace
