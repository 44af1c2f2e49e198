//===- NarrowFloatTest.cpp - 16- and 8-bit floats on the host ------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "support/NarrowFloat.h"

#include <gmock/gmock.h>

#include <cmath>

using namespace gridloom;

TEST(NarrowFloat, EveryCodeComesBack) {
  for (uint32_t code = 0; code < 0x10000; ++code) {
    auto bits = static_cast<uint16_t>(code);
    float half = Half::load(bits), bfloat = BFloat::load(bits);
    if (!std::isnan(half)) {
      ASSERT_EQ(Half::store(half), bits);
      ASSERT_EQ(half, static_cast<float>(std::bit_cast<_Float16>(bits)));
    }
    if (!std::isnan(bfloat))
      ASSERT_EQ(BFloat::store(bfloat), bits);
  }
}

/// 2049 is halfway between 2048 and 2050 in f16; 65520 rounds to infinity; 2^-25 ties to zero.
TEST(NarrowFloat, HalfRoundsToNearestEven) {
  EXPECT_EQ(Half::load(Half::store(2049.0f)), 2048.0f);
  EXPECT_EQ(Half::load(Half::store(2051.0f)), 2052.0f);
  EXPECT_EQ(Half::store(65520.0f), 0x7c00);
  EXPECT_EQ(Half::store(65519.0f), 0x7bff);
  EXPECT_EQ(Half::store(0x1p-25f), 0);
  EXPECT_EQ(Half::store(0x1.8p-25f), 1);
  EXPECT_EQ(BFloat::store(1.00390625f), 0x3f80);
}

/// Only the low bits of this NaN are set; cutting them off would make it infinity.
TEST(NarrowFloat, NanStaysNan) {
  float nan = std::bit_cast<float>(0x7f800001u);
  EXPECT_TRUE(std::isnan(Half::load(Half::store(nan))));
  EXPECT_TRUE(std::isnan(BFloat::load(BFloat::store(nan))));
  EXPECT_TRUE(std::signbit(Half::load(Half::store(-nan))));
}
