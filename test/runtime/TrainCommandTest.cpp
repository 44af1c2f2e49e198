//===- TrainCommandTest.cpp - gridloom train ------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The command itself, with processes and signals; TrainerTest.cpp tests the loop.
//
//===----------------------------------------------------------------------===//
#include "runtime/arrays/Npy.h"
#include "runtime/train/Checkpoint.h"
#include "test/runtime/TrainingPlan.h"

#include <csignal>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace gridloom;
using namespace gridloom::rt;
using namespace gridloom::test;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

namespace {

class TrainCommand : public testing::Test {
protected:
  TemporaryFolder folder;
  fs::path data = folder.getPath() / "data", checkpoints = folder.getPath() / "checkpoints",
           log = folder.getPath() / "log.csv";

  TrainCommand() {
    fs::create_directories(data);
    for (auto [name, columns] : {std::pair("x.npy", TrainingPlan::width), {"ok.npy", int64_t(1)}}) {
      HostArray array = HostArray::allocate(DataType::F32, {64, columns});
      std::fill(array.as<float>().begin(), array.as<float>().end(), 1.f);
      writeNpy(data / name, array);
    }
  }

  fs::path makePlan(int ranks) {
    TrainingPlan plan(ranks);
    return plan.builder.write(folder.getPath() / std::to_string(ranks));
  }

