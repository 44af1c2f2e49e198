//===- LaunchTest.cpp - starting, finding and stopping ranks --------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// mpirun, torchrun and srun are not started here: their variables are set by hand.
//
//===----------------------------------------------------------------------===//
#include "TransportHarness.h"

#include "runtime/launch/Launcher.h"

#include <gmock/gmock.h>

#include <fcntl.h>
#include <map>
#include <sys/mman.h>

using namespace gridloom::rt;
using namespace gridloom::rt::test;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

namespace {

using Variables = std::map<std::string, std::string>;

std::optional<World> detect(const Variables &variables) {
  return detectWorld([&](const std::string &name) -> std::optional<std::string> {
    auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

std::string detectError(const Variables &variables) {
  try {
    detect(variables);
  } catch (const Error &error) {
    EXPECT_EQ(error.getCode(), ErrorCode::InvalidArgument);
    return error.what();
  }
  return "no error";
}

TEST(DetectWorld, MastersPortIsTorchrunsOrTheNext) {
  Variables variables{{"RANK", "2"},           {"WORLD_SIZE", "4"},
                      {"LOCAL_RANK", "0"},     {"LOCAL_WORLD_SIZE", "2"},
                      {"MASTER_ADDR", "host"}, {"MASTER_PORT", "29500"}};
  EXPECT_EQ(detect(variables)->master, "host:29500");
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "True"; // torchrun listens there itself
  EXPECT_EQ(detect(variables)->master, "host:29501");
  variables.erase("MASTER_PORT");
  EXPECT_EQ(detect(variables)->master, "");
}

const Variables torchrunOf4{{"RANK", "2"},           {"WORLD_SIZE", "4"},
                            {"LOCAL_RANK", "2"},     {"LOCAL_WORLD_SIZE", "4"},
                            {"MASTER_ADDR", "host"}, {"MASTER_PORT", "29500"}};
const Variables mpirunOf4{{"OMPI_COMM_WORLD_RANK", "3"},
                          {"OMPI_COMM_WORLD_SIZE", "4"},
                          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                          {"PMIX_NAMESPACE", "prterun-1"}};
const Variables srunOf6{{"SLURM_PROCID", "5"},  {"SLURM_NTASKS", "6"},
                        {"SLURM_LOCALID", "1"}, {"SLURM_STEP_TASKS_PER_NODE", "2(x3)"},
                        {"SLURM_JOB_ID", "77"}, {"SLURM_STEP_ID", "0"}};

Variables operator+(Variables first, const Variables &second) {
  for (const auto &[name, value] : second)
    first[name] = value;
  return first;
}

void addUp(Transport &transport, int times) {
  std::vector<int> ranks;
  for (int rank = 0; rank < transport.getSize(); ++rank)
    ranks.push_back(rank);
  auto world = transport.createCommunicator(ranks, "world");
  InlineStream stream;
  for (int i = 1; i <= times; ++i) {
    int64_t value = transport.getRank();
    world->allReduce(stream, &value, &value, 1, DataType::I64, Reduction::Sum,
                     {"all_reduce", uint32_t(i), "/encoder/0/MatMul"});
    stream.synchronize();
    int n = transport.getSize();
    if (value != n * (n - 1) / 2)
      throw Error(ErrorCode::Internal, "wrong sum");
  }
}

/// The error of a launch, "" when it succeeded, and that no child is left.
std::string launchError(int ranks, const RankMain &main, LaunchOptions options = {}) {
  std::string text;
  try {
    EXPECT_EQ(launchRanks(ranks, options, main), 0);
  } catch (const Error &error) {
    text = error.what();
  }
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a rank outlives its launcher";
  EXPECT_EQ(errno, ECHILD);
  return text;
}

} // namespace

TEST(World, NothingSet) { EXPECT_FALSE(detect({{"PATH", "/bin"}})); }

TEST(World, Torchrun) {
  std::optional<World> world = detect(torchrunOf4);
  ASSERT_TRUE(world);
  EXPECT_EQ(world->rank, 2);
  EXPECT_EQ(world->size, 4);
  EXPECT_EQ(world->localRank, 2);
  EXPECT_THAT(world->source, HasSubstr("torchrun"));
  EXPECT_NE(world->job, detect(torchrunOf4 + Variables{{"MASTER_PORT", "29501"}})->job);
}

TEST(World, OpenMpi) {
  std::optional<World> world = detect(mpirunOf4);
  ASSERT_TRUE(world);
  EXPECT_EQ(world->rank, 3);
  EXPECT_EQ(world->localRank, 1);
  EXPECT_EQ(world->localSize, 2);
  EXPECT_THAT(world->source, HasSubstr("Open MPI"));
}

TEST(World, Slurm) {
  std::optional<World> world = detect(srunOf6);
  ASSERT_TRUE(world);
  EXPECT_EQ(world->rank, 5);
  EXPECT_EQ(world->size, 6);
  EXPECT_EQ(world->localSize, 2);
  EXPECT_THAT(world->source, HasSubstr("Slurm"));
}

TEST(World, BatchScriptIsNoTask) {
  Variables batch = srunOf6;
  batch.erase("SLURM_STEP_ID");
  EXPECT_FALSE(detect(batch));
}

TEST(World, TorchrunInsideOthersWins) {
  std::optional<World> world =
      detect(torchrunOf4 + mpirunOf4 + srunOf6 + Variables{{"TORCHELASTIC_RUN_ID", "x"}});
  ASSERT_TRUE(world);
  EXPECT_EQ(world->rank, 2);
}

TEST(World, AgreeingLaunchersAreFine) {
  EXPECT_EQ(detect(mpirunOf4 + Variables{{"RANK", "3"}, {"WORLD_SIZE", "4"}})->rank, 3);
}

TEST(World, ContradictionsAreRefused) {
  EXPECT_THAT(
      detectError(torchrunOf4 + mpirunOf4),
      AllOf(HasSubstr("rank 2 of 4"), HasSubstr("rank 3 of 4"), HasSubstr("OMPI_COMM_WORLD_RANK")));
  EXPECT_THAT(detectError(mpirunOf4 + srunOf6),
              AllOf(HasSubstr("rank 3 of 4"), HasSubstr("rank 5 of 6")));
  EXPECT_THAT(detectError({{"RANK", "1"}}), HasSubstr("WORLD_SIZE is not"));
  EXPECT_THAT(detectError({{"WORLD_SIZE", "2"}}), HasSubstr("RANK is not"));
  EXPECT_THAT(detectError({{"RANK", "2"}, {"WORLD_SIZE", "2"}}), HasSubstr("RANK=2 must be below"));
  EXPECT_THAT(detectError({{"RANK", "-1"}, {"WORLD_SIZE", "2"}}), HasSubstr("RANK=-1"));
  EXPECT_THAT(detectError({{"RANK", "0x"}, {"WORLD_SIZE", "2"}}), HasSubstr("RANK=0x"));
}

TEST(Launch, RanksGetTheirNamesAndMeet) {
  EXPECT_EQ(launchError(5,
                        [](const World &world, Transport &transport) {
                          std::optional<World> seen = detectWorld(getProcessEnvironment());
                          if (!seen || seen->rank != transport.getRank() || seen->size != 5 ||
                              seen->localRank != world.localRank)
                            throw Error(ErrorCode::Internal, "the environment differs");
                          addUp(transport, 20);
                        }),
            "");
}

TEST(Launch, OneErrorIsReported) {
  std::string text = launchError(4, [](const World &world, Transport &transport) {
    if (world.rank == 2)
      throw Error(ErrorCode::InvalidArgument, "input x has the wrong shape");
    addUp(transport, 5);
  });
  EXPECT_EQ(text, "input x has the wrong shape");
}

TEST(Launch, KilledRankStopsAll) {
  auto begin = std::chrono::steady_clock::now();
  std::string text = launchError(4, [](const World &world, Transport &transport) {
    if (world.rank == 1)
      raise(SIGKILL);
    addUp(transport, 5);
  });
  EXPECT_THAT(text, HasSubstr("rank 1 was killed by signal 9"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30)); // of 300
}

TEST(Launch, SilentExitIsAnError) {
  EXPECT_THAT(launchError(3,
                          [](const World &world, Transport &transport) {
                            if (world.rank == 0)
                              _exit(3);
                            addUp(transport, 5);
                          }),
              HasSubstr("rank 0 ended with code 3"));
}

TEST(Launch, RankThatDoesNotStopIsKilled) {
  LaunchOptions options;
  options.grace = std::chrono::milliseconds(200);
  auto begin = std::chrono::steady_clock::now();
  std::string text = launchError(
      3,
      [](const World &world, Transport &) {
        if (world.rank == 0)
          throw Error(ErrorCode::Internal, "trouble");
        signal(SIGTERM, SIG_IGN);
        sleep(60);
      },
      options);
  EXPECT_EQ(text, "trouble");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30)); // of 60
}

TEST(Launch, StoppedRankMeetsTheDeadline) {
  LaunchOptions options;
  options.transport.deadline = shortDeadline;
  options.grace = std::chrono::milliseconds(200);
  EXPECT_THAT(launchError(
                  3,
                  [](const World &world, Transport &transport) {
                    if (world.rank == 2)
                      raise(SIGSTOP);
                    addUp(transport, 5);
                  },
                  options),
              AllOf(HasSubstr("missing rank 2"), HasSubstr("1500 ms")));
}

/// Runs a launch of 3 sleeping ranks in a child, whose ranks write their number to a pipe when they
/// are up; the pipe ends when all of them are gone.
static void interruptLaunch(int signal, int expectedStatus) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  pid_t launcher = fork();
  if (launcher == 0) {
    close(ends[0]);
    freopen("/dev/null", "w", stderr);
    int code = launchRanks(3, {}, [&](const World &, Transport &) {
      (void)!write(ends[1], "x", 1);
      sleep(60);
    });
    _exit(code);
  }
  close(ends[1]);
  char byte;
  for (int rank = 0; rank < 3; ++rank)
    ASSERT_EQ(read(ends[0], &byte, 1), 1);
  kill(launcher, signal);
  auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(read(ends[0], &byte, 1), 0) << "until the last rank is gone";
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30)); // of 60
  close(ends[0]);
  int status = 0;
  waitpid(launcher, &status, 0);
  EXPECT_EQ(WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status), expectedStatus);
}

