//===- TemporaryFolderTest.cpp - folders removed on destruction -----------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "support/TemporaryFolder.h"

#include <cstdlib>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace gridloom;
using testing::HasSubstr;
using testing::StartsWith;
namespace fs = std::filesystem;

TEST(TemporaryFolderTest, GoesWithWhatIsInIt) {
  fs::path path;
  {
    TemporaryFolder folder("gridloom-test");
    path = folder.getPath();
    EXPECT_EQ(folder.getError(), "");
    EXPECT_THAT(path.filename().string(), StartsWith("gridloom-test-"));
    EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_all);
    fs::create_directory(path / "inner");
    std::ofstream(folder.file("inner/file")) << "text";
    EXPECT_NE(TemporaryFolder("gridloom-test").getPath(), path);
    EXPECT_TRUE(fs::exists(path / "inner/file"));
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST(TemporaryFolderTest, ErrorNamesThePlace) {
  std::string before = std::getenv("TMPDIR") ? std::getenv("TMPDIR") : "";
  setenv("TMPDIR", "/dev/null/nowhere", 1);
  TemporaryFolder folder;
  before.empty() ? unsetenv("TMPDIR") : setenv("TMPDIR", before.c_str(), 1);
  EXPECT_THAT(folder.getError(), HasSubstr("temporary folder"));
  EXPECT_THAT(folder.getError(), HasSubstr("irectory"));
}
