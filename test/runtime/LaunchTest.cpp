//===- LaunchTest.cpp - starting, finding and stopping ranks --------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// mpirun, torchrun and srun are not started here: the tests set their variables.
//
//===----------------------------------------------------------------------===//
#include "SystemCalls.h"
#include "TransportHarness.h"

#include "runtime/launch/Launcher.h"
#include "runtime/launch/StopSignal.h"

#include <gmock/gmock.h>

#include <atomic>
#include <fcntl.h>
#include <map>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

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
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "True"; // torchrun itself listens on the port
  EXPECT_EQ(detect(variables)->master, "host:29501");
  variables["MASTER_PORT"] = "65535";
  EXPECT_THAT(detectError(variables), HasSubstr("MASTER_PORT=65535 is not from 1 to 65534"));
  variables.erase("MASTER_PORT");
  EXPECT_EQ(detect(variables)->master, "");
}

Variables torchrunOf4() {
  return {{"RANK", "2"},           {"WORLD_SIZE", "4"},
          {"LOCAL_RANK", "2"},     {"LOCAL_WORLD_SIZE", "4"},
          {"MASTER_ADDR", "host"}, {"MASTER_PORT", "29500"}};
}
Variables mpirunOf4() {
  return {{"OMPI_COMM_WORLD_RANK", "3"},
          {"OMPI_COMM_WORLD_SIZE", "4"},
          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
          {"PMIX_NAMESPACE", "prterun-1"}};
}
Variables srunOf6() {
  return {{"SLURM_PROCID", "5"},  {"SLURM_NTASKS", "6"},
          {"SLURM_LOCALID", "1"}, {"SLURM_STEP_TASKS_PER_NODE", "2(x3)"},
          {"SLURM_JOB_ID", "77"}, {"SLURM_STEP_ID", "0"}};
}

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

/// The error of a launch, "" if it succeeded. Also checks that no child is left.
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
  std::optional<World> world = detect(torchrunOf4());
  ASSERT_TRUE(world);
  EXPECT_EQ(world->rank, 2);
  EXPECT_EQ(world->size, 4);
  EXPECT_EQ(world->localRank, 2);
  EXPECT_THAT(world->source, HasSubstr("torchrun"));
  EXPECT_NE(world->job, detect(torchrunOf4() + Variables{{"MASTER_PORT", "29501"}})->job);
}

TEST(World, OpenMpi) {
  std::optional<World> world = detect(mpirunOf4());
  ASSERT_TRUE(world);
  EXPECT_EQ(world->rank, 3);
  EXPECT_EQ(world->localRank, 1);
  EXPECT_EQ(world->localSize, 2);
  EXPECT_THAT(world->source, HasSubstr("Open MPI"));
}

TEST(World, Slurm) {
  std::optional<World> world = detect(srunOf6());
  ASSERT_TRUE(world);
  EXPECT_EQ(world->rank, 5);
  EXPECT_EQ(world->size, 6);
  EXPECT_EQ(world->localSize, 2);
  EXPECT_THAT(world->source, HasSubstr("Slurm"));
}

/// Tasks are spread unevenly: each node has its own number.
TEST(World, SlurmNodesDiffer) {
  auto getLocalSize = [](const std::string &perNode, const char *node, const char *local = "0") {
    Variables variables = srunOf6() + Variables{{"SLURM_STEP_TASKS_PER_NODE", perNode},
                                                {"SLURM_NODEID", node},
                                                {"SLURM_LOCALID", local}};
    std::optional<World> world = detect(variables);
    return world->isPlaced ? world->localSize : -1;
  };
  EXPECT_EQ(getLocalSize("2(x2),1(x2)", "0"), 2);
  EXPECT_EQ(getLocalSize("2(x2),1(x2)", "1", "1"), 2);
  EXPECT_EQ(getLocalSize("2(x2),1(x2)", "2"), 1);
  EXPECT_EQ(getLocalSize("1,5", "1", "4"), 5);
  EXPECT_EQ(getLocalSize("6", "0", "5"), 6);
  for (const char *text : {"2(x3", "a", "2;3", "2(x0)", ""})
    EXPECT_EQ(getLocalSize(text, "4"), -1) << text;
  EXPECT_THAT(detectError(srunOf6() + Variables{{"SLURM_STEP_TASKS_PER_NODE", "2(x2),1(x2)"},
                                                {"SLURM_NODEID", "3"}}),
              HasSubstr("SLURM_LOCALID=1 must be below the node's share of "
                        "SLURM_STEP_TASKS_PER_NODE=1"));
}

