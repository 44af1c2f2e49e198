//===- CliTest.cpp - the gridloom command from outside --------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Runs the program and checks what users see: exit codes, one-line errors, files.
//
//===----------------------------------------------------------------------===//
#include "runtime/arrays/Npy.h"
#include "test/runtime/PlanBuilder.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace gridloom;
using namespace gridloom::rt;
using namespace gridloom::test;
using testing::AllOf;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;
namespace fs = std::filesystem;

namespace {

struct Result {
  int code = -1; // -N: signal N
  std::string out, err;
};

using Variables = std::map<std::string, std::string>;

/// A running program, with its output in files.
class Process {
public:
  Process(const fs::path &folder, const std::vector<std::string> &arguments,
          const Variables &variables = {})
      : out(folder / "stdout"), err(folder / "stderr") {
    static int number = 0;
    out += std::to_string(++number);
    err += std::to_string(number);
    pid = fork();
    if (pid != 0)
      return;
    auto redirect = [](const fs::path &path, int to) {
      dup2(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), to);
    };
    redirect(out, 1);
    redirect(err, 2);
    for (int each : {SIGINT, SIGTERM, SIGHUP}) // a shell ignores some of them in background jobs
      signal(each, SIG_DFL);
    for (const char *name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "OMPI_COMM_WORLD_RANK",
                             "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_ID", "TORCHELASTIC_RUN_ID"})
      unsetenv(name);
    for (const auto &[name, value] : variables)
      setenv(name.c_str(), value.c_str(), 1);
    std::vector<char *> argv{const_cast<char *>("gridloom")};
    for (const std::string &argument : arguments)
      argv.push_back(const_cast<char *>(argument.c_str()));
    argv.push_back(nullptr);
    execv(GRIDLOOM_BINARY, argv.data());
    _exit(127);
  }

  Result wait() {
    int status = 0;
    waitpid(pid, &status, 0);
    return {WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status), read(out), read(err)};
  }
  /// Everything written to stderr so far.
  std::string readError() const { return read(err); }
  /// The ranks that it forked.
  std::vector<pid_t> getChildren() const {
    std::ifstream file("/proc/" + std::to_string(pid) + "/task/" + std::to_string(pid) +
                       "/children");
    return {std::istream_iterator<pid_t>(file), {}};
  }

  /// Returns the two ranks once both are running the plan: they wait for each other thousands of
  /// times there, and rarely before. After a minute, returns the ranks that exist.
  std::vector<pid_t> awaitRuns() const {
    std::vector<pid_t> ranks;
    for (int i = 0; i < 6000; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      ranks = getChildren();
      if (ranks.size() == 2 && std::min(countWaits(ranks[0]), countWaits(ranks[1])) > 1000)
        break;
    }
    return ranks;
  }

  pid_t pid;

private:
  /// How often a process has slept while waiting.
  static long countWaits(pid_t process) {
    std::ifstream file("/proc/" + std::to_string(process) + "/status");
    for (std::string line; std::getline(file, line);)
      if (line.starts_with("voluntary_ctxt_switches:"))
        return std::strtol(line.c_str() + line.find(':') + 1, nullptr, 10);
    return 0;
  }
  static std::string read(const fs::path &path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  fs::path out, err;
};

/// y[4, 6] = x[4, 4] * w[4, 6]: each of `parts` ranks computes a part of the sum; they all-reduce.
PlanBuilder makeSumPlan(int parts, float first = 1) {
  PlanBuilder plan;
  plan.addAxis("model", parts);
  std::vector<float> w;
  for (int i = 0; i < 24; ++i)
    w.push_back(first + float(i));
  plan.addWeight("w", {4, 6}, w);
  plan.addEntry({PlanBuilder::argument("x", {4, 4})}, {PlanBuilder::argument("out/y", {4, 6})},
                {{"batch", 4}});
  int64_t k = 4 / parts;
  schema::Stage &stage = plan.stages[0];
  stage.add_origins("/layer/MatMul");
  schema::Weight *weight = stage.add_weights();
  weight->set_name("w");
  weight->set_type(schema::F32);
  weight->add_shape(k);
  weight->add_shape(6);
  weight->set_bytes(uint64_t(k * 6 * 4));
  PlanBuilder::fillSharding(*weight->mutable_sharding(), {{"model"}, {}});
  schema::Specialisation &program = plan.program();
  program.set_registered_bytes(256);
  program.set_num_events(1);
  PlanBuilder::fillBinding(*program.add_inputs(), "x", {4, k}, {{}, {"model"}});
  PlanBuilder::fillBinding(*program.add_outputs(), "out/y", {4, 6}, {{}, {}});
  uint32_t x = PlanBuilder::addBuffer(program, schema::INPUT, {4, k});
  uint32_t wBuffer = PlanBuilder::addBuffer(program, schema::WEIGHT, {k, 6});
  uint32_t part = PlanBuilder::addBuffer(program, schema::REGISTERED, {4, 6}, 0, 64);
  uint32_t y = PlanBuilder::addBuffer(program, schema::OUTPUT, {4, 6});
  schema::Block &block = PlanBuilder::addBlock(program);
  PlanBuilder::addMatmul(block, x, wBuffer, part, 4, 6, k);
  PlanBuilder::addRecord(block, 0, 0);
  PlanBuilder::addWait(block, 0, 1);
  PlanBuilder::addGroup(block, schema::Group::ALL_REDUCE, {"model"}, {part}, {y}).set_sequence(1);
  return plan;
}

