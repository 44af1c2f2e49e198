//===- FileSwapTest.cpp - files and folders replaced in one step ---------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "support/FileSwap.h"
#include "support/TemporaryFolder.h"

#include <gmock/gmock.h>

#include <fcntl.h>
#include <fstream>
#include <functional>
#include <sstream>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <utility>

using namespace gridloom;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;
namespace fs = std::filesystem;

/// The error with which this thread's next close of a written file fails; 0 for none.
static thread_local int closeFailure = 0;

/// Replaces the C library's close, to fail like a network file system whose quota is used up.
extern "C" int close(int descriptor) {
  bool isWritten = (fcntl(descriptor, F_GETFL) & O_ACCMODE) == O_WRONLY;
  if (syscall(SYS_close, descriptor) != 0)
    return -1;
  int failure = isWritten ? std::exchange(closeFailure, 0) : 0;
  if (failure == 0)
    return 0;
  errno = failure;
  return -1;
}

/// Called at each fsync of this thread.
static thread_local std::function<void(const fs::path &)> onSync;

/// Replaces the C library's fsync, to show the order of steps.
extern "C" int fsync(int descriptor) {
  if (onSync)
    onSync(fs::read_symlink("/proc/self/fd/" + std::to_string(descriptor)));
  return int(syscall(SYS_fsync, descriptor));
}