TEST(World, MpichAndItsKin) {
  Variables variables{{"PMI_RANK", "3"},
                      {"PMI_SIZE", "4"},
                      {"MPI_LOCALRANKID", "1"},
                      {"MPI_LOCALNRANKS", "2"},
                      {"PMI_FD", "7"}};
  std::optional<World> world = detect(variables);
  ASSERT_TRUE(world);
  EXPECT_EQ(world->rank, 3);
  EXPECT_EQ(world->size, 4);
  EXPECT_EQ(world->localRank, 1);
  EXPECT_EQ(world->localSize, 2);
  EXPECT_TRUE(world->isPlaced);
  EXPECT_THAT(world->source, HasSubstr("MPICH"));
  variables.erase("MPI_LOCALRANKID");
  EXPECT_FALSE(detect(variables)->isPlaced);
  // Slurm's own PMI agrees with Slurm's variables.
  EXPECT_THAT(detect(srunOf6() + Variables{{"PMI_RANK", "5"}, {"PMI_SIZE", "6"}})->source,
              HasSubstr("Slurm"));
  EXPECT_THAT(detectError(srunOf6() + Variables{{"PMI_RANK", "4"}, {"PMI_SIZE", "6"}}),
              HasSubstr("unset the variables"));
  // Without the job's size each process would start a job of its own.
  EXPECT_THAT(
      detectError({{"PMIX_RANK", "1"}}),
      HasSubstr("PMIX_RANK=1 shows that a launcher started this process, but not how many"));
  EXPECT_EQ(detect(mpirunOf4() + Variables{{"PMIX_RANK", "3"}})->rank, 3);
}

TEST(World, WhoSharesAMachineMayBeUnknown) {
  EXPECT_FALSE(detect({{"RANK", "1"}, {"WORLD_SIZE", "2"}})->isPlaced);
  EXPECT_FALSE(detect({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}})->isPlaced);
  EXPECT_TRUE(detect({{"RANK", "0"}, {"WORLD_SIZE", "1"}})->isPlaced);
  EXPECT_TRUE(detect(torchrunOf4())->isPlaced);
}

TEST(World, BatchScriptIsNoTask) {
  Variables batch = srunOf6();
  batch.erase("SLURM_STEP_ID");
  EXPECT_FALSE(detect(batch));
}

TEST(World, TorchrunInsideOthersWins) {
  std::optional<World> world =
      detect(torchrunOf4() + mpirunOf4() + srunOf6() + Variables{{"TORCHELASTIC_RUN_ID", "x"}});
  ASSERT_TRUE(world);
  EXPECT_EQ(world->rank, 2);
}

TEST(World, AgreeingLaunchersAreFine) {
  EXPECT_EQ(detect(mpirunOf4() + Variables{{"RANK", "3"}, {"WORLD_SIZE", "4"}})->rank, 3);
}

