//===- RandomTest.cpp - random numbers by position ------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "InterpreterTesting.h"

#include "dialects/loom/Random.h"
#include "passes/simplify/Folding.h"
#include "support/Philox.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Verifier.h"

#include <bit>
#include <cmath>

using namespace gridloom;
using namespace gridloom::testing;
using ::testing::ElementsAre;

namespace {

TEST(Random, CounterIsBlockStreamAndIteration) {
  uint64_t seed = 0x299f31d0a4093822, block = 0x05a308d3243f6a88;
  std::array<uint32_t, 4> words =
      Philox::compute({0x243f6a88, 0x05a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0});
  for (uint32_t i = 0; i < 4; ++i)
    EXPECT_EQ(loom::getRandomBits(4 * block + i, seed, 0x13198a2e, 0x03707344), words[i]) << i;
}

/// Words of a tensor of `shape` in the iteration of argument %t.
std::vector<int64_t> draw(Context &context, llvm::ArrayRef<int64_t> shape, int64_t seed,
                          int64_t stream, std::optional<int64_t> iteration) {
  auto module = context.parse(
      "func.func @main(%t: tensor<i64> {loom.name = \"t\", loom.dim_names = []}) -> (tensor<i64> "
      "{loom.name = \"out\", loom.dim_names = []}) attributes {loom.entry = \"main\", loom.dims = "
      "{}} {\n return %t : tensor<i64>\n}");
  auto function = *module->getOps<mlir::func::FuncOp>().begin();
  mlir::Operation *end = function.front().getTerminator();
  mlir::OpBuilder builder(end);
  loom::RandomBitsOp bits =
      loom::createRandomBits(builder, builder.getUnknownLoc(), shape, seed, stream);
  EXPECT_FALSE(bits.getIteration());
  EXPECT_FALSE(canFold(bits));
  if (iteration)
    loom::setIteration(bits, function.getArgument(0));
  end->setOperand(0, bits);
  function.setFunctionType(
      builder.getFunctionType(function.getArgumentTypes(), bits->getResultTypes()));
  EXPECT_TRUE(succeeded(mlir::verify(*module))) << context.takeError();
  NamedTensors inputs;
  inputs["t"] = ints({}, iteration.value_or(0));
  auto outputs = run(*module, inputs);
  EXPECT_TRUE(succeeded(outputs)) << context.takeError();
  return (*outputs)["out"].toInts();
}

TEST(Random, WordsCountInRowMajorOrder) {
  Context context;
  const std::vector<std::vector<int64_t>> shapes = {{},        {1},          {5},   {1, 7},
                                                    {3, 1, 5}, {2, 3, 4, 1}, {0, 3}};
  for (const std::vector<int64_t> &shape : shapes) {
    std::vector<int64_t> words = draw(context, shape, -5, 4294967295, std::nullopt);
    ASSERT_EQ(words.size(), size_t(loom::countElements(shape)));
    for (auto [i, word] : llvm::enumerate(words))
      EXPECT_EQ(word, loom::getRandomBits(i, uint64_t(-5), 4294967295, 0)) << i;
  }
}

TEST(Random, IterationIsGivenLater) {
  Context context;
  EXPECT_EQ(draw(context, {3, 5}, 7, 2, 0), draw(context, {3, 5}, 7, 2, std::nullopt));
  std::vector<int64_t> third = draw(context, {3, 5}, 7, 2, 3);
  for (auto [i, word] : llvm::enumerate(third))
    EXPECT_EQ(word, loom::getRandomBits(i, 7, 2, 3));
  // Only the low 32 bits of the iteration count.
  EXPECT_EQ(draw(context, {3, 5}, 7, 2, (int64_t(1) << 32) + 3), third);
}

/// How far the ones among `count` fair coins are from half of them, in standard deviations.
double getDeviation(int64_t ones, int64_t count) {
  return (double(ones) - double(count) / 2) / (std::sqrt(double(count)) / 2);
}

// Each of these is beyond 4.5 standard deviations once in 147,000 draws; the draws are fixed.
TEST(Random, BitsAreFairAndStreamsDiffer) {
  constexpr int64_t kCount = 1 << 16, kBits = 32 * kCount;
  constexpr double kLimit = 4.5;
  auto word = [](int64_t i, uint64_t seed, uint32_t stream, uint32_t iteration) {
    return loom::getRandomBits(uint64_t(i), seed, stream, iteration);
  };
  int64_t ones = 0, ofStream = 0, ofIteration = 0, ofSeed = 0, ofNext = 0, kept = 0;
  std::array<int64_t, 32> perBit{};
  for (int64_t i = 0; i < kCount; ++i) {
    uint32_t x = word(i, 42, 0, 0);
    ones += std::popcount(x);
    ofStream += std::popcount(x ^ word(i, 42, 1, 0));
    ofIteration += std::popcount(x ^ word(i, 42, 0, 1));
    ofSeed += std::popcount(x ^ word(i, 43, 0, 0));
    ofNext += std::popcount(x ^ word(i + 1, 42, 0, 0));
    for (int bit = 0; bit < 32; ++bit)
      perBit[bit] += x >> bit & 1;
    kept += std::ldexp(double(x >> 8), -24) >= 0.25;
  }
  for (int64_t count : {ones, ofStream, ofIteration, ofSeed, ofNext})
    EXPECT_LT(std::abs(getDeviation(count, kBits)), kLimit);
  for (int64_t count : perBit)
    EXPECT_LT(std::abs(getDeviation(count, kCount)), kLimit);
  EXPECT_LT(std::abs(double(kept) - 0.75 * kCount), 4 * std::sqrt(0.75 * 0.25 * kCount));
}

} // namespace