TEST(Launch, InterruptStopsAll) { interruptLaunch(SIGINT, 130); }
TEST(Launch, TerminationStopsAll) { interruptLaunch(SIGTERM, 143); }
TEST(Launch, KilledLauncherTakesItsRanksAlong) { interruptLaunch(SIGKILL, -9); }

/// Starts one process per world and returns what each reports: "cause: ..." or "consequence: ...".
static std::vector<std::string> runRanks(const std::vector<World> &worlds, const RankMain &main) {
  std::vector<Outcome> outcomes;
  std::vector<std::string> texts;
  std::vector<int> pipes;
  std::vector<pid_t> children;
  for (const World &world : worlds) {
    int ends[2];
    if (pipe(ends) != 0)
      throw std::runtime_error("no pipe");
    pid_t child = fork();
    if (child == 0) {
      LaunchOptions options;
      options.transport.deadline = std::chrono::seconds(20);
      bool isCause = false;
      std::string text;
      try {
        runRank(world, options, main, isCause);
      } catch (const Error &error) {
        text = (isCause ? "cause: " : "consequence: ") + std::string(error.what());
      }
      (void)!write(ends[1], text.data(), text.size());
      _exit(0);
    }
    close(ends[1]);
    pipes.push_back(ends[0]);
    children.push_back(child);
  }
  for (size_t i = 0; i < worlds.size(); ++i) {
    char buffer[4096];
    ssize_t got = read(pipes[i], buffer, sizeof buffer);
    texts.emplace_back(buffer, size_t(std::max<ssize_t>(got, 0)));
    close(pipes[i]);
    waitpid(children[i], nullptr, 0);
  }
  return texts;
}

