//===- CostSheetTest.cpp - comparing the costs of plans -------------------===//
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
  sheet.parts = {{"main batch=4", "matmul", "", "/layer.0/MatMul", 1, 4},
                 {"main batch=4", "matmul", "", "/layer.1/MatMul", 1, 4},
                 {"main batch=4", "all_reduce", "model", "/layer.1/MatMul", 1, 3}};
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
  second.parts[2] = {"main batch=4", "all_gather", "model", "/layer.1/MatMul", 2, 3};
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
  second.parts.push_back({"main batch=4", "send", "stage 1", "/layer.0/Add", 1, 2});
  second.parts.push_back({"main batch=4", "recv", "stage 0", "/layer.0/Add", 1, 1});
  auto json = compare(first, second);
  EXPECT_EQ(json["kinds_of_steps"][0]["kind"], "send to stage 1");
  EXPECT_EQ(nameKind("send", "to stage 1"), "send to stage 1") << "as inspect lists it";
  EXPECT_EQ(nameKind("all_gather", "total"), "all_gather over total");
  EXPECT_EQ(json["collectives"][1]["collective"], "recv from stage 0 for /layer.*/Add");
}

TEST(CostSheetTest, OnlyProgramsOfBothPlansAreCompared) {
  CostSheet first = makeSheet(), second = makeSheet();
  second.programs.push_back({"main batch=8", 20, 16, 6, 4, 0});
  second.parts.push_back({"main batch=8", "matmul", "", "/layer.0/MatMul", 1, 16});
  auto json = compare(first, second);
  EXPECT_EQ(json.size(), 1u) << json;
  ASSERT_EQ(json["programs_of_one_plan"].size(), 1u);
  EXPECT_EQ(json["programs_of_one_plan"][0]["program"], "main batch=8");
  EXPECT_EQ(json["programs_of_one_plan"][0]["plan"], "second");
  EXPECT_EQ(json["programs_of_one_plan"][0]["step_ms"], 20);
  json = compare(second, first);
  EXPECT_EQ(json["programs_of_one_plan"][0]["plan"], "first");

  // Changes of shared programs are reported as well.
  second.parts[0].ms = 5;
  json = compare(first, second);
  EXPECT_EQ(json["kinds_of_steps"][0]["change_ms"], 1);
  EXPECT_EQ(json["kinds_of_steps"][0]["second_times"], 2);
}

TEST(CostSheetTest, ReportsAreRead) {
  std::string head = R"({"estimates": [{"entry": "main", "dims": "batch=4", "step_ms": 10,
                                        "compute_ms": 8, "bubble": 0.25}],)";
  std::optional<CostSheet> sheet = parseCosts(head + R"(
      "costs": [{"entry": "main", "dims": "batch=4", "kind": "send", "over": "stage 1",
                 "node": "/Add", "op": "send #1", "times": 2, "ms": 0.5}],
      "memory": {"total_bytes": 4096, "inputs_and_outputs_bytes": 16}})");
  ASSERT_TRUE(sheet);
  EXPECT_EQ(sheet->programs[0].name, "main batch=4");
  EXPECT_EQ(sheet->programs[0].bubble, 0.25);
  EXPECT_EQ(sheet->parts[0].program, "main batch=4");
  EXPECT_EQ(nameKind(sheet->parts[0].kind, sheet->parts[0].over), "send to stage 1");
  EXPECT_EQ(sheet->memory.at("inputs and outputs"), 16u);
  EXPECT_EQ(sheet->memory.size(), 2u);
  EXPECT_FALSE(parseCosts("{}"));
  EXPECT_FALSE(parseCosts("[1"));
  EXPECT_FALSE(parseCosts(head + R"("memory": {}})")) << "of an older compiler";
  EXPECT_FALSE(parseCosts(head + R"("costs": [{"op": "matmul", "ms": 1}]})")) << "likewise";
}

} // namespace
