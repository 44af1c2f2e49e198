//===- CostSheetTest.cpp - compare what plans cost ------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "support/CostSheet.h"

#include <gmock/gmock.h>

#include <sstream>

using namespace gridloom;

namespace {

nlohmann::json compare(const CostSheet &first, const CostSheet &second, size_t most = 100) {
  Document document;
  std::ostringstream text;
  bool differs = addCostChanges(document, first, second, {}, most);
  document.write(text, /*asJson=*/true);
  auto json = nlohmann::json::parse(text.str());
  EXPECT_EQ(differs, !json.empty());
  return json;
}

CostSheet makeSheet() {
  CostSheet sheet;
  sheet.programs = {{"main batch=4", 10, 8, 3, 2, 0}};
  sheet.parts = {{"matmul", "", "/layer.0/MatMul", 1, 4},
                 {"matmul", "", "/layer.1/MatMul", 1, 4},
                 {"all_reduce", "model", "/layer.1/MatMul", 1, 3}};
  sheet.memory = {{"total", 4096}, {"weights", 1024}};
  return sheet;
}

TEST(CostSheetTest, EqualSheetsGiveNothing) {
  EXPECT_TRUE(compare(makeSheet(), makeSheet()).empty());
  CostSheet rounded = makeSheet();
  rounded.parts[0].ms += 1e-9;
  EXPECT_TRUE(compare(makeSheet(), rounded).empty()) << "rounding is no difference";
}

TEST(CostSheetTest, TheLargestDifferenceComesFirst) {
  CostSheet first = makeSheet(), second = makeSheet();
  second.parts[0].ms = 5;
  second.parts[2].ms = 0.5;
  second.programs[0].stepMs = 8.5;
  second.programs[0].exposedMs = 0.5;
  auto json = compare(first, second);
  EXPECT_EQ(json["kinds_of_steps"][0]["kind"], "all_reduce over model");
  EXPECT_EQ(json["kinds_of_steps"][0]["change_ms"], -2.5);
  EXPECT_EQ(json["kinds_of_steps"][1]["change_ms"], 1);
  EXPECT_EQ(json["scopes"].size(), 1u) << "layers alike are one scope";
  EXPECT_EQ(json["scopes"][0]["scope"], "/layer.*");
  EXPECT_EQ(json["scopes"][0]["change_ms"], -1.5);
  EXPECT_EQ(json["collectives"][0]["collective"], "all_reduce over model for /layer.*/MatMul");
  EXPECT_EQ(json["times"].size(), 2u) << "the step, and what is exposed of it";
  EXPECT_FALSE(json.contains("memory"));
  EXPECT_EQ(compare(first, second, 1)["kinds_of_steps"].size(), 1u);
}

TEST(CostSheetTest, WhatComesAndGoesIsListed) {
  CostSheet first = makeSheet(), second = makeSheet();
  second.parts[2] = {"all_gather", "model", "/layer.1/MatMul", 2, 3};
  second.memory["total"] = 2048;
  auto json = compare(first, second);
  EXPECT_EQ(json["collectives"].size(), 2u);
  EXPECT_EQ(json["collectives"][0]["first_times"].get<int>() +
                json["collectives"][1]["first_times"].get<int>(),
            1);
  EXPECT_EQ(json["memory"][0]["change_bytes"], -2048);
}

TEST(CostSheetTest, TransfersHaveADirection) {
  CostSheet first = makeSheet(), second = makeSheet();
  second.parts.push_back({"send", "stage 1", "/layer.0/Add", 1, 2});
  second.parts.push_back({"recv", "stage 0", "/layer.0/Add", 1, 1});
  auto json = compare(first, second);
  EXPECT_EQ(json["kinds_of_steps"][0]["kind"], "send to stage 1");
  EXPECT_EQ(json["collectives"][1]["collective"], "recv from stage 0 for /layer.*/Add");
}

TEST(CostSheetTest, ScopesCountLayersAlike) {
  EXPECT_EQ(getScope("/encoder/layer.3/attention/MatMul"), "/encoder/layer.*/attention");
  EXPECT_EQ(getScope("/blocks/12/Add_1 + /blocks/12/Mul"), "/blocks/*");
  EXPECT_EQ(getScope("/conv2d/Conv"), "/conv2d") << "a number in a name is part of it";
  EXPECT_EQ(getScope("/Gather"), "/Gather");
  EXPECT_EQ(foldLayers("/layers.3/MatMul_1 + /layers.3/Add"), "/layers.*/MatMul_1");
  EXPECT_EQ(getScope("MatMul_17"), "MatMul_17");
  EXPECT_EQ(getScope("layers.7.mlp"), "layers.*.mlp");
  EXPECT_EQ(getScope(""), "");
}

} // namespace