static World makeWorld(int rank, int size) {
  return {rank, size, rank, size, "test", "launch-test-" + std::to_string(getpid())};
}

TEST(RunRank, StrangersMeet) {
  std::vector<World> worlds{makeWorld(2, 3), makeWorld(0, 3), makeWorld(1, 3)};
  auto main = [](const World &, Transport &transport) { addUp(transport, 10); };
  EXPECT_THAT(runRanks(worlds, main), testing::Each(""));
  EXPECT_THAT(runRanks(worlds, main), testing::Each("")) << "again under the same name";
}

TEST(RunRank, OneRankReportsTheCause) {
  auto main = [](const World &world, Transport &transport) {
    if (world.rank == 1)
      throw Error(ErrorCode::InvalidArgument, "own trouble");
    addUp(transport, 10);
  };
  std::vector<std::string> texts =
      runRanks({makeWorld(0, 3), makeWorld(1, 3), makeWorld(2, 3)}, main);
  EXPECT_EQ(texts[1], "cause: own trouble");
  EXPECT_THAT(texts[0], AllOf(HasSubstr("consequence: "), HasSubstr("own trouble")));
  EXPECT_THAT(texts[2], HasSubstr("consequence: "));
}

TEST(RunRank, DisagreementAboutSizeIsRefused) {
  auto main = [](const World &, Transport &) {};
  std::vector<std::string> texts = runRanks({makeWorld(0, 2), makeWorld(1, 3)}, main);
  for (const std::string &text : texts)
    EXPECT_THAT(text, HasSubstr("rank 1 believes in 3 ranks, rank 0 in 2"));
}

TEST(RunRank, SeveralMachinesNeedAMeetingPlace) {
  World world = makeWorld(0, 4);
  world.localSize = 2;
  EXPECT_THAT(runRanks({world}, [](const World &, Transport &) {})[0],
              HasSubstr("need MASTER_ADDR and MASTER_PORT"));
}
