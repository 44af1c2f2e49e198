//===- StrategyFileTest.cpp - patterns of names, and strategy files -------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/shard/StrategyFile.h"
#include "passes/shard/NamePatterns.h"

#include "llvm/ADT/StringExtras.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <random>
#include <set>

using namespace gridloom;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

//===----------------------------------------------------------------------===//
// Patterns
//===----------------------------------------------------------------------===//

TEST(NamePatterns, AStarIsAnyText) {
  EXPECT_TRUE(matchesPattern("layer.*.w", "layer.0.w"));
  EXPECT_TRUE(matchesPattern("layer.*.w", "layer.0.mlp.w"));
  EXPECT_TRUE(matchesPattern("*", ""));
  EXPECT_TRUE(matchesPattern("a*b*c", "aXbYbZc"));
  EXPECT_FALSE(matchesPattern("layer.*.w", "layer.0.weight"));
  EXPECT_FALSE(matchesPattern("layer.*.w", "layer.w"));
  EXPECT_FALSE(matchesPattern("a*ba", "aba.b"));
}

/// The keys that a table finds, in order.
static std::vector<std::string> find(const std::vector<std::string> &keys, const char *full,
                                     const char *base) {
  std::vector<llvm::StringRef> references(keys.begin(), keys.end());
  NameTable table(references);
  std::vector<std::string> found;
  for (unsigned i : table.find(full, base))
    found.push_back(keys[i]);
  return found;
}

TEST(NamePatterns, ExactNamesGoBeforePatterns) {
  std::vector<std::string> keys = {"l.*.w", "l.1.w", "l.1.w#2", "*", "l.*.w#2"};
  EXPECT_THAT(find(keys, "l.1.w", "l.1.w"), ElementsAre("l.1.w"));
  EXPECT_THAT(find(keys, "l.1.w#2", "l.1.w"), ElementsAre("l.1.w#2"));
  EXPECT_THAT(find(keys, "l.1.w#3", "l.1.w"), ElementsAre("l.1.w"));
  EXPECT_THAT(find(keys, "l.0.w#2", "l.0.w"), ElementsAre("l.*.w#2"));
  EXPECT_THAT(find(keys, "l.0.w", "l.0.w"), ElementsAre("l.*.w"));
  EXPECT_THAT(find({"l.*.w"}, "l.0.w#2", "l.0.w"), ElementsAre("l.*.w"));
  EXPECT_THAT(find(keys, "other", "other"), ElementsAre("*"));
  EXPECT_THAT(find({"l.*.w", "l.0.*"}, "l.0.w", "l.0.w"), ElementsAre("l.*.w", "l.0.*"));
  EXPECT_THAT(find({"a", "b*"}, "c", "c"), IsEmpty());
}

TEST(NamePatterns, ATableKnowsItsUnusedKeys) {
  NameTable table({"a", "b.*", "c.*"});
  table.find("b.1", "b.1");
  EXPECT_TRUE(table.getUnused().test(0));
  EXPECT_FALSE(table.getUnused().test(1));
  EXPECT_TRUE(table.getUnused().test(2));
}

//===----------------------------------------------------------------------===//
// Folding
//===----------------------------------------------------------------------===//

static NamedText say(const std::string &name, const std::string &text) {
  return {name, name, text, true};
}

TEST(FoldNames, LayersAlikeAreOneLine) {
  EXPECT_THAT(foldNames({say("in", "i"), say("l.0.q", "a"), say("l.0.k", "b"), say("l.1.q", "a"),
                         say("l.1.k", "b")},
                        FoldStyle::Repeats),
              ElementsAre(Pair("in", "i"), Pair("l.*.q", "a"), Pair("l.*.k", "b")));
}

TEST(FoldNames, FewExceptionsAreLinesOfTheirOwn) {
  std::vector<NamedText> names;
  for (int i = 0; i < 8; ++i)
    names.push_back(say("l." + std::to_string(i) + ".w", i == 3 ? "other" : "most"));
  EXPECT_THAT(foldNames(names, FoldStyle::Repeats),
              ElementsAre(Pair("l.*.w", "most"), Pair("l.3.w", "other")));
}