class Cli : public testing::Test {
protected:
  TemporaryFolder folder;
  std::string plan = makeSumPlan(2).write(folder.getPath() / "two").string();

  Result run(const std::vector<std::string> &arguments, const Variables &variables = {}) {
    return Process(folder.getPath(), arguments, variables).wait();
  }
  /// Expects an exit code and one line on stderr that matches `words`.
  void expectError(const std::vector<std::string> &arguments, int code,
                   const testing::Matcher<std::string> &words, const Variables &variables = {}) {
    Result result = run(arguments, variables);
    EXPECT_EQ(result.code, code) << result.err;
    EXPECT_THAT(result.err, words);
    EXPECT_THAT(result.err, MatchesRegex("error: [^\n]*[^.\n]\n"));
    EXPECT_EQ(result.out, "");
  }
  std::string writeX(const std::string &name = "x.npy") {
    HostArray x = HostArray::allocate(DataType::F32, {4, 4});
    for (int i = 0; i < 16; ++i)
      x.as<float>()[size_t(i)] = float(i);
    writeNpy(folder.getPath() / name, x);
    return (folder.getPath() / name).string();
  }
  static std::vector<float> expectY(float first = 1) {
    std::vector<float> y(24, 0);
    for (int m = 0; m < 4; ++m)
      for (int n = 0; n < 6; ++n)
        for (int k = 0; k < 4; ++k)
          y[size_t(m * 6 + n)] += float(m * 4 + k) * (first + float(k * 6 + n));
    return y;
  }
  std::vector<float> readY(const std::string &path) {
    HostArray y = readNpy(fs::path(path) / "out_y.npy");
    return {y.as<float>().begin(), y.as<float>().end()};
  }
};

TEST_F(Cli, HelpTeaches) {
  Result result = run({"--help"});
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.out, AllOf(HasSubstr("gridloom compile model.onnx"), HasSubstr("explain")));
  for (const char *verb : {"run", "bench", "inspect", "diff", "explain", "sign"}) {
    result = run({verb, "--help"});
    EXPECT_EQ(result.code, 0);
    EXPECT_THAT(result.out, HasSubstr("Examples:")) << verb;
  }
  EXPECT_THAT(run({"--version"}).out, HasSubstr("gridloom 0."));
}

TEST_F(Cli, UsageErrorsExitWith2) {
  expectError({}, 2, HasSubstr("no verb"));
  expectError({"fly"}, 2, HasSubstr("there is no verb 'fly'"));
  expectError({"run"}, 2, HasSubstr("plan"));
  expectError({"run", plan, "--fast"}, 2, AllOf(HasSubstr("--fast"), HasSubstr("run --help")));
  expectError({"run", plan, "--force"}, 2, HasSubstr("--output"));
  expectError({"run", plan, "-n", "0"}, 2, HasSubstr("--ranks"));
  expectError({"run", plan, "--repeat", "many"}, 2, HasSubstr("--repeat"));
  expectError({"run", plan, "--transport", "pigeon"}, 2, HasSubstr("--transport"));
  expectError({"inspect", plan, "everything"}, 2, HasSubstr("everything"));
  expectError({"bench", "all_reduce", "--threads", "2"}, 2, HasSubstr("--threads"));
  expectError({"bench", "all_gather", "--op", "sum"}, 2, HasSubstr("--op"));
  expectError({"explain", plan, "--value", "x", "--collective", "1"}, 2, HasSubstr("--value"));
}

TEST_F(Cli, RunComputes) {
  std::string x = writeX(), output = (folder.getPath() / "results").string();
  for (std::vector<std::string> extra :
       std::vector<std::vector<std::string>>{{}, {"-n", "2"}, {"--in-process"}}) {
    std::vector<std::string> arguments{"run",      plan,   "--input", "x=" + x,
                                       "--output", output, "--force"};
    arguments.insert(arguments.end(), extra.begin(), extra.end());
    Result result = run(arguments);
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(result.err, "");
    EXPECT_THAT(result.out, MatchesRegex("compute [0-9.]+ ms \\| comm [0-9.]+ ms \\| "
                                         "exposed [0-9.]+ ms \\| overlap [0-9]+%\n"));
    EXPECT_THAT(readY(output), testing::ElementsAreArray(expectY()));
    fs::remove_all(output);
  }
}

TEST_F(Cli, RunOnMoreRanksAndRepeated) {
  std::string four = makeSumPlan(4).write(folder.getPath() / "four").string();
  std::string output = (folder.getPath() / "results").string();
  std::string trace = (folder.getPath() / "trace.json").string();
  Result result = run({"run", four, "--input", "x=" + writeX(), "--output", output, "--repeat", "3",
                       "--trace", trace});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("3 runs: median"));
  EXPECT_THAT(readY(output), testing::ElementsAreArray(expectY()));
  auto events = nlohmann::json::parse(std::ifstream(trace))["traceEvents"];
  std::set<int> ranks;
  for (const auto &event : events)
    ranks.insert(event["pid"].get<int>());
  EXPECT_THAT(ranks, testing::ElementsAre(0, 1, 2, 3));
}

