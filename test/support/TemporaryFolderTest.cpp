//===- TemporaryFolderTest.cpp - folders removed on destruction -----------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "support/TemporaryFolder.h"

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

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

TEST(TemporaryFolderTest, GoesWhenASignalEndsTheProcess) {
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
      TemporaryFolder::removeOnSignals();
      TemporaryFolder folder("gridloom-test");
      {
        TemporaryFolder earlier("gridloom-test");
      } // the handler stays for the other one
      fs::create_directories(folder.getPath() / "plan" / "ir");
      for (int i = 0; i < 300; ++i) // more than one system call lists
        std::ofstream(folder.file("plan/a file with a long name of number " + std::to_string(i)));
      fs::create_symlink("/", folder.getPath() / "plan" / "ir" / "link");
      std::string path = folder.getPath().string();
      if (write(ends[1], path.data(), path.size()) < 0)
        _exit(1);
      for (;;)
        pause();
    }
    char path[4096] = "";
    ASSERT_GT(read(ends[0], path, sizeof path - 1), 0);
    EXPECT_TRUE(fs::exists(path));
    kill(child, signal);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal) << status;
    EXPECT_FALSE(fs::exists(path));
    close(ends[0]);
    close(ends[1]);
  }
}

TEST(TemporaryFolderTest, ErrorNamesThePlace) {
  std::string before = std::getenv("TMPDIR") ? std::getenv("TMPDIR") : "";
  setenv("TMPDIR", "/dev/null/nowhere", 1);
  TemporaryFolder folder;
  before.empty() ? unsetenv("TMPDIR") : setenv("TMPDIR", before.c_str(), 1);
  EXPECT_THAT(folder.getError(), HasSubstr("temporary folder"));
  EXPECT_THAT(folder.getError(), HasSubstr("irectory"));
}