TEST(FoldNames, HalfAndHalfStaysApart) {
  std::vector<NamedText> names;
  for (int i = 0; i < 4; ++i)
    names.push_back(say("l." + std::to_string(i) + ".w", i < 2 ? "a" : "b"));
  EXPECT_EQ(foldNames(names, FoldStyle::Repeats).size(), 4u);
}

TEST(FoldNames, PatternsWithMoreTextAreExceptions) {
  std::vector<NamedText> names;
  for (int i = 0; i < 3; ++i) {
    std::string layer = "/l." + std::to_string(i);
    names.push_back(say(layer + "/add", "whole"));
    names.push_back(say(layer + "/attention/add", "split"));
  }
  EXPECT_THAT(foldNames(names, FoldStyle::Repeats),
              ElementsAre(Pair("/l.*/add", "whole"), Pair("/l.*/attention/add", "split")));
}

TEST(FoldNames, AStageIsWhatLiesBelowAName) {
  EXPECT_THAT(foldNames({say("/l.0/a", "0"), say("/l.0/b", "0"), say("/l.0/c/d", "0"),
                         say("/l.1/a", "1"), say("/l.1/b", "1"), say("head", "1")},
                        FoldStyle::Prefixes),
              ElementsAre(Pair("/l.0/*", "0"), Pair("/l.1/*", "1"), Pair("head", "1")));
}

TEST(FoldNames, CopiesFollowTheirBase) {
  EXPECT_THAT(
      foldNames({{"w", "w", "a"}, {"w#2", "w", "a"}, {"w#3", "w", "b"}}, FoldStyle::Repeats),
      ElementsAre(Pair("w", "a"), Pair("w#3", "b")));
}

/// The text that the lines give for a name; none if they contradict each other.
static std::string lookUp(const std::vector<std::pair<std::string, std::string>> &lines,
                          const NamedText &name) {
  std::vector<llvm::StringRef> keys;
  for (const auto &[key, text] : lines)
    keys.push_back(key);
  NameTable table(keys);
  std::string said = "nothing";
  for (unsigned i : table.find(name.full, name.base))
    said = said == "nothing" || said == lines[i].second ? lines[i].second : "two things";
  return said;
}

TEST(FoldNames, RandomListsComeBack) {
  for (unsigned seed = 0; seed < 400; ++seed) {
    std::mt19937 random(seed);
    auto draw = [&](unsigned count) { return static_cast<unsigned>(random() % count); };
    std::vector<NamedText> names;
    std::set<std::string> seen;
    const char *words[] = {"a", "b", "0", "1", "12", "x.3", "*", "/", "."};
    for (unsigned i = 0, count = 1 + draw(30); i < count; ++i) {
      std::string base;
      for (unsigned part = 0, parts = 1 + draw(4); part < parts; ++part)
        base += (part ? "." : "") + std::string(words[draw(std::size(words))]);
      std::string full = draw(3) ? base : base + (draw(2) ? "#" : ":op#") + std::to_string(draw(4));
      if (!seen.insert(full).second)
        continue;
      names.push_back(
          {full, base, std::string(1, static_cast<char>('a' + draw(1 + seed % 4))), draw(5) > 0});
    }
    for (FoldStyle style : {FoldStyle::Repeats, FoldStyle::Prefixes}) {
      auto lines = foldNames(names, style);
      for (const NamedText &name : names) {
        std::string said = lookUp(lines, name);
        if (name.needed || said != "nothing")
          ASSERT_EQ(said, name.text) << "seed " << seed << ", name " << name.full;
      }
    }
  }
}