TEST_F(Cli, RunSummarises) {
  Result result = run({"run", plan, "--input", "x=ones"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("out/y  f32 [4, 6]  min 40  max 60  mean 50  first 40 44 48"));
}

TEST_F(Cli, RandomInputsAreTheSameOnEveryMesh) {
  std::string four = makeSumPlan(4).write(folder.getPath() / "four").string();
  auto firstLine = [&](const std::string &of, const std::string &seed) {
    Result result = run({"run", of, "--input", "x=randint(0,9)", "--seed", seed});
    EXPECT_EQ(result.code, 0) << result.err;
    return result.out.substr(0, result.out.find('\n'));
  };
  EXPECT_EQ(firstLine(plan, "5"), firstLine(four, "5"));
  EXPECT_NE(firstLine(plan, "5"), firstLine(plan, "6"));
}

TEST_F(Cli, OtherWeights) {
  PlanBuilder other = makeSumPlan(2, 100);
  other.write(folder.getPath() / "other");
  // The test's model files are raw bytes; replacement files must be .onnx or .safetensors.
  std::string header = R"({"w":{"dtype":"F32","shape":[4,6],"data_offsets":[0,96]}})";
  uint64_t length = header.size();
  std::string file(reinterpret_cast<const char *>(&length), 8);
  writeFile(folder.getPath() / "w.safetensors", file + header + other.model);
  std::string output = (folder.getPath() / "results").string();
  Result result = run({"run", plan, "--input", "x=" + writeX(), "--output", output, "--weights",
                       (folder.getPath() / "w.safetensors").string()});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(readY(output), testing::ElementsAreArray(expectY(100)));
}

TEST_F(Cli, WrongInputs) {
  std::string x = writeX();
  expectError({"run", plan}, 1, AllOf(HasSubstr("missing --input x"), HasSubstr("x f32 [4, 4]")));
  expectError({"run", plan, "--input", "z=" + x}, 1,
              AllOf(HasSubstr("no input z"), HasSubstr("x f32 [4, 4]")));
  expectError({"run", plan, "--input", "x"}, 1, HasSubstr("NAME=VALUE"));
  expectError({"run", plan, "--input", "x=" + x, "--input", "x=ones"}, 1, HasSubstr("twice"));
  expectError({"run", plan, "--input", "x=gone.npy"}, 1, HasSubstr("gone.npy: there is no such"));
  expectError({"run", plan, "--input", "x=" GRIDLOOM_BINARY}, 1, HasSubstr("is not a .npy"));
  expectError({"run", plan, "--input", "x=randint(1)"}, 1, HasSubstr("randint(LOW,HIGH)"));
  expectError({"run", plan, "--input", "x=nomal(0,1)"}, 1, HasSubstr("normal(MEAN,DEVIATION)"));
  expectError({"run", plan, "--input", "x=ones", "--seed", "3"}, 1, HasSubstr("--seed"));
  HostArray wrong = HostArray::allocate(DataType::I64, {4, 5});
  writeNpy(folder.getPath() / "wrong.npy", wrong);
  expectError({"run", plan, "--input", "x=" + (folder.getPath() / "wrong.npy").string()}, 1,
              AllOf(HasSubstr("i64 [4, 5]"), HasSubstr("x f32 [4, 4]")));
  expectError({"run", plan, "--input", "x=ones", "--dim", "batch=9"}, 1,
              AllOf(HasSubstr("batch=9"), HasSubstr("batch=4")));
  expectError({"run", plan, "--input", "x=ones", "--entry", "other"}, 1, HasSubstr("main"));
}

TEST_F(Cli, WrongRanksAndTransports) {
  expectError({"run", plan, "--input", "x=ones", "-n", "3"}, 1,
              AllOf(HasSubstr("for 2 ranks (model=2)"), HasSubstr("-n says 3")));
  expectError({"run", plan, "--input", "x=ones", "--transport", "nccl"}, 1, HasSubstr("GPUs"));
  expectError({"bench", "all_reduce", "-n", "1"}, 1, HasSubstr("at least 2 ranks"));
  expectError({"bench", "all_reduce", "-b", "2K", "-e", "1K"}, 1, HasSubstr("above -e"));
  expectError({"bench"}, 1, HasSubstr("a plan or a collective"));
  expectError({"bench", "--iters", "2", "all_reduce"}, 1, HasSubstr("--iters goes behind"));
}

TEST_F(Cli, OutputsAreNotReplacedSilently) {
  std::string output = (folder.getPath() / "results").string();
  writeFile(fs::path(output) / "out_y.npy", "precious");
  expectError({"run", plan, "--input", "x=ones", "--output", output}, 1,
              AllOf(HasSubstr("out_y.npy exists"), HasSubstr("--force")));
  writeFile(folder.getPath() / "file", "");
  expectError({"run", plan, "--input", "x=ones", "--output", (folder.getPath() / "file").string()},
              1, HasSubstr("cannot be made"));
}

TEST_F(Cli, DamagedPlans) {
  expectError({"run", (folder.getPath() / "nothing.plan").string()}, 1, HasSubstr("nothing.plan"));
  PlanBuilder builder = makeSumPlan(2);
  fs::path damaged = builder.write(folder.getPath() / "damaged");
  writeFile(damaged / "stage0.pb", "x");
  expectError({"run", damaged.string(), "--input", "x=ones"}, 1, HasSubstr("stage0.pb"));
  expectError({"inspect", damaged.string()}, 1, HasSubstr("stage0.pb"));
}

TEST_F(Cli, ErrorOfOneRankIsPrintedOnce) {
  fs::remove(folder.getPath() / "two" / "model.onnx"); // found missing by every rank
  expectError({"run", plan, "--input", "x=ones"}, 1, HasSubstr("model.onnx"));
  expectError({"run", plan, "--input", "x=ones", "--in-process"}, 1, HasSubstr("model.onnx"));
}

TEST_F(Cli, KilledRankStopsTheJob) {
  Process job(folder.getPath(), {"run", plan, "--input", "x=ones", "--repeat", "1000000"});
  std::vector<pid_t> ranks = job.awaitRuns();
  ASSERT_EQ(ranks.size(), 2u);
  kill(ranks[1], SIGKILL);
  Result result = job.wait();
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, MatchesRegex("error: rank 1 was killed by signal 9[^\n]*\n"));
  EXPECT_EQ(kill(ranks[0], 0), -1) << "rank 0 outlives the job";
}