TEST(World, ContradictionsAreRefused) {
  EXPECT_THAT(
      detectError(torchrunOf4() + mpirunOf4()),
      AllOf(HasSubstr("rank 2 of 4"), HasSubstr("rank 3 of 4"), HasSubstr("OMPI_COMM_WORLD_RANK")));
  EXPECT_THAT(detectError(mpirunOf4() + srunOf6()),
              AllOf(HasSubstr("rank 3 of 4"), HasSubstr("rank 5 of 6")));
  EXPECT_THAT(detectError({{"RANK", "1"}}), HasSubstr("WORLD_SIZE is not"));
  EXPECT_THAT(detectError({{"WORLD_SIZE", "2"}}), HasSubstr("RANK is not"));
  EXPECT_THAT(detectError({{"RANK", "2"}, {"WORLD_SIZE", "2"}}), HasSubstr("RANK=2 must be below"));
  EXPECT_THAT(detectError(torchrunOf4() + Variables{{"LOCAL_WORLD_SIZE", "5"}}),
              HasSubstr("LOCAL_WORLD_SIZE=5 must not be above WORLD_SIZE=4"));
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

TEST(Error, SaysWhatIsBeforeItsFirstCause) {
  Error death(ErrorCode::PeerFailed, "rank 2 was killed by signal 9 (Killed)");
  EXPECT_EQ(death.getWhere(), "");
  Error stopped("rank 1 stopped in barrier", death), again("all_reduce #3\n", stopped);
  EXPECT_EQ(stopped.getWhere(), "rank 1 stopped in barrier");
  EXPECT_EQ(again.getCode(), ErrorCode::PeerFailed);
  EXPECT_EQ(again.getWhere() + ": " + death.what(), again.what());
}

TEST(Error, NamesItsStep) {
  Error error(ErrorCode::Internal, "cannot", {1, "copy", "/Add"});
  EXPECT_STREQ(error.what(), "cannot; step copy (onnx node /Add) of rank 1");
  ASSERT_TRUE(error.getPlace());
  EXPECT_EQ(error.getPlace()->step, "copy");
  EXPECT_FALSE(Error(ErrorCode::Internal, "of rank 1").getPlace());
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
  EXPECT_EQ(text.find("was killed"),
            text.rfind("was killed")); // ranks that were stopped are not reported
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

static void handleSignals(void (*handler)(int)) {
  for (int each : {SIGINT, SIGTERM, SIGHUP}) // a shell ignores some of them in background jobs
    signal(each, handler);
}

/// Runs a launch of 3 sleeping ranks in a child process and sends it `signal`. The ranks write to a
/// pipe when they have started; it closes when all of them have ended.
static void interruptLaunch(int signal, int expectedStatus) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  pid_t launcher = fork();
  if (launcher == 0) {
    close(ends[0]);
    handleSignals(SIG_DFL);
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

/// What comes from a pipe until its writers have closed it; closes it.
static std::string readAll(int fd) {
  std::string text;
  for (char byte; read(fd, &byte, 1) == 1;)
    text += byte;
  close(fd);
  return text;
}

/// The exit code and output of a launch of 3 ranks that handle signals: they write to a pipe when
/// they have started, wait for the signal, and call `end`.
static std::pair<int, std::string> interruptPatiently(int signal,
                                                      const std::function<void(int rank)> &end) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  pid_t launcher = fork();
  if (launcher == 0) {
    close(ends[0]);
    handleSignals(SIG_DFL);
    freopen("/dev/null", "w", stderr);
    StopSignal stop;
    LaunchOptions options;
    options.ranksHandleSignals = true;
    int code = 0;
    try {
      code = launchRanks(3, options, [&](const World &world, Transport &) {
        (void)!write(ends[1], "x", 1);
        while (StopSignal::get() == 0)
          usleep(1000);
        end(world.rank);
        (void)!write(ends[1], "e", 1);
      });
    } catch (const Error &error) {
      (void)!write(ends[1], error.what(), strlen(error.what()));
      code = 1;
    }
    _exit(code);
  }
  close(ends[1]);
  char byte;
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_EQ(read(ends[0], &byte, 1), 1);
  kill(launcher, signal);
  std::string text = readAll(ends[0]);
  int status = 0;
  waitpid(launcher, &status, 0);
  return {WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status), text};
}

TEST(Launch, RanksThatHandleSignalsEndByThemselves) {
  auto linger = [](int) { usleep(3000000); }; // longer than a stopped rank would be given
  EXPECT_EQ(interruptPatiently(SIGINT, linger), std::pair(130, std::string("eee")));
  EXPECT_EQ(interruptPatiently(SIGTERM, [](int) {}), std::pair(143, std::string("eee")));
}

/// As under nohup, also where ranks handle signals.
TEST(Launch, IgnoredSignalsEndNothing) {
  for (bool ranksHandleSignals : {false, true}) {
    int ends[2], go[2];
    ASSERT_EQ(pipe(ends), 0);
    ASSERT_EQ(pipe(go), 0);
    pid_t launcher = fork();
    if (launcher == 0) {
      close(ends[0]);
      close(go[1]);
      handleSignals(SIG_IGN);
      freopen("/dev/null", "w", stderr);
      StopSignal stop;
      LaunchOptions options;
      options.ranksHandleSignals = ranksHandleSignals;
      _exit(launchRanks(3, options, [&](const World &, Transport &) {
        char byte;
        (void)!write(ends[1], "x", 1);
        (void)!read(go[0], &byte, 1);
        (void)!write(ends[1], StopSignal::get() == 0 ? "e" : "s", 1);
      }));
    }
    close(ends[1]);
    close(go[0]);
    char byte;
    for (int rank = 0; rank < 3; ++rank)
      ASSERT_EQ(read(ends[0], &byte, 1), 1);
    for (int each : {SIGHUP, SIGINT, SIGTERM})
      kill(launcher, each);
    usleep(100000); // for the launcher to read them, if it did
    EXPECT_EQ(write(go[1], "ggg", 3), 3);
    std::string text = readAll(ends[0]);
    close(go[1]);
    int status = 0;
    waitpid(launcher, &status, 0);
    EXPECT_EQ(status, 0) << ranksHandleSignals;
    EXPECT_EQ(text, "eee") << ranksHandleSignals;
  }
}

TEST(Launch, WhatFailsAfterASignalIsReported) {
  auto fail = [](int rank) {
    if (rank == 1)
      throw Error(ErrorCode::InvalidArgument, "the disk is full");
  };
  auto [code, text] = interruptPatiently(SIGINT, fail);
  EXPECT_EQ(code, 1);
  EXPECT_THAT(text, HasSubstr("the disk is full"));
}

/// Starts one process per world and returns each one's error: "cause: ..." or "consequence: ...".
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

/// A stranger at the meeting place that sends a byte now and then holds nobody up for long.
TEST(RunRank, ASlowStrangerIsNotWaitedFor) {
  std::string job = makeWorld(0, 2).job;
  uint64_t hash = 0xcbf29ce484222325;
  for (unsigned char c : job)
    hash = (hash ^ c) * 0x100000001b3;
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  int written = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "gridloom-%u-%016llx",
                         getuid(), static_cast<unsigned long long>(hash));
  auto length = socklen_t(offsetof(sockaddr_un, sun_path) + 1 + size_t(written));
  std::atomic<bool> isOver = false, isMet = false;
  std::thread stranger([&] {
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    while (!isOver && connect(fd, reinterpret_cast<sockaddr *>(&name), length) != 0)
      usleep(1000);
    isMet = !isOver;
    while (!isOver && ::send(fd, "x", 1, MSG_NOSIGNAL) == 1)
      usleep(400000); // a greeting would take 10 s
    close(fd);
  });
  auto begin = std::chrono::steady_clock::now();
  try {
    joinLocalTransport(job, 0, 2, {.deadline = std::chrono::milliseconds(1000)});
    ADD_FAILURE() << "rank 1 has not come";
  } catch (const Error &error) {
    EXPECT_THAT(error.what(), HasSubstr("is not complete after 1000 ms; missing rank 1"));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  isOver = true;
  stranger.join();
  EXPECT_TRUE(isMet) << "the ranks meet under another name";
}

/// Signals that the program handles do not interrupt ranks that wait for others to join.
TEST(RunRank, SignalsDoNotDisturbTheMeeting) {
  std::vector<World> worlds{makeWorld(0, 2), makeWorld(1, 2)};
  JobOptions options;
  std::vector<Outcome> outcomes = runForked(
      2, options, [](Transport &transport) { addUp(transport, 5); },
      [&](int rank) {
        struct sigaction action = {};
        action.sa_handler = [](int) {}; // without SA_RESTART
        sigaction(SIGUSR1, &action, nullptr);
        std::thread([thread = pthread_self()] {
          while (true) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            pthread_kill(thread, SIGUSR1);
          }
        }).detach();
        if (rank == 1)
          std::this_thread::sleep_for(std::chrono::milliseconds(500));
        return joinJob(worlds[size_t(rank)], options.transport);
      });
  EXPECT_THAT(outcomes, testing::Each(Outcome{}));
}