TEST(FoldNames, ManyNamesComeBack) {
  // Patterns of a layer are compared only with names of the same ending.
  std::mt19937 random(1);
  std::vector<NamedText> names;
  for (int layer = 0; layer < 4000; ++layer)
    for (const char *part : {"attention.q", "attention.k", "mlp.up", "mlp.down", "norm"}) {
      std::string name = "/layers." + std::to_string(layer) + "/" + part;
      names.push_back({name, name, random() % 8 ? part : "another"});
    }
  auto lines = foldNames(names, FoldStyle::Repeats);
  EXPECT_LT(lines.size(), names.size() / 4);
  std::vector<llvm::StringRef> keys;
  for (const auto &[key, text] : lines)
    keys.push_back(key);
  NameTable table(keys);
  for (const NamedText &name : names) {
    auto found = table.find(name.full, name.base);
    ASSERT_FALSE(found.empty()) << name.full;
    for (unsigned i : found)
      ASSERT_EQ(lines[i].second, name.text) << name.full;
  }
}

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

static StrategyLine makeLine(const std::string &key, const std::string &text = "") {
  StrategyLine line;
  line.key = key;
  line.text = text;
  return line;
}

static std::string problemOf(const std::string &text) {
  StrategyFile file;
  return llvm::join(parseStrategy(text, file), "\n");
}

TEST(StrategyFile, ReadsWhatItPrints) {
  StrategyFile file;
  file.model = "a model: of 'mine'";
  file.graph = "0123";
  file.mesh = {{"data", 2}, {"model", 4}, {"pipe", 2}};
  file.stageAxis = "pipe";
  file.microbatches = 4;
  file.chunkMatmul = 2;
  file.unpack.push_back(makeLine("/qkv/*"));
  const char *names[] = {"x",       "l.*.w#2", "*",    "/a/b:op#2", "a: b",      " a ",  "a #b",
                         "12",      "true",    "it's", "- a",       "über",      "a\nb", "\"q\"",
                         "a\\b",    "[x]",     "{y}",  "w[0:64]",   "?",         "a:",   ":",
                         "&anchor", "!tag",    "%d",   "a, b",      "tab\there", "~",    "=",
                         "a + b",   "@",       "`",    "null",      "\x7f",      "#",    "a*"};
  for (const char *name : names)
    file.common[StrategySection::Nodes].push_back(makeLine(name, "[{data, micro}, {}]"));
  file.common[StrategySection::Weights].push_back(
      makeLine(std::string(3000, 'n'), "[{model: 64}]"));
  file.common[StrategySection::Stages].push_back(makeLine("*", "1"));
  StrategyException &exception = file.specialisations.emplace_back();
  exception.name = "main batch=1,sequence=8";
  exception.table[StrategySection::Inputs].push_back(makeLine("x", "[]"));
  std::string text = printStrategy(file);
  StrategyFile read;
  ASSERT_THAT(parseStrategy(text, read), IsEmpty()) << text;
  EXPECT_EQ(printStrategy(read), text);
  ASSERT_EQ(read.common[StrategySection::Nodes].size(), std::size(names));
  for (auto [line, name] : llvm::zip(read.common[StrategySection::Nodes], names))
    EXPECT_EQ(line.key, name);
  EXPECT_EQ(read.model, file.model);
  EXPECT_EQ(read.mesh, file.mesh);
  EXPECT_EQ(read.microbatches, 4);
  EXPECT_EQ(read.common[StrategySection::Weights][0].dims[0].granule, 64);
  EXPECT_EQ(read.common[StrategySection::Stages][0].stage, 1);
}

TEST(StrategyFile, CommentsAndLayoutAreFree) {
  StrategyFile file;
  ASSERT_THAT(
      parseStrategy("# mine\nstrategy: 1\nmesh: data=2, model=2 # four\n\nweights:\n"
                    "  # a comment\n  'w': [ {} , {model} ]\n  v:\n  - {}\n  - {data, model}\n",
                    file),
      IsEmpty());
  EXPECT_EQ(file.getMesh(), "data=2,model=2");
  EXPECT_EQ(file.common[StrategySection::Weights][0].text, "[{}, {model}]");
  EXPECT_EQ(file.common[StrategySection::Weights][0].line, 7u);
  EXPECT_EQ(file.common[StrategySection::Weights][1].text, "[{}, {data, model}]");
}

