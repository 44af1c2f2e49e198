//===- Sha256Test.cpp - digests of files and tensors ---------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "support/Sha256.h"

#include <gmock/gmock.h>

using namespace gridloom;

/// The examples of FIPS 180-4.
TEST(Sha256, IsTheStandards) {
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Sha256, PartsAreTheWhole) {
  std::string text(1000, 'x');
  std::string_view whole = text;
  std::vector<std::string_view> parts = {whole.substr(0, 1), "", whole.substr(1, 700),
                                         whole.substr(701)};
  EXPECT_EQ(sha256(parts), sha256(whole));
  EXPECT_EQ(sha256(std::span<const std::string_view>()), sha256(""));
}
