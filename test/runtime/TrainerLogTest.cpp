//===- TrainerLogTest.cpp - the log of a training run ---------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "test/runtime/TrainingRun.h"

#include <mutex>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

using namespace gridloom;
using namespace gridloom::rt;
using namespace gridloom::test;
using testing::HasSubstr;
namespace fs = std::filesystem;

/// The sizes of files when the disk was asked to have them, by number; stands before the system's.
static std::map<ino_t, off_t> synced;
static std::mutex syncing;
extern "C" int fsync(int file) {
  struct stat status{};
  std::lock_guard lock(syncing);
  if (fstat(file, &status) == 0)
    synced[status.st_ino] = status.st_size;
  return int(syscall(SYS_fsync, file));
}

namespace {

using TrainerLog = Training;

TEST_F(TrainerLog, TheLogHasEachStepOnce) {
  writeData(evalData, 4);
  settings.evalData = evalData;
  settings.evalEvery = 3;
  settings.steps = 8;
  fs::path log = folder.getPath() / "log.csv";
  auto readLog = [&] {
    std::vector<std::string> lines;
    std::ifstream file(log);
    for (std::string line; std::getline(file, line);) {
      size_t at = 0;
      for (int comma = 0; comma < 8; ++comma)
        at = line.find(',', at) + 1;
      std::string time = line.substr(at, line.find(',', at) - at);
      lines.push_back(line.replace(at, time.size(), "T"));
    }
    return lines;
  };
  train(1, nullptr, log);
  std::vector<std::string> whole = readLog();
  ASSERT_EQ(whole.size(), 9u);
  EXPECT_EQ(whole[0], "step,epoch,first_sample,loss,count,learning_rate,gradient_norm,committed,T,"
                      "eval_loss,eval_seen");
  EXPECT_THAT(whole[1], testing::StartsWith("1,1,0,"));
  EXPECT_THAT(whole[1], testing::EndsWith(",4,0.5,0.5,1,T,,"));
  EXPECT_THAT(whole[3], testing::ContainsRegex("3,1,8,.*,T,[0-9.]+,85$"));

  // A run that went on beyond its last checkpoint, and was killed while it wrote a row.
  fs::remove(log);
  settings.checkpoints = checkpoints;
  settings.checkpointEvery = 5;
  train(1, [](int, size_t steps) { return steps == 4 ? 2 : 0; }, log);
  std::ofstream(log, std::ios::app) << "6,2,20,99,4,0.5,0.5,1,3.1,,\n7,3,2";
  EXPECT_THAT(getRefusal(), HasSubstr("continue it with --resume"));
  settings.resume = true;
  train(1, nullptr, log);
  EXPECT_EQ(readLog(), whole);

  // Evaluations follow checkpoints of the same step; a signal comes between them.
  fs::remove(log);
  settings.checkpoints = folder.getPath() / "others";
  settings.checkpointEvery = 3;
  train(1, [](int, size_t steps) { return steps == 5 ? 2 : 0; }, log);
  EXPECT_THAT(readLog().back(), testing::EndsWith(",T,,"));
  train(1, nullptr, log);
  EXPECT_EQ(readLog(), whole);
}

TEST_F(TrainerLog, TheLogOfARunWhoseCheckpointsAreNotFoundIsKept) {
  fs::path log = folder.getPath() / "log.csv";
  auto read = [](const fs::path &path) {
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  settings.steps = 3;
  settings.checkpoints = checkpoints;
  settings.resume = true;
  ASSERT_EQ(train(1, nullptr, log).error, "");
  std::string first = read(log);
  EXPECT_EQ(std::ranges::count(first, '\n'), 4);
  EXPECT_FALSE(fs::exists(log.string() + ".1"));
  settings.checkpoints = folder.getPath() / "mistyped";
  Trained run = train(1, nullptr, log);
  EXPECT_EQ(run.keptLog, log.string() + ".1");
  EXPECT_EQ(read(log.string() + ".1"), first);
  fs::remove_all(settings.checkpoints);
  train(1, nullptr, log);
  EXPECT_EQ(read(log.string() + ".1"), first);
  EXPECT_TRUE(fs::exists(log.string() + ".2"));
}

/// No row is lost whose step is in a checkpoint, also where the power fails.
TEST_F(TrainerLog, TheLogIsOnTheDiskBeforeTheCheckpoint) {
  fs::path log = folder.getPath() / "log.csv";
  auto getSynced = [&] {
    struct stat status{};
    stat(log.c_str(), &status);
    std::lock_guard lock(syncing);
    return std::pair(status.st_size, synced.contains(status.st_ino) ? synced[status.st_ino] : -1);
  };
  settings.steps = 2;
  settings.checkpoints = checkpoints;
  ASSERT_EQ(train(1, nullptr, log).error, "");
  auto [size, onDisk] = getSynced();
  EXPECT_EQ(size, onDisk);
  settings.resume = true; // cuts the file
  ASSERT_EQ(train(1, nullptr, log).error, "");
  std::tie(size, onDisk) = getSynced();
  EXPECT_EQ(size, onDisk);
  settings.steps = 3;
  EXPECT_EQ(train(1, nullptr, "/dev/null").error, ""); // has nothing to sync
}

TEST_F(TrainerLog, LogsOfOthersAreLeftAlone) {
  fs::path log = folder.getPath() / "log.csv";
  settings.checkpoints = checkpoints;
  settings.steps = 1;
  TrainingSetup setup = TrainingSetup::prepare(makePlan(), settings);
  auto getError = [&](const fs::path &path) {
    try {
      TrainingLog::check(path, setup);
    } catch (const Error &error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(getError(log), "no error");
  EXPECT_THAT(getError(folder.getPath()), HasSubstr("is a folder"));
  EXPECT_THAT(getError(folder.getPath() / "none" / "log.csv"), HasSubstr("there is no folder"));
  EXPECT_THAT(
      getError(setup.plan->getFolder() / "log.csv"),
      HasSubstr("log.csv is inside the plan " + setup.plan->getFolder().string() + "; name"));
  writeFile(log, "a,b\n1,2\n");
  EXPECT_THAT(getError(log), HasSubstr("exists; remove it"));
  train();
  settings.resume = true;
  setup = TrainingSetup::prepare(makePlan(), settings);
  EXPECT_THAT(getError(log), HasSubstr("begins with other columns"));
  writeFile(log, "step,epoch,first_sample,loss,count,learning_rate,gradient_norm,committed,ms\n\n");
  EXPECT_THAT(getError(log), HasSubstr("has the row ''"));
}

} // namespace