  /// Starts the command in its own process group.
  pid_t start(const fs::path &plan, std::vector<std::string> options) const {
    std::vector<std::string> words = {GRIDLOOM_COMMAND, "train", plan.string(), "--data",
                                      data.string()};
    words.insert(words.end(), options.begin(), options.end());
    std::vector<char *> argv;
    for (std::string &word : words)
      argv.push_back(word.data());
    argv.push_back(nullptr);
    std::string out = folder.getPath() / "out", err = folder.getPath() / "err";
    pid_t child = fork();
    if (child == 0) {
      setpgid(0, 0);
      for (int each : {SIGINT, SIGTERM, SIGHUP}) // a shell ignores some of them in background jobs
        signal(each, SIG_DFL);
      dup2(open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDOUT_FILENO);
      dup2(open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
      execv(argv[0], argv.data());
      _exit(99);
    }
    setpgid(child, child);
    return child;
  }

  static int wait(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  }
  int run(const fs::path &plan, const std::vector<std::string> &options) const {
    return wait(start(plan, options));
  }

  std::string read(const char *name) const {
    std::ifstream file(folder.getPath() / name);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  /// Waits until the log has some steps.
  void awaitSteps() const {
    for (int i = 0; i < 3000; ++i) {
      std::error_code error;
      if (fs::file_size(log, error) > 500 && !error)
        return;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    FAIL() << "no steps within 30 s: " << read("out") << read("err");
  }

  /// The first_sample of each row of the log.
  std::vector<int64_t> readCursors() const {
    std::ifstream file(log);
    std::vector<int64_t> cursors;
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
      size_t at = line.find(',', line.find(',') + 1) + 1;
      cursors.push_back(std::stoll(line.substr(at)));
    }
    return cursors;
  }
};

TEST_F(TrainCommand, TrainsAndSays) {
  int code = run(makePlan(2), {"--epochs", "2", "--checkpoint-dir", checkpoints, "--log", log,
                               "--eval-data", data, "--lr", "0.25"});
  EXPECT_EQ(code, 0) << read("err");
  std::string out = read("out");
  EXPECT_THAT(out, AllOf(HasSubstr("step 1/32  loss 4  lr 0.25  "), HasSubstr("step 32/32  loss 4"),
                         HasSubstr("step 16  evaluation: loss 16  seen 4  (best)"),
                         testing::ContainsRegex("\n32 steps, 128 samples in [0-9.]+ s \\| median "),
                         HasSubstr("| loss 4 | evaluation loss 32 | checkpoint ")));
  EXPECT_LT(std::count(out.begin(), out.end(), '\n'), 25);
  EXPECT_EQ(read("err"), "");
  EXPECT_EQ(Checkpoint::read(findCheckpoint(checkpoints)).progress.step, 32);
  EXPECT_EQ(readCursors().size(), 32u);
}

struct Interrupted {
  int ranks;
  bool isInProcess, isGroup; // isGroup: signal the whole group, like a terminal
  int signal;
};

class TrainSignals : public TrainCommand, public testing::WithParamInterface<Interrupted> {};

TEST_P(TrainSignals, SaveAndCanBeContinued) {
  auto [ranks, isInProcess, isGroup, signal] = GetParam();
  fs::path plan = makePlan(ranks);
  std::vector<std::string> options = {"--steps", "1000000000", "--checkpoint-dir", checkpoints,
                                      "--log",   log,          "--log-every",      "1000000"};
  if (isInProcess)
    options.push_back("--in-process");
  pid_t child = start(plan, options);
  awaitSteps();
  kill(isGroup ? -child : child, signal);
  EXPECT_EQ(wait(child), 128 + signal) << read("err");
  EXPECT_THAT(read("err"), testing::Not(HasSubstr("error")));
  EXPECT_THAT(read("out"), HasSubstr("interrupted by signal " + std::to_string(signal)));
  Checkpoint saved = Checkpoint::read(findCheckpoint(checkpoints));
  EXPECT_GT(saved.progress.step, 0);

  int64_t steps = saved.progress.step + 5;
  EXPECT_EQ(run(plan, {"--steps", std::to_string(steps), "--checkpoint-dir", checkpoints, "--log",
                       log, "--resume"}),
            0)
      << read("err");
  EXPECT_THAT(read("out"), HasSubstr("continues " + checkpoints.string()));
  std::vector<int64_t> cursors = readCursors(), expected;
  for (int64_t step = 0; step < steps; ++step)
    expected.push_back(step * TrainingPlan::batch);
  EXPECT_EQ(cursors, expected); // each sample is read once
}
INSTANTIATE_TEST_SUITE_P(
    All, TrainSignals,
    testing::Values(Interrupted{1, false, false, SIGINT}, Interrupted{1, false, true, SIGTERM},
                    Interrupted{2, false, false, SIGINT}, Interrupted{2, false, false, SIGTERM},
                    Interrupted{4, false, true, SIGINT}, Interrupted{2, true, true, SIGINT}));

TEST_F(TrainCommand, ASecondRunLeavesTheFirstOnesFilesAlone) {
  fs::path plan = makePlan(1);
  std::vector<std::string> options = {"--steps",   "1000000000", "--log",  log, "--checkpoint-dir",
                                      checkpoints, "--resume",   "--keep", "1"};
  pid_t child = start(plan, options);
  awaitSteps();
  EXPECT_EQ(run(plan, options), 1);
  EXPECT_THAT(read("err"), AllOf(HasSubstr("--checkpoint-dir " + checkpoints.string()),
                                 HasSubstr("is another run's that has not ended")));
  kill(child, SIGINT);
  EXPECT_EQ(wait(child), 130);
  int64_t steps = Checkpoint::read(findCheckpoint(checkpoints)).progress.step;
  EXPECT_EQ(int64_t(readCursors().size()), steps); // the log is complete and only the first run's
}

TEST_F(TrainCommand, ASecondSignalEndsAtOnce) {
  pid_t child = start(makePlan(2), {"--steps", "1000000000", "--log", log});
  awaitSteps();
  kill(-child, SIGSTOP); // so that no rank ends between the two signals
  kill(child, SIGINT);
  kill(child, SIGTERM);
  kill(-child, SIGCONT);
  EXPECT_EQ(wait(child) & ~1, 130 & ~1) << read("err"); // 130, or 143 if SIGTERM arrived first
}

/// Killed repeatedly, mostly while it saves: each restart continues, and each sample is read once.
TEST_F(TrainCommand, TheLastCheckpointOfAKilledRunLoads) {
  fs::path plan = makePlan(2);
  std::vector<std::string> options = {
      "--log", log,        "--checkpoint-dir", checkpoints, "--checkpoint-every",
      "1",     "--resume", "--steps"};
  int64_t last = 0;
  int startMs = 50;
  for (int time = 0; time < 20; ++time) {
    std::vector<std::string> endless = options;
    endless.push_back("1000000000");
    pid_t child = start(plan, endless);
    std::this_thread::sleep_for(std::chrono::milliseconds(startMs + 17 * time % 61));
    kill(child, SIGKILL); // its ranks are killed with it
    EXPECT_EQ(wait(child), -SIGKILL) << read("err");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    if (listCheckpoints(checkpoints).empty()) {
      startMs = std::min(2 * startMs, 2000); // no checkpoint yet
      continue;
    }
    int64_t step = Checkpoint::read(findCheckpoint(checkpoints)).progress.step;
    EXPECT_GE(step, last);
    last = step;
  }
  EXPECT_GT(last, 0);
  options.push_back(std::to_string(last + 5));
  EXPECT_EQ(run(plan, options), 0) << read("err");
  std::vector<int64_t> expected;
  for (int64_t step = 0; step < last + 5; ++step)
    expected.push_back(step * TrainingPlan::batch);
  EXPECT_EQ(readCursors(), expected);
  EXPECT_EQ(listCheckpoints(checkpoints).back(), last + 5);
  for (const fs::directory_entry &entry : fs::directory_iterator(checkpoints))
    if (entry.path().filename() != ".lock")
      EXPECT_EQ(entry.path().filename().string().size(), strlen("step-0000000000"));
}

TEST_F(TrainCommand, OneStepIsNoSteps) {
  HostArray ok = HostArray::allocate(DataType::F32, {64, 1});
  std::fill(ok.as<float>().begin(), ok.as<float>().end(), 1.f);
  ok.as<float>()[7] = 1 - TrainingPlan::batch; // the mean is 0: its batch's step is not taken
  writeNpy(data / "ok.npy", ok);
  EXPECT_EQ(run(makePlan(1), {"--epochs", "1", "--on-nan", "skip"}), 0);
  EXPECT_THAT(read("out"),
              AllOf(HasSubstr("16 steps, 64 samples in"), HasSubstr("| 1 step not taken |")));
  EXPECT_EQ(run(makePlan(1), {"--steps", "1"}), 0);
  EXPECT_THAT(read("out"), HasSubstr("\n1 step, 4 samples in"));
}

TEST_F(TrainCommand, HelpSaysWhatCompiles) {
  EXPECT_EQ(run(folder.getPath(), {"--help"}), 0);
  std::string out = read("out");
  EXPECT_THAT(out, HasSubstr("a checkpoint's folder"));
  EXPECT_THAT(out, HasSubstr("--metric 'accuracy(logits, labels)'")); // test_train.py uses it, too
}

TEST_F(TrainCommand, WrongUseIsOneLine) {
  fs::path plan = makePlan(1);
  auto getError = [&](const std::vector<std::string> &options, int code) {
    EXPECT_EQ(run(plan, options), code);
    std::string error = read("err");
    EXPECT_EQ(std::count(error.begin(), error.end(), '\n'), 1) << error;
    return error;
  };
  EXPECT_THAT(getError({"--steps", "1", "--epochs", "1"}, 2), HasSubstr("--epochs"));
  EXPECT_THAT(getError({"--steps", "0"}, 2),
              HasSubstr("--steps: Value 0 is not a whole number from 1; see"));
  EXPECT_THAT(getError({"--checkpoint-dir", checkpoints, "--keep", "0"}, 2),
              HasSubstr("--keep: Value 0 is not a whole number from 1; see"));
  for (const char *seed : {"--seed", "--init-seed"})
    EXPECT_THAT(getError({std::string(seed) + "=-1"}, 2),
                HasSubstr(std::string(seed) + ": Value -1 is not a whole number from 0; see"));
  EXPECT_THAT(getError({"--lr", "nan"}, 2), HasSubstr("--lr"));
  EXPECT_THAT(getError({"--patience", "3"}, 2), HasSubstr("--eval-data"));
  EXPECT_THAT(getError({"--entry", "main"}, 2), HasSubstr("--entry"));
  EXPECT_THAT(getError({"--resume"}, 1), HasSubstr("--resume: name a checkpoint"));
  EXPECT_THAT(getError({"--lr-schedule", "magic"}, 1), HasSubstr("schedule 'magic' is unknown"));
  writeFile(folder.getPath() / "file", "");
  EXPECT_THAT(getError({"--checkpoint-dir", folder.getPath() / "file"}, 1),
              HasSubstr("--checkpoint-dir "));
  EXPECT_THAT(getError({"--log", "/dev/full", "--checkpoint-dir", checkpoints}, 1),
              HasSubstr("--log /dev/full cannot be written: No space left on device"));
  fs::remove(data / "ok.npy");
  EXPECT_THAT(getError({}, 1), HasSubstr("there is no ok.npy, which the plan takes as f32"));
}

} // namespace