TEST_F(Cli, StoppedRankMeetsTheDeadline) {
  Process job(folder.getPath(),
              {"run", plan, "--input", "x=ones", "--repeat", "1000000", "--timeout", "1.5"});
  std::vector<pid_t> ranks = job.awaitRuns();
  ASSERT_EQ(ranks.size(), 2u);
  kill(ranks[1], SIGSTOP);
  Result result = job.wait();
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("all_reduce #1"), HasSubstr("/layer/MatMul"),
                                HasSubstr("missing rank 1"), HasSubstr("1500 ms")));
}

TEST_F(Cli, InterruptEndsTheJob) {
  Process job(folder.getPath(), {"run", plan, "--input", "x=ones", "--repeat", "1000000"});
  ASSERT_EQ(job.awaitRuns().size(), 2u);
  kill(job.pid, SIGINT);
  EXPECT_EQ(job.wait().code, 130);
}

TEST_F(Cli, AnInputThatIsRewrittenEndsTheJob) {
  std::string x = writeX();
  Process job(folder.getPath(), {"run", plan, "--input", "x=" + x, "--repeat", "1000000"});
  ASSERT_EQ(job.awaitRuns().size(), 2u);
  fs::resize_file(x, 0); // as numpy.save begins
  Result result = job.wait();
  EXPECT_EQ(result.code, 1) << result.out;
  EXPECT_THAT(result.err, MatchesRegex("error: [^\n]*x.npy: was changed while it is in use: it had "
                                       "192 bytes and has 0;[^\n]*\n"));
}

TEST_F(Cli, OtherLaunchersAreJoined) {
  std::string output = (folder.getPath() / "results").string(), x = writeX();
  auto start = [&](int rank, int size) {
    return Process(folder.getPath(),
                   {"run", plan, "--input", "x=" + x, "--output", output, "--force"},
                   {{"RANK", std::to_string(rank)},
                    {"WORLD_SIZE", std::to_string(size)},
                    {"MASTER_ADDR", "127.0.0.1"},
                    {"MASTER_PORT", std::to_string(getpid())}});
  };
  Process second = start(1, 2), first = start(0, 2);
  Result result = first.wait(), other = second.wait();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(other.code, 0) << other.err;
  EXPECT_EQ(other.out + other.err, "") << "rank 0 speaks for all";
  EXPECT_THAT(result.err, HasSubstr("2 ranks, started by torchrun (RANK, WORLD_SIZE)"));
  EXPECT_THAT(readY(output), testing::ElementsAreArray(expectY()));

  // No other rank comes; the timeout limits how long rank 0 calls them.
  expectError({"run", plan, "--input", "x=ones", "--timeout", "0.1"}, 1,
              AllOf(HasSubstr("for 2 ranks"), HasSubstr("torchrun"), HasSubstr("says 3")),
              {{"RANK", "0"}, {"WORLD_SIZE", "3"}});
  expectError({"run", plan, "--input", "x=ones", "-n", "2", "--timeout", "0.1"}, 1,
              AllOf(HasSubstr("-n says 2"), HasSubstr("says 3")),
              {{"RANK", "0"}, {"WORLD_SIZE", "3"}});
  expectError({"run", plan, "--input", "x=ones", "--in-process", "--timeout", "0.1"}, 1,
              HasSubstr("--in-process"), {{"RANK", "0"}, {"WORLD_SIZE", "2"}});
}

