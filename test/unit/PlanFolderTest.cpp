//===- PlanFolderTest.cpp - plans are written whole or not at all ---------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/emit/PlanWriter.h"

#include "support/TemporaryFolder.h"
#include "gmock/gmock.h"

#include <csignal>
#include <fstream>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace gridloom;
namespace fs = std::filesystem;

namespace {

class PlanFolderTest : public testing::Test {
protected:
  static PlanFiles makeFiles(int count, const std::string &contents) {
    PlanFiles files;
    for (int i = 0; i < count; ++i)
      files["kernels/" + std::to_string(i)] = contents;
    files["manifest.json"] = R"({"producer": "gridloom 1", "contents": ")" + contents + "\"}";
    return files;
  }
  std::vector<std::string> list() const {
    std::vector<std::string> names;
    for (const fs::directory_entry &entry : fs::directory_iterator(folder))
      names.push_back(entry.path().filename().string());
    return names;
  }
  TemporaryFolder temporary;
  fs::path folder = temporary.getPath();
};

/// The kernel delivers a process's signal to any thread that does not block it.
TEST_F(PlanFolderTest, ASignalWaitsForTheWholePlan) {
  pid_t child = fork();
  if (child == 0) {
    std::thread([] {
      while (true)
        pause();
    }).detach();
    std::string error = writePlan(makeFiles(1000, std::string(20000, 'x')), folder / "m.plan",
                                  /*force=*/false);
    _exit(error.empty() ? 3 : 4);
  }
  while (list().empty())
    std::this_thread::yield();
  kill(child, SIGINT);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT) << status;
  EXPECT_THAT(list(), testing::ElementsAre("m.plan"));
  EXPECT_TRUE(fs::exists(folder / "m.plan/manifest.json"));
}

/// A signature is of one plan: the next has none.
TEST_F(PlanFolderTest, ASignatureGoesWithItsPlan) {
  fs::path plan = folder / "m.plan";
  ASSERT_EQ(writePlan(makeFiles(1, "0"), plan, /*force=*/false), "");
  std::ofstream(plan / "signature.json") << "{}";
  EXPECT_EQ(writePlan(makeFiles(1, "1"), plan, /*force=*/false), "");
  EXPECT_FALSE(fs::exists(plan / "signature.json"));
}

TEST_F(PlanFolderTest, ThereIsAPlanWhileItIsReplaced) {
  fs::path plan = folder / "m.plan";
  ASSERT_EQ(writePlan(makeFiles(1, "0"), plan, /*force=*/false), "");
  pid_t child = fork();
  if (child == 0) {
    for (int i = 0; i < 200; ++i)
      if (!writePlan(makeFiles(1, std::to_string(i)), plan, /*force=*/false).empty())
        _exit(1);
    _exit(0);
  }
  int status = 0, missing = 0;
  while (waitpid(child, &status, WNOHANG) == 0)
    missing += !fs::exists(plan / "manifest.json");
  EXPECT_EQ(status, 0);
  EXPECT_EQ(missing, 0);
  EXPECT_THAT(list(), testing::ElementsAre("m.plan"));
}

TEST_F(PlanFolderTest, WhatCannotBeWrittenLeavesNothing) {
  PlanFiles files = makeFiles(2, "x");
  files["manifest.json/below"] = "a file is in the way";
  EXPECT_THAT(writePlan(files, folder / "m.plan", /*force=*/false, /*durable=*/true),
              testing::HasSubstr("cannot make the folder '"));
  EXPECT_TRUE(list().empty());
  EXPECT_EQ(writePlan(makeFiles(2, "x"), (folder / "m.plan").string() + "/", /*force=*/false,
                      /*durable=*/true),
            "");
  EXPECT_THAT(list(), testing::ElementsAre("m.plan"));
}

/// Files are checked before they replace the old plan.
TEST_F(PlanFolderTest, APlanWithAFaultReplacesNothing) {
  fs::path plan = folder / "m.plan";
  ASSERT_EQ(writePlan(makeFiles(1, "old"), plan, /*force=*/false), "");
  fs::path seen;
  auto check = [&](const fs::path &fresh) -> std::string {
    seen = fresh;
    return fs::exists(fresh / "kernels/1") ? "it has two kernels" : "";
  };
  EXPECT_EQ(writePlan(makeFiles(2, "new"), plan, /*force=*/false, /*durable=*/false, check),
            "it has two kernels");
  EXPECT_EQ(list(), std::vector<std::string>{"m.plan"});
  EXPECT_FALSE(fs::exists(plan / "kernels/1"));
  EXPECT_NE(seen, plan);
  EXPECT_EQ(writePlan(makeFiles(1, "new"), plan, /*force=*/false, /*durable=*/false, check), "");
}

TEST_F(PlanFolderTest, OnlyAPlanIsReplacedUnasked) {
  auto write = [](const fs::path &path, const std::string &text) {
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
  };
  PlanFiles files = makeFiles(1, "x");
  // Other programs' folders have manifests, too.
  write(folder / "page/manifest.json", R"({"name": "page"})");
  EXPECT_THAT(writePlan(files, folder / "page", /*force=*/false),
              testing::EndsWith("page' exists and is not a plan; choose another --output, or "
                                "--force to replace it"));
  EXPECT_TRUE(fs::exists(folder / "page/manifest.json"));
  // A plan's folder may also hold other files.
  fs::path plan = folder / "m.plan";
  ASSERT_EQ(writePlan(files, plan, /*force=*/false), "");
  write(plan / "autotune/gpu.json", "");
  write(plan / "stage0.pb", "");
  EXPECT_EQ(writePlan(files, plan, /*force=*/false), "");
  write(plan / "results/y.npy", "");
  EXPECT_THAT(writePlan(files, plan, /*force=*/false),
              testing::HasSubstr("m.plan' holds 'results' beside a plan; choose another"));
  EXPECT_TRUE(fs::exists(plan / "results/y.npy"));
  EXPECT_EQ(writePlan(files, plan, /*force=*/true), "");
  EXPECT_FALSE(fs::exists(plan / "results"));
}

} // namespace