namespace {

class FileSwapTest : public testing::Test {
protected:
  std::vector<std::string> list() const {
    std::vector<std::string> names;
    for (const fs::directory_entry &entry : fs::directory_iterator(folder))
      names.push_back(entry.path().filename().string());
    return names;
  }
  static std::string read(const fs::path &path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  }
  TemporaryFolder temporary;
  fs::path folder = temporary.getPath();
};

TEST_F(FileSwapTest, PartsFollowOneAnother) {
  fs::path path = folder / "x";
  EXPECT_EQ(replaceFile(path, {"old and longer"}), "");
  EXPECT_EQ(replaceFile(path, {"a", std::string_view("\0b", 2), ""}), "");
  EXPECT_EQ(read(path), std::string("a\0b", 3));
  EXPECT_THAT(list(), ElementsAre("x"));
}

TEST_F(FileSwapTest, PathsInsideOfAFolder) {
  fs::path plan = folder / "plan";
  fs::create_directories(plan / "ir");
  fs::create_symlink(plan / "ir", folder / "link");
  for (fs::path path : {plan, plan / "new", plan / "none" / "new", folder / "link" / "new",
                        folder / "beside" / ".." / "plan" / "new"})
    EXPECT_TRUE(isInside(path, plan)) << path;
  for (fs::path path : {folder, folder / "plan2", folder / "new", plan / ".." / "new"})
    EXPECT_FALSE(isInside(path, plan)) << path;
  EXPECT_FALSE(isInside(plan / "new", folder / "none"));
}

TEST_F(FileSwapTest, AFileThatCannotBeReplacedStaysAndNoOtherIsLeft) {
  fs::create_directories(folder / "x" / "below");
  EXPECT_EQ(replaceFile(folder / "x", {"contents"}), "Is a directory");
  EXPECT_THAT(list(), ElementsAre("x"));
  EXPECT_EQ(replaceFile(folder / "none" / "x", {"contents"}), "No such file or directory");
}

TEST_F(FileSwapTest, ALinkStaysAndADeviceIsWrittenTo) {
  fs::create_directory(folder / "there");
  std::ofstream(folder / "there" / "x") << "old";
  fs::create_symlink("there/x", folder / "link");
  EXPECT_EQ(replaceFile(folder / "link", {"new"}), "");
  EXPECT_EQ(read(folder / "there" / "x"), "new");
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  fs::create_symlink("nowhere", folder / "broken");
  EXPECT_EQ(replaceFile(folder / "broken", {"new"}), "No such file or directory");
  fs::create_symlink("/dev/full", folder / "full");
  EXPECT_EQ(replaceFile(folder / "full", {"new"}), "No space left on device");
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  std::string seen;
  std::thread reader([&] { seen = read(folder / "pipe"); });
  EXPECT_EQ(replaceFile(folder / "pipe", {"new"}), "");
  reader.join();
  EXPECT_EQ(seen, "new");
  EXPECT_THAT(list(), UnorderedElementsAre("there", "link", "broken", "full", "pipe"));
}

TEST_F(FileSwapTest, WhatCloseReportsIsAFailure) {
  ASSERT_EQ(replaceFile(folder / "x", {"old"}), "");
  closeFailure = EDQUOT;
  EXPECT_EQ(replaceFile(folder / "x", {"new"}), "Disk quota exceeded");
  EXPECT_EQ(read(folder / "x"), "old");
  closeFailure = ENOSPC;
  EXPECT_THAT(replaceFolder(folder / "m", {{"a", "1"}}, /*isDurable=*/false),
              HasSubstr("No space left on device"));
  EXPECT_THAT(list(), ElementsAre("x"));
}

/// A process on another machine may have the same number and share the volume.
TEST_F(FileSwapTest, OthersCannotForeseeItsNames) {
  std::string stem = ".tmp-" + std::to_string(getpid()) + "-";
  std::ofstream(folder / "precious") << "precious";
  for (int i = 0; i < 100; ++i) {
    fs::create_symlink("precious", folder / ("x" + stem + std::to_string(i)));
    fs::create_directories(folder / ("m" + stem + std::to_string(i)) / "other");
  }
  size_t before = list().size();
  EXPECT_EQ(replaceFile(folder / "x", {"mine"}), "");
  EXPECT_EQ(replaceFolder(folder / "m", {{"a", "1"}}, /*isDurable=*/false), "");
  EXPECT_EQ(read(folder / "precious"), "precious");
  EXPECT_FALSE(fs::is_symlink(folder / "x"));
  EXPECT_FALSE(fs::exists(folder / "m" / "other"));
  EXPECT_EQ(list().size(), before + 2) << "the others' files and folders stay";
}

TEST_F(FileSwapTest, TheModesAreThoseOfTheUmask) {
  mode_t old = umask(027);
  EXPECT_EQ(replaceFile(folder / "x", {"contents"}), "");
  EXPECT_EQ(replaceFolder(folder / "new" / "m", {{"a", "1"}}, /*isDurable=*/false), "");
  umask(old);
  EXPECT_EQ(fs::status(folder / "x").permissions(), fs::perms(0640));
  EXPECT_EQ(fs::status(folder / "new" / "m").permissions(), fs::perms(0750));
  EXPECT_EQ(fs::status(folder / "new" / "m" / "a").permissions(), fs::perms(0640));
}

/// Each writer has its own temporary file.
TEST_F(FileSwapTest, ReadersFindAWholeFileWhileThreadsReplaceIt) {
  fs::path path = folder / "x";
  const std::string contents[] = {std::string(100000, 'a'), std::string(50000, 'b')};
  ASSERT_EQ(replaceFile(path, {contents[0]}), "");
  std::vector<std::thread> writers;
  for (const std::string &mine : contents)
    writers.emplace_back([&path, &mine] {
      for (int i = 0; i < 100; ++i)
        EXPECT_EQ(replaceFile(path, {mine}), "");
    });
  for (int i = 0; i < 100; ++i) {
    std::string found = read(path);
    EXPECT_TRUE(found == contents[0] || found == contents[1]) << found.size();
  }
  for (std::thread &writer : writers)
    writer.join();
  EXPECT_THAT(list(), ElementsAre("x"));
}

TEST_F(FileSwapTest, AFolderHasTheNewFilesAlone) {
  fs::path path = folder / "m.plan";
  for (bool isDurable : {false, true}) {
    EXPECT_EQ(replaceFolder(path, {{"a", "1"}, {"sub/b", "2"}}, isDurable), "");
    EXPECT_EQ(replaceFolder(path, {{"c", "3"}}, isDurable), "");
    EXPECT_EQ(read(path / "c"), "3");
    EXPECT_FALSE(fs::exists(path / "sub"));
  }
  EXPECT_THAT(list(), ElementsAre("m.plan"));
}

/// Durable writes bypass the page cache in whole pages, whatever the parts' sizes; where a file
/// system cannot (perhaps /dev/shm), they do not.
TEST_F(FileSwapTest, LargeDurableFilesAreWhatTheirPartsAre) {
  for (const fs::path &place : {folder, fs::path("/dev/shm")})
    for (size_t extra : {size_t(0), (size_t(1) << 20) + 4099}) {
      std::string whole((size_t(4) << 20) + extra, '\0');
      for (size_t i = 0; i < whole.size(); ++i)
        whole[i] = char(i * 2654435761u >> 13);
      FileParts files;
      std::string_view left = whole;
      for (size_t part = 0; !left.empty(); part = 3 * part + 5) {
        files["a"].push_back(left.substr(0, part));
        left.remove_prefix(std::min(part, left.size()));
      }
      fs::path path = place / ("large-" + std::to_string(getpid()));
      EXPECT_EQ(replaceFolderByParts(path, files, /*isDurable=*/true), "");
      EXPECT_TRUE(read(path / "a") == whole) << place << ", " << extra;
      fs::remove_all(path);
    }
}

/// After a power failure the disk must have the new folder if the old one is gone.
TEST_F(FileSwapTest, TheOldFolderStaysUntilTheDiskHasTheNewName) {
  ASSERT_EQ(replaceFolder(folder / "m", {{"a", "1"}}, /*isDurable=*/true), "");
  size_t folders = 0;
  onSync = [&](const fs::path &path) {
    if (path == fs::canonical(folder)) {
      folders = list().size();
      EXPECT_EQ(read(folder / "m" / "a"), "2");
    }
  };
  EXPECT_EQ(replaceFolder(folder / "m", {{"a", "2"}}, /*isDurable=*/true), "");
  onSync = nullptr;
  EXPECT_EQ(folders, 2u);
  EXPECT_THAT(list(), ElementsAre("m"));
}

TEST_F(FileSwapTest, WhatTheCheckRefusesTakesNoPlace) {
  fs::path path = folder / "m.plan";
  ASSERT_EQ(replaceFolder(path, {{"a", "1"}}, /*isDurable=*/false), "");
  auto refuse = [](const fs::path &fresh) { return "refused " + read(fresh / "a"); };
  EXPECT_EQ(replaceFolder(path, {{"a", "2"}}, /*isDurable=*/false, refuse), "refused 2");
  EXPECT_EQ(read(path / "a"), "1");
  EXPECT_THAT(list(), ElementsAre("m.plan"));
}

TEST_F(FileSwapTest, AFolderThatCannotBeWrittenIsNamed) {
  EXPECT_THAT(replaceFolder(folder / "m", {{"a", "1"}, {"a/b", "2"}}, /*isDurable=*/true),
              HasSubstr("cannot make the folder '"));
  EXPECT_THAT(list(), IsEmpty());
}

} // namespace
