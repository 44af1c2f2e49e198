//===- SamplerTest.cpp - sampling tokens, and token files -----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/cli/Sampler.h"

#include "runtime/arrays/Npy.h"
#include "runtime/cli/Tokens.h"
#include "runtime/core/Error.h"
#include "test/runtime/PlanBuilder.h"

#include <cmath>
#include <gmock/gmock.h>
#include <map>

using namespace gridloom::rt;
using gridloom::TemporaryFolder;
using gridloom::test::writeFile;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

const std::vector<float> logits = {std::log(1.0f), std::log(5.0f), std::log(4.0f), std::log(5.0f)};

/// The share of draws for each token.
std::map<int64_t, double> draw(SamplingSettings settings) {
  std::map<int64_t, double> shares;
  const int draws = 20000;
  for (int i = 0; i < draws; ++i)
    shares[chooseToken(logits, settings, 0, i)] += 1.0 / draws;
  return shares;
}

TEST(Sampler, TakesTheFirstOfTheLikeliest) {
  EXPECT_EQ(chooseToken(logits, {}, 3, 5), 1);
  EXPECT_EQ(chooseToken(logits, {1, 1.0, 9}, 3, 5), 1);
  EXPECT_EQ(chooseToken(logits, {0, 1e-6, 9}, 0, 0) % 2, 1);
}

TEST(Sampler, DrawsBySoftmax) {
  std::map<int64_t, double> all = draw({0, 1, 1});
  EXPECT_NEAR(all[0], 1.0 / 15, 0.01);
  EXPECT_NEAR(all[1], 5.0 / 15, 0.015);
  EXPECT_NEAR(all[2], 4.0 / 15, 0.015);
  std::map<int64_t, double> hot = draw({0, 2, 1}); // square roots
  double sum = 1 + 2 * std::sqrt(5.0) + 2;
  EXPECT_NEAR(hot[0], 1 / sum, 0.01);
  std::map<int64_t, double> three = draw({3, 1, 1});
  EXPECT_EQ(three.count(0), 0u);
  EXPECT_NEAR(three[2], 4.0 / 14, 0.015);
  EXPECT_EQ(draw({2, 1, 1}).size(), 2u);
}

TEST(Sampler, DependsOnSeedRowAndStepAlone) {
  auto sequence = [](uint64_t seed, int64_t row) {
    std::vector<int64_t> tokens;
    for (int64_t step = 0; step < 64; ++step)
      tokens.push_back(chooseToken(logits, {0, 1, seed}, row, step));
    return tokens;
  };
  EXPECT_EQ(sequence(1, 0), sequence(1, 0));
  EXPECT_NE(sequence(1, 0), sequence(2, 0));
  EXPECT_NE(sequence(1, 0), sequence(1, 1));
}

TEST(Sampler, RefusesWhatIsNoDistribution) {
  std::vector<float> odd = {0, NAN};
  EXPECT_THROW(chooseToken(odd, {}, 0, 0), Error);
  odd = {-INFINITY, -INFINITY};
  EXPECT_THROW(chooseToken(odd, {}, 0, 0), Error);
  odd = {-INFINITY, 0};
  EXPECT_EQ(chooseToken(odd, {0, 1, 0}, 0, 0), 1);
}

std::string refuse(const std::string &text) {
  try {
    readTokens(text);
  } catch (const Error &error) {
    return error.what();
  }
  return "";
}

TEST(Tokens, AreRead) {
  TemporaryFolder folder;
  EXPECT_THAT(readTokens("1,2, 3"), ElementsAre(ElementsAre(1, 2, 3)));
  EXPECT_THAT(readTokens(" 1 ,2  3 "), ElementsAre(ElementsAre(1, 2, 3)));
  std::filesystem::path text = folder.getPath() / "t.txt", array = folder.getPath() / "t.npy";
  writeFile(text, "4 5\n\n6,7\n");
  EXPECT_THAT(readTokens(text), ElementsAre(ElementsAre(4, 5), ElementsAre(6, 7)));
  writeTokens(array, {{4, 5}, {6, 7}});
  EXPECT_THAT(readTokens(array), ElementsAre(ElementsAre(4, 5), ElementsAre(6, 7)));
  writeTokens(text, {{8}, {9, 10}});
  EXPECT_THAT(refuse(text), HasSubstr("prompts of 1 and of 2 tokens"));
  EXPECT_THROW(writeTokens(array, {{8}, {9, 10}}), Error);
  HostArray flat = HostArray::allocate(DataType::I32, {2});
  writeNpy(array, flat);
  EXPECT_THAT(readTokens(array), ElementsAre(ElementsAre(0, 0)));
}

TEST(Tokens, AreRefused) {
  TemporaryFolder folder;
  EXPECT_THAT(refuse("one"), HasSubstr("neither a list of token ids, as 1,2,3, nor a file"));
  EXPECT_THAT(refuse(""), HasSubstr("--tokens '' holds no token id"));
  for (const char *list : {",", ",1", "1,,2", "1, 2,", "1 , ,2"})
    EXPECT_THAT(refuse(list), HasSubstr("--tokens: a comma lacks a token id beside it"));
  EXPECT_THAT(refuse("99999999999999999999"), HasSubstr("is not a token id"));
  std::filesystem::path text = folder.getPath() / "t.txt", array = folder.getPath() / "t.npy";
  writeFile(text, "4 5\nx\n");
  EXPECT_THAT(refuse(text), HasSubstr("line 2: 'x' is not a token id"));
  writeFile(text, "4 5\n6,\n");
  EXPECT_THAT(refuse(text), HasSubstr("line 2: a comma lacks a token id"));
  writeNpy(array, HostArray::allocate(DataType::F32, {2}));
  EXPECT_THAT(refuse(array), HasSubstr("holds f32 [2]; token ids are integers"));
}

} // namespace
