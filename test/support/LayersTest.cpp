//===- LayersTest.cpp - names that differ by layer number -----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "support/Layers.h"

#include <gmock/gmock.h>

using namespace gridloom;

namespace {

std::vector<int64_t> findNumbers(std::string_view name, std::string_view separators) {
  std::vector<int64_t> numbers;
  for (const LayerNumber &layer : findLayers(name, separators)) {
    EXPECT_EQ(name.substr(layer.begin, layer.end - layer.begin), std::to_string(layer.value));
    numbers.push_back(layer.value);
  }
  return numbers;
}

TEST(LayersTest, NumbersStandAlone) {
  using testing::ElementsAre;
  EXPECT_THAT(findNumbers("h.12.mlp.0.weight", "/."), ElementsAre(12, 0));
  EXPECT_THAT(findNumbers("0.weight", "/."), ElementsAre(0));
  EXPECT_THAT(findNumbers("layer_3_w", "/."), ElementsAre());
  EXPECT_THAT(findNumbers("layer_3_w", "/._"), ElementsAre(3));
  EXPECT_THAT(findNumbers("/conv2d/x2/2x", "/."), ElementsAre());
  EXPECT_THAT(findNumbers("17", "/."), ElementsAre()) << "it is the name";
  EXPECT_THAT(findNumbers("/17", "/."), ElementsAre(17));
  EXPECT_THAT(findNumbers("h.1234567890.w", "/."), ElementsAre());
  EXPECT_THAT(findNumbers("", "/."), ElementsAre());
}

TEST(LayersTest, ScopesCountLayersAlike) {
  EXPECT_EQ(getScope("/encoder/layer.3/attention/MatMul"), "/encoder/layer.*/attention");
  EXPECT_EQ(getScope("/blocks/12/Add_1 + /blocks/12/Mul"), "/blocks/*");
  EXPECT_EQ(getScope("/conv2d/Conv"), "/conv2d") << "a number in a name is part of it";
  EXPECT_EQ(getScope("/Gather"), "/Gather");
  EXPECT_EQ(foldLayers("/layers.3/MatMul_1 + /layers.3/Add"), "/layers.*/MatMul_1");
  EXPECT_EQ(foldLayers("/h.3/mlp.0/MatMul"), "/h.*/mlp.*/MatMul");
  EXPECT_EQ(getScope("MatMul_17"), "MatMul_17");
  EXPECT_EQ(getScope("layers.7.mlp"), "layers.*.mlp");
  EXPECT_EQ(getScope(""), "");
}

TEST(LayersTest, LinesThatQuoteLayersAreFolded) {
  using testing::ElementsAre;
  EXPECT_THAT(
      foldLines({"node '/h.0/Where': stays f32", "one 'a.1' of 'b'", "node '/h.1/Where': stays f32",
                 "node '/h.1/Where': stays f32", "node '/h.2/Where': is cut", "it's 3 o'clock"}),
      ElementsAre("node '/h.*/Where': stays f32 (2 times)", "one 'a.1' of 'b'",
                  "node '/h.2/Where': is cut", "it's 3 o'clock"));
  EXPECT_THAT(foldLines({"a ' of '/h.1/x", "a ' of '/h.2/x"}),
              ElementsAre("a ' of '/h.1/x", "a ' of '/h.2/x"));
  EXPECT_THAT(foldLines({}), ElementsAre());
}

} // namespace
