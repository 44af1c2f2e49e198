//===- TextTest.cpp - names, sizes and commands as text ------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "support/Text.h"

#include <gmock/gmock.h>

#include <array>

using namespace gridloom;

TEST(MakePrintable, ControlCharactersBecomeDigits) {
  EXPECT_EQ(makePrintable("a\x1b[2Jb\nc\x7f"), "a\\x1b[2Jb\\x0ac\\x7f");
  EXPECT_EQ(makePrintable("größe"), "größe");
  EXPECT_EQ(makePrintable(std::string("\0", 1)), "\\x00");
}

TEST(QuoteForShell, WhereAShellNeedsIt) {
  EXPECT_EQ(quoteForShell("/a/b-1.plan,data=2"), "/a/b-1.plan,data=2");
  EXPECT_EQ(quoteForShell("past + seq=4"), "'past + seq=4'");
  EXPECT_EQ(quoteForShell("it's $HOME"), "'it'\\''s $HOME'");
  EXPECT_EQ(quoteForShell(""), "''");
}

TEST(FormatBytes, TheLargestUnitThatLeavesOne) {
  EXPECT_EQ(formatBytes(0), "0 bytes");
  EXPECT_EQ(formatBytes(1), "1 byte");
  EXPECT_EQ(formatCount(1, "node"), "1 node");
  EXPECT_EQ(formatCount(2, "node"), "2 nodes");
  EXPECT_EQ(formatBytes(1023), "1023 bytes");
  EXPECT_EQ(formatBytes(1023, "B"), "1023 B");
  EXPECT_EQ(formatBytes(1536), "1.5 KiB");
  EXPECT_EQ(formatBytes(uint64_t(3) << 30), "3.0 GiB");
}

TEST(GetDigits, TwoThatAreNotLeadingZeros) {
  EXPECT_EQ(getDigits(12.3, 2), 2);
  EXPECT_EQ(getDigits(0.25, 2), 2);
  EXPECT_EQ(getDigits(0.012, 2), 3);
  EXPECT_EQ(getDigits(0.0034, 1), 4);
  EXPECT_EQ(getDigits(1e-9, 2), 6);
  EXPECT_EQ(getDigits(0, 2), 2);
}

TEST(ToHex, TwoDigitsForEachByte) {
  EXPECT_EQ(toHex({}), "");
  EXPECT_EQ(toHex(std::array{std::byte(0), std::byte(0x0f), std::byte(0xf0)}), "000ff0");
}

TEST(FromHex, InvertsToHexAndNothingElse) {
  EXPECT_EQ(fromHex(""), "");
  EXPECT_EQ(fromHex("4a0fF0"), "J\x0f\xf0");
  for (const char *text : {"4", "4a0", "4g", "+f", "0x", " 1", "1 "})
    EXPECT_EQ(fromHex(text), std::nullopt) << text;
}
