//===- ReadableNamesTest.cpp - names of values in dumps ---------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/driver/ReadableNames.h"

#include <gtest/gtest.h>

using gridloom::makeNamesReadable;

namespace {

TEST(ReadableNames, SlashesBecomeDots) {
  EXPECT_EQ(makeNamesReadable("%_2Flayers.02Fself_attn2FReshape = op %arg0, %x2Fy : t\n"),
            "%layers.0.self_attn.Reshape = op %arg0, %x.y : t\n");
  EXPECT_EQ(makeNamesReadable("%a2F2Fb = op %_2F0"), "%a..b = op %_0");
  EXPECT_EQ(makeNamesReadable("%_2FSplit:2 = op %_2FSplit#1"), "%Split:2 = op %Split#1");
}

TEST(ReadableNames, NamesStayApart) {
  EXPECT_EQ(makeNamesReadable("%_2Fa = op\n%a = op\n%a_0 = op %_2Fa, %a, %a_0"),
            "%a_1 = op\n%a = op\n%a_0 = op %a_1, %a, %a_0");
  // The printer distinguishes values of one node by a number.
  EXPECT_EQ(makeNamesReadable("%x2Fy, %x2Fy_0"), "%x.y, %x.y_0");
}

TEST(ReadableNames, StringsAndCommentsAreLeftAlone) {
  std::string text = "// %_2Fa\nop loc(\"%_2Fa \\\" %_2Fb\") // %_2Fc\n";
  EXPECT_EQ(makeNamesReadable(text), text);
}

} // namespace