TEST_F(Cli, RanksHearOfOneThatFailsBeforeItJoins) {
  auto start = [&](const std::string &rank, const std::vector<std::string> &arguments) {
    return Process(folder.getPath(), arguments,
                   {{"RANK", rank},
                    {"WORLD_SIZE", "2"},
                    {"MASTER_ADDR", "127.0.0.1"},
                    {"MASTER_PORT", std::to_string(getpid())}});
  };
  for (const char *verb : {"run", "bench"}) {
    auto begin = std::chrono::steady_clock::now();
    Process waiting = start("0", {verb, plan, "--input", "x=ones"});
    Result failed = start("1", {verb, plan, "--input", "x=nothing.npy"}).wait();
    EXPECT_EQ(failed.code, 1);
    EXPECT_THAT(failed.err, HasSubstr("nothing.npy"));
    EXPECT_EQ(waiting.wait().code, 1);
    // The default deadline is five minutes.
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60)) << verb;
  }
}

TEST_F(Cli, AnErrorIsPrintedBeforeOtherRanksAreWaitedFor) {
  Variables variables{{"RANK", "0"},
                      {"WORLD_SIZE", "2"},
                      {"MASTER_ADDR", "127.0.0.1"},
                      {"MASTER_PORT", std::to_string(getpid())}};
  Process alone(folder.getPath(), {"run", plan, "--input", "x=nothing.npy"}, variables);
  for (int i = 0; i < 6000 && !alone.readError().ends_with("\n"); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(waitpid(alone.pid, nullptr, WNOHANG), 0) << "it waits for rank 1 for 10 s";
  EXPECT_THAT(alone.readError(), HasSubstr("nothing.npy"));
  kill(alone.pid, SIGKILL);
  alone.wait();

  // An error that every rank has must not wait for the others.
  auto begin = std::chrono::steady_clock::now();
  expectError({"run", plan, "--input", "x=ones", "-n", "3"}, 1, HasSubstr("-n says 3"), variables);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST_F(Cli, InspectGivesTextAndJson) {
  for (const char *view : {"summary", "collectives", "memory", "schedule", "kernels", "weights"}) {
    Result text = run({"inspect", plan, view});
    EXPECT_EQ(text.code, 0) << text.err;
    Result json = run({"inspect", plan, view, "--format", "json"});
    EXPECT_EQ(json.code, 0) << json.err;
    EXPECT_TRUE(nlohmann::json::parse(json.out).is_object()) << view;
  }
  auto collectives =
      nlohmann::json::parse(run({"inspect", plan, "collectives", "--format", "json"}).out);
  ASSERT_EQ(collectives["collectives"].size(), 1u);
  EXPECT_EQ(collectives["collectives"][0]["kind"], "all_reduce");
  EXPECT_EQ(collectives["collectives"][0]["bytes"], 96);
  EXPECT_EQ(collectives["collectives"][0]["ranks"], 2);
  EXPECT_EQ(collectives["collectives"][0]["onnx_node"], "/layer/MatMul");
  auto memory = nlohmann::json::parse(run({"inspect", plan, "memory", "--format", "json"}).out);
  EXPECT_EQ(memory["memory_of_a_rank"][0]["weights"], 48);
  EXPECT_EQ(memory["memory_of_a_rank"][0]["total"], 48 + 256 + 32 + 96);
  expectError({"inspect", plan, "summary", "--phase", "shard"}, 1, HasSubstr("--phase"));
  expectError({"inspect", plan, "ir", "--phase", "shard"}, 1, HasSubstr("no dump of phase shard"));
  fs::create_directories(fs::path(plan) / "ir" / "02-fuse.mlir");
  std::ofstream(fs::path(plan) / "ir" / "01-shard.mlir") << "";
  Result empty = run({"inspect", plan, "ir", "--phase", "shard"});
  EXPECT_EQ(empty.code, 0) << empty.err;
  expectError({"inspect", plan, "ir", "--phase", "shard", "--json"}, 1,
              HasSubstr("--phase shard prints a program as text; leave --json out"));
  expectError({"inspect", plan, "ir", "--phase", "fuse"}, 1,
              HasSubstr("02-fuse.mlir: cannot be read"));
}

TEST_F(Cli, DiffTellsWhatChanged) {
  std::string four = makeSumPlan(4).write(folder.getPath() / "four").string();
  Result equal = run({"diff", plan, plan, "--exit-code"});
  EXPECT_EQ(equal.code, 0);
  EXPECT_EQ(equal.out, "the plans are equal\n");
  Result result = run({"diff", plan, four});
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("- mesh: model=2\n+ mesh: model=4\n"),
                    HasSubstr("- weight w in stage 0: [2, 6]"),
                    HasSubstr("+ weight w in stage 0: [1, 6]"), Not(HasSubstr("input x"))));
  EXPECT_EQ(run({"diff", plan, four, "--exit-code"}).code, 1);
}