TEST(RunRank, ADeathIsSeenWithoutDescriptors) {
  std::shared_ptr<Segment> segment = Segment::create(2);
  JobOptions options;
  options.transport.deadline = std::chrono::seconds(30);
  auto begin = std::chrono::steady_clock::now();
  std::vector<Outcome> outcomes = runForked(
      2, options,
      [](Transport &transport) {
        addUp(transport, 1);
        if (transport.getRank() == 1)
          raise(SIGKILL);
        addUp(transport, 1);
      },
      [&](int rank) {
        if (!gridloom::test::forbidSystemCall(SYS_pidfd_open, EPERM))
          throw std::runtime_error("no filter of system calls");
        return createLocalTransport(segment, rank, options.transport);
      });
  EXPECT_THAT(outcomes[0].text, HasSubstr("rank 1 died"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
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

/// As Kubeflow starts them: the ranks exchange the machines that they run on.
TEST(RunRank, RanksFindOutWhoSharesAMachine) {
  std::vector<World> worlds{makeWorld(0, 3), makeWorld(1, 3), makeWorld(2, 3)};
  for (World &world : worlds) {
    world.isPlaced = false;
    world.localRank = world.localSize = -1;
  }
  auto main = [](const World &world, Transport &transport) {
    if (world.localRank != world.rank || world.localSize != 3 || transport.getName() != "local")
      throw Error(ErrorCode::Internal, "local rank " + std::to_string(world.localRank) + " of " +
                                           std::to_string(world.localSize) + " on " +
                                           transport.getName());
    addUp(transport, 3);
  };
  for (const std::string &text : runRanks(worlds, main))
    EXPECT_THAT(text, HasSubstr("set LOCAL_RANK and LOCAL_WORLD_SIZE, or MASTER_ADDR"));
  for (World &world : worlds)
    world.master = "127.0.0.1:" + std::to_string(20000 + getpid() % 30000);
  EXPECT_THAT(runRanks(worlds, main), testing::Each(""));
}

TEST(RunRank, ARankThatCannotTakePartSaysSo) {
  pid_t child = fork();
  if (child == 0) {
    World world = makeWorld(1, 2);
    world.job = "launch-test-" + std::to_string(getppid());
    abortJob(world, "there is no plan here");
    _exit(0);
  }
  auto begin = std::chrono::steady_clock::now();
  auto says = [](const World &, Transport &transport) {
    while (true) {
      transport.check();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  };
  EXPECT_THAT(runRanks({makeWorld(0, 2)}, says)[0],
              HasSubstr("rank 1 gave up: there is no plan here"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  waitpid(child, nullptr, 0);
}

TEST(RunRank, SeveralMachinesNeedAMeetingPlace) {
  World world = makeWorld(0, 4);
  world.localSize = 2;
  EXPECT_THAT(runRanks({world}, [](const World &, Transport &) {})[0],
              HasSubstr("need MASTER_ADDR and MASTER_PORT"));
}