TEST(StrategyFile, PartialSumsAndFactorsComeBack) {
  StrategyFile file;
  ASSERT_THAT(parseStrategy("strategy: 1\nmesh: data=2,model=2\nnodes:\n"
                            "  a: [{data}, { unreduced : {model} }]\n  b: [{unreduced}, {}]\n"
                            "splits:\n  a: {d0: {data}, in0.d1: {model: 64}}\n  b: {}\n",
                            file),
              ElementsAre(HasSubstr("axis 'unreduced', which is not in the mesh")));
  const std::vector<StrategyLine> &nodes = file.common[StrategySection::Nodes];
  EXPECT_EQ(nodes[0].text, "[{data}, {unreduced: {model}}]");
  EXPECT_EQ(nodes[0].dims.size(), 1u);
  EXPECT_THAT(nodes[0].unreduced, ElementsAre("model"));
  EXPECT_THAT(nodes[1].unreduced, IsEmpty()); // this 'unreduced' is an axis
  const std::vector<StrategyLine> &splits = file.common[StrategySection::Splits];
  EXPECT_EQ(splits[0].text, "{d0: {data}, in0.d1: {model: 64}}");
  EXPECT_EQ(splits[0].factors[1].split.granule, 64);
  EXPECT_EQ(splits[1].text, "{}");
  StrategyFile again;
  parseStrategy(printStrategy(file), again);
  EXPECT_EQ(printStrategy(again), printStrategy(file));
}

TEST(StrategyFile, NamesWhatIsWrong) {
  auto head = [](const std::string &rest) {
    return "strategy: 1\nmesh: data=2,pipe=2\nstage-axis: pipe\n" + rest;
  };
  EXPECT_EQ(problemOf(""), "line 1: the file is empty");
  EXPECT_EQ(problemOf("mesh: data=2\n"),
            "line 1: the file begins with 'mesh', not with its version; write 'strategy: 1' first");
  EXPECT_THAT(problemOf("strategy: 2\nrecompute:\n"),
              HasSubstr("line 2: section 'recompute' is not of version 1 of strategy files, which "
                        "this gridloom reads (the file is of version 2)"));
  EXPECT_THAT(problemOf("strategy: 2\n"),
              HasSubstr("is of version 2; this gridloom reads version 1"));
  EXPECT_THAT(problemOf(head("weigths:\n")), HasSubstr("did you mean 'weights'?"));
  EXPECT_THAT(problemOf(head("nodes:\n  a: [{}]\n  a: [{}]\n")),
              HasSubstr("line 6: 'a' is there twice, first in line 5"));
  EXPECT_THAT(
      problemOf(head("nodes:\n  a: [{dat}]\n")),
      HasSubstr("line 5: 'a' is split over axis 'dat', which is not in the mesh (axes: data, "
                "pipe); did you mean 'data'?"));
  EXPECT_THAT(problemOf(head("nodes:\n  a: [{pipe}]\n")), HasSubstr("different pipeline stages"));
  EXPECT_THAT(problemOf(head("nodes:\n  a: [{data}, {data}]\n")),
              HasSubstr("over axis 'data' twice"));
  EXPECT_THAT(problemOf(head("nodes:\n  a: [{micro}]\n")), HasSubstr("but 'microbatches' is 1"));
  EXPECT_THAT(problemOf(head("microbatches: 2\nnodes:\n  a: [{micro, data}]\n")),
              HasSubstr("before another axis; it comes last"));
  EXPECT_THAT(problemOf(head("stages:\n  a: 2\n")),
              HasSubstr("given stage 2; the mesh has 2 stages, from 0"));
  EXPECT_THAT(problemOf(head("stages:\n  a: one\n")), HasSubstr("the stage is not a whole number"));
  EXPECT_THAT(problemOf(head("nodes:\n  a: [data]\n")), HasSubstr("line 5: cannot read the split"));
  for (const char *split :
       {"[{unreduced: {data}}, {}]", "[{unreduced: {}}]", "[{data, unreduced: {data}}]",
        "[{unreduced: {data: 8}}]", "[{unreduced: {data}, data}]"})
    EXPECT_THAT(problemOf(head("nodes:\n  a: " + std::string(split) + "\n")),
                HasSubstr("line 5: cannot read the split"))
        << split;
  EXPECT_THAT(problemOf(head("nodes:\n  a: [{data}, {unreduced: {data}}]\n")),
              HasSubstr("over axis 'data' twice"));
  EXPECT_THAT(problemOf(head("microbatches: 2\nnodes:\n  a: [{unreduced: {micro}}]\n")),
              HasSubstr("'a' is declared unreduced over 'micro'; micro-batches are not summed"));
  EXPECT_THAT(problemOf(head("weights:\n  a: [{}, {unreduced: {data}}]\n")),
              HasSubstr("line 5: 'a' is declared unreduced; only nodes leave partial sums"));
  for (const char *factors : {"[{data}]", "{d0: data}", "{d0}", "{d0: {data}, d0: {}}"})
    EXPECT_THAT(problemOf(head("splits:\n  a: " + std::string(factors) + "\n")),
                HasSubstr("line 5: cannot read the split of a node's work"))
        << factors;
  EXPECT_THAT(problemOf(head("splits:\n  a: {d0: {dat}}\n")), HasSubstr("not in the mesh"));
  EXPECT_THAT(problemOf(head("nodes: 3\n")), HasSubstr("'nodes' is not a list of names"));
  EXPECT_THAT(problemOf("strategy: 1\nmesh: data=0\n"),
              HasSubstr("cannot read 'data=0' in the mesh"));
  EXPECT_THAT(problemOf("strategy: 1\nmesh: a=1048576,b=2\n"),
              HasSubstr("more than 1048576 devices"));
  EXPECT_THAT(problemOf("strategy: 1\nmesh: a=2,a=2\n"), HasSubstr("axis 'a' twice"));
  EXPECT_THAT(problemOf("strategy: 1\n---\nstrategy: 1\n"), HasSubstr("several documents"));
  EXPECT_THAT(problemOf("strategy: 1\nmesh: [a"), HasSubstr("line 2: "));
  EXPECT_EQ(problemOf(std::string("strategy: 1\n\0", 13)), "line 1: the file is not text");
  EXPECT_EQ(problemOf("strategy: 1\n\xff\xfe"), "line 1: the file is not text");
}

