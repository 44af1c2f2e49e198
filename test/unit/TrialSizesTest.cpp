//===- TrialSizesTest.cpp - sizes with which a model compiles ---------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/driver/TrialSizes.h"

#include <gmock/gmock.h>

using namespace gridloom;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using testing::UnorderedElementsAre;

namespace {

BriefDim open(const std::string &name) { return {name, 0}; }
BriefDim fixed(int64_t size) { return {"", size}; }

ModelBrief makeBrief(std::vector<BriefValue> inputs) {
  ModelBrief brief;
  brief.inputs = std::move(inputs);
  for (const BriefValue &input : brief.inputs)
    for (const BriefDim &dim : input.dims)
      if (dim.isOpen() && std::count(brief.dims.begin(), brief.dims.end(), dim.name) == 0)
        brief.dims.push_back(dim.name);
  return brief;
}

/// A model that compiles if `rule` holds; otherwise its error lists its sizes.
TrialCompile where(const std::function<bool(Sizes)> &rule) {
  return [rule](const Sizes &sizes) -> std::string {
    std::string text = "error: sizes";
    for (const auto &[name, size] : sizes)
      text += " " + std::to_string(size);
    return rule(sizes) ? "" : text;
  };
}

TEST(TrialSizes, PicturesAreTriedAsLargeAsModelsTakeThem) {
  ModelBrief brief = makeBrief({{"x", "float", {open("n"), fixed(3), open("a"), open("b")}}});
  TrialResult found =
      findSizes(brief, {}, 1, where([](Sizes sizes) {
                  return sizes["a"] % 32 == 0 && sizes["a"] >= 500 && sizes["b"] % 32 == 0;
                }));
  EXPECT_THAT(found.sizes, UnorderedElementsAre(Pair("n", 1), Pair("a", 512), Pair("b", 512)));
  EXPECT_THAT(found.errors, IsEmpty());
  EXPECT_THAT(found.remarks, Contains("a=512 works, and so do others"));
}

TEST(TrialSizes, CachesAreNoPictures) {
  ModelBrief brief = makeBrief({{"k", "float", {open("batch"), fixed(2), open("past"), fixed(8)}}});
  TrialResult found = findSizes(brief, {}, 2, where([](Sizes) { return true; }));
  EXPECT_THAT(found.sizes, UnorderedElementsAre(Pair("batch", 2), Pair("past", 16)));
}

TEST(TrialSizes, MasksAreAsLongAsCacheAndNewTokens) {
  // The dynamo exporter gives sizes different names if it cannot prove them equal.
  ModelBrief brief = makeBrief({{"ids", "int64", {open("s10"), fixed(2)}},
                                {"mask", "int64", {open("s86"), open("s12")}},
                                {"k", "float", {open("s10"), fixed(2), open("s29"), fixed(8)}},
                                {"v", "float", {open("s10"), fixed(2), open("s71"), fixed(8)}}});
  TrialResult found =
      findSizes(brief, {}, 1, where([](Sizes s) {
                  return s["s12"] == s["s29"] + 2 && s["s29"] == s["s71"] && s["s86"] >= s["s10"];
                }));
  EXPECT_THAT(found.sizes, AllOf(Contains(Pair("s12", 18)), Contains(Pair("s29", 16)),
                                 Contains(Pair("s71", 16))));
  EXPECT_THAT(found.remarks,
              UnorderedElementsAre("s10=1, s86=1 work; they change together: s10 = s86",
                                   "s12=18, s29=16, s71=16 work; they change together: s29 = s71, "
                                   "s12 = s29 + 2"));
}

TEST(TrialSizes, SumsFollowTheirParts) {
  ModelBrief brief = makeBrief({{"x", "float", {open("past + seq"), fixed(4)}},
                                {"p", "float", {open("past"), fixed(4)}},
                                {"n", "float", {open("seq"), fixed(4)}}});
  TrialResult found = findSizes(brief, {{"past", 3}}, 1, where([](Sizes) { return true; }));
  EXPECT_THAT(found.sizes, UnorderedElementsAre(Pair("past + seq", 19), Pair("seq", 16)));
  EXPECT_THAT(found.remarks, Contains("past + seq=19 follows"));
}

TEST(TrialSizes, SizesThatAreBakedInAreFound) {
  ModelBrief brief = makeBrief({{"x", "float", {open("batch"), open("seq"), fixed(32)}}});
  TrialCompile trial = [](const Sizes &sizes) -> std::string {
    return sizes.at("seq") == 10 ? "" : "error: cannot reshape to [10, 12, 8]\n";
  };
  // The same error for other sizes may have nothing to do with sizes.
  EXPECT_FALSE(findSizes(brief, {}, 1, trial).errors.empty());
  trial = [](const Sizes &sizes) -> std::string {
    int64_t size = sizes.at("seq");
    return size == 10 ? "" : "error: cannot reshape " + std::to_string(size) + " to [10, 12, 8]\n";
  };
  TrialResult found = findSizes(brief, {}, 1, trial);
  EXPECT_THAT(found.sizes, Contains(Pair("seq", 10)));
  EXPECT_THAT(found.remarks,
              Contains("seq=10 works and 11, 18, 26, 74 do not: the exporter fixed this size "
                       "(cannot reshape 11 to [10, 12, 8])"));
  EXPECT_THAT(found.remarks, Contains("batch=1 works, and so do others"));
}

TEST(TrialSizes, WhatIsNoMatterOfSizesIsToldAfterTwoTrials) {
  ModelBrief brief = makeBrief({{"x", "float", {open("batch"), open("seq")}}});
  int trials = 0;
  TrialResult found = findSizes(brief, {}, 1, [&](const Sizes &) {
    ++trials;
    return std::string("error: operator Unique is not supported\n");
  });
  EXPECT_EQ(found.errors, "error: operator Unique is not supported\n");
  EXPECT_EQ(trials, 2);
  EXPECT_EQ(found.trials, 2);
}

TEST(TrialSizes, ASearchEnds) {
  ModelBrief brief = makeBrief({{"x", "float", {open("a"), open("b"), open("c"), open("d")}},
                                {"y", "int64", {open("e"), open("f"), open("g"), fixed(7)}}});
  TrialResult found = findSizes(brief, {}, 1, where([](Sizes) { return false; }));
  EXPECT_FALSE(found.errors.empty());
  EXPECT_LE(found.trials, 70);
}

} // namespace