TEST_F(Cli, DiffSaysWhereThereAreNoCosts) {
  std::string four = makeSumPlan(4).write(folder.getPath() / "four").string();
  Result result = run({"diff", plan, four});
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("no costs: " + plan + " has no report.json: copy it"),
                    HasSubstr("; " + four + " has no report.json"), Not(HasSubstr("first ms"))));
  auto report = [&](const std::string &path, const std::string &text) {
    writeFile(fs::path(path) / "report.json", text);
  };
  const char *costs = R"({"estimates": [{"entry": "main", "dims": "batch=4", "step_ms": 3}],
      "costs": [{"entry": "main", "dims": "batch=4", "kind": "matmul", "times": 1, "ms": 3}]})";
  report(plan, costs);
  result = run({"diff", plan, four});
  EXPECT_THAT(result.out, AllOf(HasSubstr("no costs: " + four + " has no report.json"),
                                Not(HasSubstr("first ms")), Not(HasSubstr(plan + " has"))));
  auto json = nlohmann::json::parse(run({"diff", plan, four, "--json"}).out);
  EXPECT_THAT(json["no_costs"].get<std::string>(), HasSubstr(four + " has no report.json"));
  EXPECT_FALSE(json.contains("kinds_of_steps"));
  report(four, "{}");
  EXPECT_THAT(run({"diff", plan, four}).out, HasSubstr(four + " has a report.json without times"));
  report(four, "[");
  EXPECT_THAT(run({"diff", plan, four}).out, HasSubstr("report.json is not a JSON object"));
  std::string other = costs;
  report(four, other.replace(other.find("\"ms\": 3"), 7, "\"ms\": 5"));
  result = run({"diff", plan, four});
  EXPECT_THAT(result.out, AllOf(HasSubstr("+2.0000"), Not(HasSubstr("no costs"))));
}

TEST_F(Cli, ExplainReadsTheReport) {
  expectError({"explain", plan}, 1,
              HasSubstr(plan + " has no report.json: copy it from the folder that 'gridloom"));
  expectError({"explain", plan + "/none"}, 1, HasSubstr("is not a plan folder; nothing has"));
  expectError({"explain", plan + "/manifest.json"}, 1, HasSubstr("; make one with gridloom"));
  expectError({"explain", folder.getPath()}, 1, HasSubstr("it has no manifest.json"));
  fs::create_directory(fs::path(plan) / "report.json");
  expectError({"explain", plan}, 1, HasSubstr("report.json cannot be read: Is a directory"));
  fs::remove(fs::path(plan) / "report.json");
  writeFile(fs::path(plan) / "report.json", R"({
    "strategy": "tp over model",
    "candidates": [{"strategy": "dp", "simulated_ms": 3.5, "sum_ms": 4.25, "reason": "slower"},
                   {"strategy": "tp", "simulated_ms": 2.5, "sum_ms": 5.25, "reason": "chosen"},
                   {"strategy": "pp", "reason": "it needs more"}],
    "collectives": [{"id": 0, "kind": "all_reduce", "axes": ["model"], "bytes": 96, "group": 2,
                     "origin": "/layer/MatMul", "because": "its sum is cut", "estimate_us": 12.5}],
    "values": [{"name": "/layer/MatMul", "origin": "strategy tp",
                "sharding": "#dist.sharding<@mesh, [{\"data\"}, {}], unreduced {\"model\"}>"}],
    "warnings": ["it is hot"], "remarks": ["it is split", "it is split"],
    "memory": {"weights_bytes": 2048}, "unknown": [1, 2]})");
  Result all = run({"explain", plan});
  EXPECT_EQ(all.code, 0) << all.err;
  EXPECT_THAT(all.out, AllOf(HasSubstr("tp over model"), HasSubstr("slower"), HasSubstr("3.50"),
                             HasSubstr("4.25"), HasSubstr("2.0 KiB")));
  auto json = nlohmann::json::parse(run({"explain", plan, "--json"}).out);
  EXPECT_EQ(json["warnings"][0]["warning"], "it is hot");
  EXPECT_EQ(json["remarks"].size(), 1u);
  EXPECT_THAT(run({"explain", plan, "--collective", "0"}).out,
              AllOf(HasSubstr("its sum is cut"), HasSubstr("12.5 us")));
  expectError({"explain", plan, "--stage", "0"}, 1, HasSubstr("no stages"));
  EXPECT_THAT(
      run({"explain", plan, "--value", "/layer/MatMul"}).out,
      AllOf(HasSubstr("strategy tp"), HasSubstr("its sum is cut"), HasSubstr("[data, -] + model")));
  expectError({"explain", plan, "--value", "MatMul"}, 1, HasSubstr("there are /layer/MatMul"));
  expectError({"explain", plan, "--value", ""}, 2, HasSubstr("as in --value encoder.q"));
  expectError({"explain", plan, "--collective", "7"}, 1, HasSubstr("no collective 7"));
  writeFile(fs::path(plan) / "report.json", "{\"strategy\": ");
  expectError({"explain", plan}, 1, HasSubstr("is not a JSON object"));
  writeFile(fs::path(plan) / "report.json",
            R"({"candidates": 3, "values": [1], "collectives": {}, "memory": []})");
  EXPECT_EQ(run({"explain", plan}).code, 0) << "a report of another shape";
}