TEST(StrategyFile, ListsAllThatCannotBeMeant) {
  StrategyFile file;
  EXPECT_EQ(parseStrategy(
                "strategy: 1\nmesh: data=2\nnodes:\n  a: [{x}]\n  b: [{}]\n  c: [{y}, {z}]\n", file)
                .size(),
            3u);
}

TEST(StrategyFile, DeepAndDamagedTextsEnd) {
  std::string deep(200000, '[');
  EXPECT_NE(problemOf(deep), "");
  EXPECT_NE(problemOf("strategy: 1\nnodes: " + deep), "");
  EXPECT_NE(problemOf("strategy: 1\nnodes:\n  a: " + deep), "");
  EXPECT_NE(problemOf("strategy: 1\nnodes:\n  a: [" + deep), "");
  EXPECT_NE(problemOf("strategy: 1\nunpack:\n  - " + deep), "");
  std::string dashes;
  for (int i = 0; i < 20000; ++i)
    dashes += "- ";
  EXPECT_NE(problemOf(dashes), "");
  EXPECT_NE(problemOf("strategy: 1\nnodes:\n  " + dashes), "");
  EXPECT_NE(problemOf("? " + deep), "");
  StrategyFile file;
  file.mesh = {{"data", 2}};
  file.common[StrategySection::Nodes].push_back(makeLine("a b", "[{data: 8}, {}]"));
  file.common[StrategySection::Weights].push_back(makeLine("it's", "[{}]"));
  std::string text = printStrategy(file);
  for (size_t length = 0; length < text.size(); ++length)
    problemOf(text.substr(0, length)); // must not crash
  std::mt19937 random(1);
  const std::string bytes = "[]{}:,-?&*!|>'\"%@#\n\t 01ab\\\x01";
  for (int round = 0; round < 5000; ++round) {
    std::string damaged = text;
    for (unsigned i = 0, count = 1 + random() % 4; i < count; ++i)
      damaged[random() % damaged.size()] = bytes[random() % bytes.size()];
    problemOf(damaged);
  }
}
