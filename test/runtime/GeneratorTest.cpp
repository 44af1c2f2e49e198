//===- GeneratorTest.cpp - values for inputs from the command line --------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/arrays/Generator.h"

#include "runtime/arrays/Values.h"
#include "runtime/core/Error.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

using namespace gridloom::rt;
using testing::HasSubstr;

namespace {

Generator parse(const std::string &text) {
  std::optional<Generator> generator = Generator::parse(text);
  EXPECT_TRUE(generator) << text;
  return generator.value_or(Generator());
}

double makeOne(const std::string &text, DataType type = DataType::F64) {
  return getElement(generate(parse(text), "x", type, {1}, 0), 0);
}

TEST(Generator, ReadsEveryFormOfTheGrammar) {
  EXPECT_EQ(makeOne("ones"), 1);
  EXPECT_EQ(makeOne("zeros", DataType::I8), 0);
  EXPECT_EQ(makeOne("-2.5e1"), -25);
  EXPECT_EQ(makeOne("7", DataType::U8), 7);
  EXPECT_EQ(makeOne("randn"), makeOne("normal"));
  EXPECT_EQ(makeOne("randn"), makeOne("normal(0,1)"));
  EXPECT_EQ(makeOne("randn( 3 , 0 )"), 3);
  EXPECT_NEAR(makeOne("normal(5,2)"), 5 + 2 * makeOne("randn"), 1e-12);
  EXPECT_EQ(makeOne("randint(4,5)", DataType::I64), 4);
}

TEST(Generator, DependsOnSeedNameAndPlaceOnly) {
  Generator normal = parse("randn");
  HostArray first = generate(normal, "x", DataType::F32, {1000}, 7);
  HostArray longer = generate(normal, "x", DataType::F32, {4000}, 7);
  EXPECT_EQ(memcmp(first.getData(), longer.getData(), first.getNumBytes()), 0);
  auto differs = [&](const HostArray &other) {
    return memcmp(first.getData(), other.getData(), first.getNumBytes()) != 0;
  };
  EXPECT_TRUE(differs(generate(normal, "y", DataType::F32, {1000}, 7)));
  EXPECT_TRUE(differs(generate(normal, "x", DataType::F32, {1000}, 8)));
}

TEST(Generator, HasItsDistribution) {
  HostArray normal = generate(parse("randn"), "x", DataType::F64, {20000}, 1);
  double sum = 0, squares = 0;
  for (double value : normal.as<double>()) {
    sum += value;
    squares += value * value;
  }
  EXPECT_NEAR(sum / 20000, 0, 0.03);
  EXPECT_NEAR(squares / 20000, 1, 0.05);
  HostArray whole = generate(parse("randint(-2, 3)"), "x", DataType::I8, {2000}, 1);
  std::set<int> seen(whole.as<int8_t>().begin(), whole.as<int8_t>().end());
  EXPECT_THAT(seen, testing::ElementsAre(-2, -1, 0, 1, 2));
  HostArray uniform = generate(parse("uniform(1,2)"), "x", DataType::F32, {2000}, 1);
  for (float value : uniform.as<float>())
    EXPECT_TRUE(value >= 1 && value < 2);
}

/// Rounding does not reach the end of the range, which is excluded.
TEST(Generator, UniformStaysBelowItsEndInEveryType) {
  for (auto [type, below] : {std::pair(DataType::F64, 1.0),
                             {DataType::F32, 1.0},
                             {DataType::F16, 1 - 0x1p-11},
                             {DataType::BF16, 1 - 0x1p-8},
                             {DataType::F8E4M3FN, 1 - 0x1p-4},
                             {DataType::F8E5M2, 1 - 0x1p-3}}) {
    for (const char *text : {"uniform(0,1)", "uniform(-1,0)", "uniform(-2,-1)"}) {
      Generator generator = parse(text);
      HostArray array = generate(generator, "x", type, {20000}, 1);
      double least = INFINITY, most = -INFINITY;
      for (int64_t i = 0; i < 20000; ++i) {
        least = std::min(least, getElement(array, i));
        most = std::max(most, getElement(array, i));
      }
      EXPECT_GE(least, generator.first) << nameOf(type) << " " << text;
      EXPECT_LT(most, generator.second) << nameOf(type) << " " << text;
      EXPECT_GT(most, generator.second - 0.3) << nameOf(type) << " " << text;
      if (generator.second == 1 && below != 1)
        EXPECT_EQ(most, below) << nameOf(type);
    }
  }
}

TEST(Generator, NumbersAreRoundedToTheNearest) {
  EXPECT_EQ(makeOne("0.3", DataType::BF16), 0.30078125);
  EXPECT_EQ(makeOne("0.3", DataType::F16), 0.300048828125);
  EXPECT_EQ(makeOne("0.3", DataType::F32), double(0.3f));
  EXPECT_EQ(makeOne("-257", DataType::BF16), -256); // a tie
  EXPECT_TRUE(std::isnan(makeOne("nan", DataType::BF16)));
}

TEST(Generator, IsRefusedWhereItCannotBe) {
  for (const char *text : {"ids.npy", "randint.npy", "randint", "uniform", "on(es)", "", "0x"})
    EXPECT_FALSE(Generator::parse(text)) << text;
  for (const char *text : {"randint(3)", "randint(3,3)", "randint(5,3)", "randint(0.5,3)",
                           "randint(0,1", "uniform(a,b)", "randint(0,1e300)", "uniform(0,inf)",
                           "normal(0,-1)", "normal(nan,1)", "ones(1,2)", "randn()"})
    EXPECT_THROW(Generator::parse(text), Error) << text;
  EXPECT_THROW(generate(parse("randn"), "x", DataType::I64, {1}, 0), Error);
  EXPECT_THROW(generate(parse("randint(0,300)"), "x", DataType::U8, {1}, 0), Error);
  EXPECT_THROW(generate(parse("randint(-1,2)"), "x", DataType::Bool, {1}, 0), Error);
  EXPECT_THROW(generate(parse("1.5"), "x", DataType::I32, {1}, 0), Error);
  EXPECT_THROW(generate(parse("-1"), "x", DataType::U64, {1}, 0), Error);
}

TEST(Generator, FilesAreAdapted) {
  HostArray codes = HostArray::allocate(DataType::U8, {2});
  EXPECT_EQ(adaptInput(codes, "x.npy", "x", DataType::F8E5M2, {2}).getType(), DataType::F8E5M2);
  try {
    adaptInput(codes, "x.npy", "x", DataType::F32, {2});
    FAIL();
  } catch (const Error &error) {
    EXPECT_STREQ(error.what(), "x.npy holds u8 [2], but the plan takes x f32 [2]; convert it with "
                               "numpy's astype");
  }
  try {
    readInput("nomal(0,1)");
    FAIL();
  } catch (const Error &error) {
    EXPECT_THAT(error.what(), HasSubstr("there is no file 'nomal(0,1)'; the value of an input is "
                                        "FILE.npy, a number, ones, zeros, randn, randn("));
  }
}

} // namespace
