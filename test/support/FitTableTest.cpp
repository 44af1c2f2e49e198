//===- FitTableTest.cpp - tables no wider than a terminal -----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "support/FitTable.h"
#include "support/Document.h"

#include <gmock/gmock.h>

#include <sstream>

using namespace gridloom;
using testing::HasSubstr;
using testing::Not;

TEST(Shorten, ListsKeepTheirFirstPartsAndTellHowManyMore) {
  EXPECT_EQ(shorten("a, b, c", ", ", 7), "a, b, c");
  EXPECT_EQ(shorten("aa, bb, cc, dd", ", ", 9), "aa, bb +2");
  EXPECT_EQ(shorten("aa, bb, cc, dd", ", ", 8), "aa +3");
  EXPECT_EQ(shorten("/x/MatMul + /x/Add", " + ", 13), "/x/MatMul +1");
}

TEST(Shorten, NamesKeepTheirEnds) {
  EXPECT_EQ(shorten("/encoder/layer.0/attention/MatMul", " + ", 13), "/enc…n/MatMul");
  EXPECT_EQ(shorten("/encoder/layer.0/MatMul + /b", " + ", 13), "/en…MatMul +1");
  EXPECT_EQ(shorten("ääääääää", ", ", 5), "ää…ää"); // characters, not bytes
  for (size_t room = 3; room < 40; ++room)
    EXPECT_LE(getTextWidth(shorten("/encoder/layer.0/MatMul + /b + /c", " + ", room)), room);
}

static Document makeDocument() {
  Document document;
  document.addTable("steps", {"stage", "step", "reads", "bytes", "control", "node"});
  for (int i = 0; i < 3; ++i)
    document.addRow({0, "kernel_" + std::to_string(i),
                     listCell({"a+0", "weight.of.some.layer", "r+24576", "bias"}), 1000 + i, "",
                     "/encoder/layer." + std::to_string(i) + "/query/MatMul + /query/Add"});
  return document;
}

static std::vector<std::string> getLines(size_t width) {
  std::ostringstream out;
  makeDocument().write(out, /*asJson=*/false, width);
  std::vector<std::string> lines;
  std::istringstream in(out.str());
  for (std::string line; std::getline(in, line);)
    lines.push_back(line);
  return lines;
}

TEST(FitTable, TheWidthIsKeptAndWhatIsAlikeSaidOnce) {
  for (size_t width : {60, 70, 80, 100}) {
    std::vector<std::string> lines = getLines(width);
    for (const std::string &line : lines)
      EXPECT_LE(getTextWidth(line), width) << line;
    EXPECT_THAT(lines[0], testing::StartsWith("  in every row: stage 0,"));
    EXPECT_THAT(lines[lines.size() - 4], HasSubstr("kernel_1"));
    EXPECT_THAT(lines.back(), HasSubstr("--wide"));
  }
}

TEST(FitTable, NamesOfRowsAreShortenedLast) {
  const TextTable whole{{{"symbol", "library", "nodes"},
                         {"a_kernel_of_a_long_name", "cuda0.cubin", "/encoder/layer.0/MatMul"},
                         {"another_kernel", "cuda17.cubin", "/encoder/layer.1/MatMul"}},
                        {false, false, false},
                        {false, false, false}};
  TextTable table = whole;
  fitTable(table, 50);
  EXPECT_EQ(table.lines[1][0], "a_kernel_of_a_long_name");
  EXPECT_LE(getTableWidth(table), 50u);
  table = whole;
  fitTable(table, 40);
  EXPECT_EQ(getTextWidth(table.lines[1][0]), 14u);
  EXPECT_EQ(getTableWidth(table), 40u);
}

TEST(FitTable, NothingIsLostWhereThereIsRoom) {
  for (size_t width : {0, 200}) {
    std::vector<std::string> lines = getLines(width);
    ASSERT_EQ(lines.size(), 4u);
    EXPECT_THAT(lines[2], HasSubstr("a+0, weight.of.some.layer, r+24576, bias"));
    EXPECT_THAT(lines[2], HasSubstr("/encoder/layer.1/query/MatMul + /query/Add"));
  }
}

TEST(FitTable, RowsThatAreAlikeKeepAColumn) {
  TextTable table{
      {{"entry", "step"}, {"main", "kernel"}, {"main", "kernel"}}, {false, false}, {false, false}};
  EXPECT_THAT(fitTable(table, 8), testing::ElementsAre("step kernel"));
  EXPECT_THAT(table.lines,
              testing::ElementsAre(testing::ElementsAre("entry"), testing::ElementsAre("main"),
                                   testing::ElementsAre("main")));
}

TEST(FitTable, TerminalsOfNoUseStopNothing) {
  std::string list(100, 'a');
  for (size_t width = 1; width < 8; ++width) {
    Document document;
    document.addTable("steps", {"step", "reads"});
    for (const char *step : {"first", "second"})
      document.addRow({step, listCell({list, list})});
    std::ostringstream out;
    document.write(out, /*asJson=*/false, width);
    EXPECT_THAT(out.str(), HasSubstr("in every row"));
    EXPECT_THAT(out.str(), Not(HasSubstr(list + ", " + list))) << width;
  }
}

TEST(FitTable, JsonIsTheSameAtEveryWidth) {
  std::ostringstream narrow, wide;
  makeDocument().write(narrow, /*asJson=*/true, 40);
  makeDocument().write(wide, /*asJson=*/true);
  EXPECT_EQ(narrow.str(), wide.str());
  EXPECT_THAT(wide.str(), HasSubstr("\"a+0 weight.of.some.layer r+24576 bias\""));
}

TEST(Document, NamesDoNothingToATerminal) {
  Document document;
  document.addField("name", "a\x1b[2Jb\nc");
  std::ostringstream out;
  document.write(out, /*asJson=*/false);
  EXPECT_EQ(out.str(), "name  a\\x1b[2Jb\\x0ac\n");
}

TEST(Document, CountsAreReadWithUnits) {
  EXPECT_EQ(countCell(999).text, "999");
  EXPECT_EQ(countCell(23440896).text, "23.4 M");
  EXPECT_EQ(countCell(23440896).value, 23440896);
}
