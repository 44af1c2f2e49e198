//===- AutotuneCacheTest.cpp - measured choices in a file -----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#include "runtime/device/AutotuneCache.h"
#include "support/TemporaryFolder.h"

#include <gmock/gmock.h>

#include <fstream>
#include <unistd.h>

using gridloom::TemporaryFolder;
using gridloom::rt::AutotuneCache;
using testing::HasSubstr;
using testing::IsEmpty;
namespace fs = std::filesystem;

namespace {

struct AutotuneCacheTest : testing::Test {
  AutotuneCache open(bool measures = false, const std::string &device = "H200-13000") {
    return AutotuneCache(folder, device, measures);
  }
  void write(const std::string &text) {
    fs::create_directories(folder);
    std::ofstream(folder / "H200-13000.json") << text;
  }

  TemporaryFolder temporary;
  fs::path folder = temporary.getPath() / "autotune";
  const std::string bytes = std::string("\x00\xff\x7f\"", 4);
};

TEST_F(AutotuneCacheTest, KeepsWhatWasMeasuredForTheNextOne) {
  AutotuneCache cache(folder, "H200-13000", /*measures=*/true);
  EXPECT_TRUE(cache.shouldMeasure("a"));
  cache.add("a", {bytes, 1.5, 2});
  EXPECT_FALSE(cache.shouldMeasure("a"));
  EXPECT_EQ(cache.find("a"), std::nullopt) << "other ranks would not know of it";
  EXPECT_THAT(cache.save(), IsEmpty());

  AutotuneCache next(folder, "H200-13000", /*measures=*/true);
  ASSERT_TRUE(next.find("a"));
  EXPECT_EQ(next.find("a")->algorithm, bytes);
  EXPECT_EQ(next.find("a")->microseconds, 1.5);
  EXPECT_EQ(next.find("b"), std::nullopt);
  EXPECT_FALSE(next.shouldMeasure("a"));
  EXPECT_TRUE(next.shouldMeasure("b"));
  EXPECT_THAT(next.getComplaint(), IsEmpty());
  // No temporary file remains.
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 1);
  // A second save keeps the earlier entries.
  next.add("b", {bytes, 3, 4});
  EXPECT_THAT(next.save(), IsEmpty());
  AutotuneCache last(folder, "H200-13000", false);
  EXPECT_TRUE(last.find("a") && last.find("b"));
  EXPECT_FALSE(last.shouldMeasure("c")) << "nobody asked";
}

TEST_F(AutotuneCacheTest, WhatTheLibraryRejectsIsMeasuredAgain) {
  AutotuneCache cache(folder, "H200-13000", true);
  cache.add("a", {bytes, 1, 2});
  cache.save();
  AutotuneCache next(folder, "H200-13000", true);
  next.reject("a");
  EXPECT_TRUE(next.shouldMeasure("a"));
  next.add("a", {"new", 1, 2});
  next.save();
  EXPECT_EQ(AutotuneCache(folder, "H200-13000", false).find("a")->algorithm, "new");
}

TEST_F(AutotuneCacheTest, DigestsAreOfWhatWasRead) {
  AutotuneCache none(folder, "H200-13000", true), other(folder, "H200-13000", true);
  EXPECT_EQ(none.getDigest(), other.getDigest());
  none.add("a", {bytes, 1, 2});
  EXPECT_EQ(none.getDigest(), other.getDigest());
  none.save();
  AutotuneCache read(folder, "H200-13000", true);
  EXPECT_NE(read.getDigest(), other.getDigest());
  read.clear();
  EXPECT_EQ(read.getDigest(), other.getDigest());
  EXPECT_EQ(read.find("a"), std::nullopt);
}

TEST_F(AutotuneCacheTest, MergesOtherRanks) {
  AutotuneCache first(folder, "H200-13000", true), second(folder, "H200-13000", true);
  first.add("a", {"first", 1, 2});
  second.add("a", {"second", 1, 2});
  second.add("b", {"second", 1, 2});
  first.merge(second.getMeasured());
  EXPECT_EQ(first.getNumMeasured(), 2u);
  first.save();
  AutotuneCache read(folder, "H200-13000", false);
  EXPECT_EQ(read.find("a")->algorithm, "first");
  EXPECT_EQ(read.find("b")->algorithm, "second");
}

TEST_F(AutotuneCacheTest, DamagedFilesAreAsIfThereWereNone) {
  AutotuneCache cache(folder, "H200-13000", true);
  cache.add("a", {bytes, 1, 2});
  cache.save();
  std::ifstream stream(folder / "H200-13000.json");
  std::string whole{std::istreambuf_iterator<char>(stream), {}};
  // Truncated at any length; the last byte is only a newline.
  for (size_t length = 0; length + 1 < whole.size(); ++length) {
    write(whole.substr(0, length));
    AutotuneCache read(folder, "H200-13000", true);
    ASSERT_THAT(read.getComplaint(), HasSubstr("H200-13000.json is ignored: it is damaged"));
    ASSERT_EQ(read.find("a"), std::nullopt);
  }
  for (
      const char *text :
      {"[]", R"({"format": "1"})", R"({"format": 1, "device": 5, "choices": {}})",
       R"({"format": 1, "device": "H200-13000", "choices": {"a": {"algorithm": "0g", "microseconds": 1, "guess_microseconds": 1}}})",
       R"({"format": 1, "device": "H200-13000", "choices": {"a": {"algorithm": "000", "microseconds": 1, "guess_microseconds": 1}}})",
       R"({"format": 1, "device": "H200-13000", "choices": {"a": {"algorithm": "00"}}})"}) {
    write(text);
    EXPECT_THAT(open().getComplaint(), HasSubstr("it is damaged")) << text;
  }
}

TEST_F(AutotuneCacheTest, OtherDevicesAndFormatsAreIgnored) {
  write(R"({"format": 1, "device": "A100-13000", "choices": {}})");
  EXPECT_THAT(open().getComplaint(),
              HasSubstr("is ignored: it was measured on A100-13000, this is H200-13000"));
  write(R"({"format": 2, "device": "H200-13000", "choices": {}})");
  EXPECT_THAT(open().getComplaint(),
              HasSubstr("is ignored: it has format 2, this version reads 1"));
}

TEST_F(AutotuneCacheTest, FoldersThatCannotBeWrittenAreOneLine) {
  std::ofstream(folder.string()) << "a file is in the way";
  AutotuneCache cache(folder, "H200-13000", true);
  cache.add("a", {bytes, 1, 2});
  std::string problem = cache.save();
  EXPECT_THAT(problem, HasSubstr("H200-13000.json cannot be written ("));
  EXPECT_THAT(problem, HasSubstr("make the plan's folder writable"));
  EXPECT_EQ(problem.find('\n'), std::string::npos);
}

} // namespace