TEST_F(Cli, ExplainComparesTimesOfOneKind) {
  auto explain = [&](const nlohmann::json &report) {
    writeFile(fs::path(plan) / "report.json", report.dump());
    return nlohmann::json::parse(run({"explain", plan, "--json"}).out);
  };
  auto candidate = [](const char *name, double simulated, double sum, const char *reason) {
    return nlohmann::json{
        {"strategy", name}, {"simulated_ms", simulated}, {"sum_ms", sum}, {"reason", reason}};
  };
  nlohmann::json report{{"chosen_as", "fastest of 4 candidates, 2 simulated"},
                        {"candidates",
                         {candidate("sp", 0, 9, "slower"), candidate("dp", 8, 10, "slower"),
                          candidate("tp", 5, 12, "chosen"), candidate("pp", 0, 0, "too large")}}};
  EXPECT_EQ(explain(report)["why"],
            "fastest of 4 candidates, 2 simulated: 5.00 ms simulated; the next, dp, takes 8.00 ms "
            "simulated (+60 %); 1 of them refused");
  EXPECT_EQ(explain(report)["candidates"][1]["strategy"], "dp");
  report["candidates"][1]["simulated_ms"] = 0;
  EXPECT_EQ(explain(report)["why"],
            "fastest of 4 candidates, 2 simulated: 5.00 ms simulated, 12.00 ms in sum; the next, "
            "sp, takes 9.00 ms in sum (-25 %); 1 of them refused");
  report["candidates"][2]["simulated_ms"] = 0;
  EXPECT_EQ(explain(report)["why"], "fastest of 4 candidates, 2 simulated: 12.00 ms in sum; the "
                                    "next, sp, takes 9.00 ms in sum (-25 %); 1 of them refused");

  // Without other candidates, the report names the compile options that left none.
  report = nlohmann::json::object();
  report["mesh"] = "x=2";
  report["candidates"].push_back(candidate("tp", 0, 0, "chosen"));
  EXPECT_EQ(explain(report)["why"], "there was no other candidate");
  EXPECT_FALSE(explain(report).contains("candidates"));
  report["options"] = {{"mesh", "x=2"}, {"strategy", "a b.strategy"}, {"precision", "bf16"}};
  EXPECT_EQ(explain(report)["why"],
            "there was no other candidate for --mesh x=2 --strategy 'a b.strategy'");
  report["options"] = {{"devices", "2"}, {"strategy", "dp"}};
  EXPECT_EQ(explain(report)["why"], "there was no other candidate for --devices 2 --strategy dp");
  report["options"] = nlohmann::json::object();
  EXPECT_EQ(explain(report)["why"], "there was no other candidate for the model's own mesh");
  report["mesh"] = "";
  EXPECT_EQ(explain(report)["why"], "there was no other candidate for one device");
}

TEST_F(Cli, ExplainSaysWhatABoundIsOf) {
  auto explain = [&](double cost, double bound, int stages) {
    nlohmann::json report;
    report["search"] = {{"cost_ms", cost}, {"bound_ms", bound}};
    for (int stage = 0; stage < stages; ++stage)
      report["stages"][size_t(stage)]["stage"] = stage;
    writeFile(fs::path(plan) / "report.json", report.dump());
    return nlohmann::json::parse(run({"explain", plan, "--json"}).out)["bound"].get<std::string>();
  };
  EXPECT_EQ(explain(8, 6, 1), "the splits take 8.000 ms, one operation after another; on this mesh "
                              "none take less than 6.000 ms (at most 25.0 % faster)");
  EXPECT_EQ(explain(8, 6, 2), "the splits take 8.000 ms in 2 stages; with these stages none take "
                              "less than 6.000 ms (at most 25.0 % faster)");
  EXPECT_THAT(explain(8, 8 * (1 - 1e-6), 1), testing::EndsWith("none take less than 8.000 ms"));
  EXPECT_THAT(explain(8, 8 * (1 + 1e-9), 1), testing::EndsWith("none take less than 8.000 ms"));
  EXPECT_EQ(explain(8, 0, 1), "the splits take 8.000 ms, one operation after another; the search "
                              "was ended before it had a bound");
  EXPECT_EQ(explain(8, 0, 2),
            "the splits take 8.000 ms in 2 stages; the search was ended before it had a bound");
}

TEST_F(Cli, ExplainSaysNoBoundAboveTheSum) {
  auto explain = [&](double sum, double bound) {
    nlohmann::json report;
    report["bound"] = {{"sum_ms", sum}, {"bound_ms", bound}, {"scope", "all"}};
    writeFile(fs::path(plan) / "report.json", report.dump());
    return nlohmann::json::parse(run({"explain", plan, "--json"}).out)["bound_of_all"]
        .get<std::string>();
  };
  EXPECT_EQ(explain(8, 6), "in sum 8.000 ms; no plan takes less than 6.000 ms (at most 25.0 % "
                           "less): all");
  EXPECT_EQ(explain(8, 8 * (1 + 1e-9)), "in sum 8.000 ms; no plan takes less than 8.000 ms (at "
                                        "most 0.0 % less): all");
  EXPECT_EQ(explain(8, 9), "in sum 8.000 ms; a bound of 9.000 ms does not hold: all");
}

TEST_F(Cli, ExplainTellsRowsOfStagesAndProgramsApart) {
  using nlohmann::json;
  auto explain = [&](const json &report, const std::vector<std::string> &more = {}) {
    writeFile(fs::path(plan) / "report.json", report.dump());
    std::vector<std::string> call{"explain", plan, "--json"};
    call.insert(call.end(), more.begin(), more.end());
    return json::parse(run(call).out);
  };
  auto cost = [](const char *dims, int stage) {
    json row = json::parse(R"({"entry": "main", "op": "matmul", "node": "/MatMul", "ms": 1})");
    row["dims"] = dims;
    row["stage"] = stage;
    return row;
  };
  json report = json::parse(R"({
    "collectives": [{"id": 0, "kind": "all_reduce", "entry": "main", "dims": "batch=4", "stage": 1,
                     "times": 1, "time_us": 3}],
    "estimates": [{"entry": "main", "dims": "batch=4"}], "stages": [{"stage": 0}]})");
  report["costs"].push_back(cost("batch=4", 0));
  json shown = explain(report);
  EXPECT_FALSE(shown["largest_costs"][0].contains("stage"));
  EXPECT_FALSE(shown["largest_costs"][0].contains("program"));
  report["costs"].push_back(cost("batch=4", 1));
  report["costs"].push_back(cost("batch=8", 1));
  report["estimates"].push_back(json::parse(R"({"entry": "main", "dims": "batch=8"})"));
  report["stages"].push_back(json::parse(R"({"stage": 1})"));
  shown = explain(report);
  std::set<std::pair<std::string, int>> places,
      expected{{"main batch=4", 0}, {"main batch=4", 1}, {"main batch=8", 1}};
  for (const json &row : shown["largest_costs"])
    places.emplace(row["program"].get<std::string>(), row["stage"].get<int>());
  EXPECT_EQ(places, expected);
  EXPECT_EQ(shown["heaviest_collectives"][0]["program"], "main batch=4");
  EXPECT_EQ(shown["heaviest_collectives"][0]["stage"], 1);
  shown = explain(report, {"--stage", "1"});
  EXPECT_EQ(shown["largest_costs"].size(), 2u);
  EXPECT_FALSE(shown["largest_costs"][0].contains("stage")) << "it is one";
  EXPECT_EQ(shown["largest_costs"][0]["program"], "main batch=4");
}

TEST_F(Cli, BenchOfCollectivesCountsNothingWrong) {
  for (const char *name :
       {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "sendrecv"}) {
    Result result = run({"bench", name, "-b", "4", "-e", "4M", "-f", "64", "-n", "3", "--iters",
                         "2", "--warmup", "1"});
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(result.out, AllOf(HasSubstr("algbw"), HasSubstr("busbw"), HasSubstr("#wrong")));
    EXPECT_THAT(result.out, Not(HasSubstr("N/A")));
  }
}

/// A narrow type must hold the sum over all ranks.
TEST_F(Cli, BenchOfManyRanksCountsNothingWrong) {
  for (auto [ranks, type] : {std::pair("64", "i8"), {"130", "i8"}, {"130", "u8"}, {"199", "bf16"}})
    for (const char *name : {"all_reduce", "reduce_scatter"}) {
      Result result = run({"bench", name, "-b", "1K", "-e", "1K", "-n", ranks, "--type", type,
                           "--in-process", "--iters", "1", "--warmup", "0"});
      EXPECT_EQ(result.code, 0) << ranks << " " << type << " " << result.err;
    }
}

TEST_F(Cli, BenchOfAPlan) {
  Result result = run({"bench", plan, "--iters", "3", "--format", "json"});
  EXPECT_EQ(result.code, 0) << result.err;
  auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json["runs"], 3);
  EXPECT_GT(json["median_ms"].get<double>(), 0);
  EXPECT_LE(json["fastest_ms"].get<double>(), json["slowest_ms"].get<double>());
  EXPECT_TRUE(json.contains("hidden_percent"));
}

TEST_F(Cli, CompilerVerbsNeedTheCompiler) {
  // A copy of the program in a folder without the compiler.
  fs::path copy = folder.getPath() / "bin" / "gridloom";
  fs::create_directories(copy.parent_path());
  fs::copy_file(GRIDLOOM_BINARY, copy);
  auto call = [&](const std::string &words) {
    fs::path err = folder.getPath() / "err";
    std::string command =
        "PATH=/nonexistent " + copy.string() + " " + words + " > " + err.string() + " 2>&1";
    int status = system(command.c_str());
    std::ifstream file(err);
    return std::pair(WEXITSTATUS(status), std::string{std::istreambuf_iterator<char>(file), {}});
  };
  auto [code, text] = call("compile model.onnx");
  EXPECT_EQ(code, 1);
  EXPECT_THAT(text, MatchesRegex("error: 'compile' needs the compiler[^\n]*\n"));
  writeFile(copy.parent_path() / "gridloom-compile", "#!/bin/sh\necho \"$@\"\nexit 7\n");
  fs::permissions(copy.parent_path() / "gridloom-compile", fs::perms::owner_all);
  auto [passedCode, passed] = call("check model.plan --input 'a b'");
  EXPECT_EQ(passedCode, 7);
  EXPECT_EQ(passed, "check model.plan --input a b\n");
  // Models are inspected by the compiler; the value of an option is no model.
  EXPECT_EQ(call("inspect --json model.onnx").first, 7);
  EXPECT_EQ(call("inspect --format json model.onnx").first, 7);
  std::string page = (folder.getPath() / "page.onnx").string();
  EXPECT_EQ(call("inspect " + plan + " --format html -o " + page).first, 0);
  EXPECT_TRUE(fs::exists(page));
}

} // namespace
