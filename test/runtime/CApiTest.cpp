//===- CApiTest.cpp - the C interface -------------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The C interface as a C program sees it: only through the shared library.
//
//===----------------------------------------------------------------------===//
#include "runtime/include/gridloom.h"

#include "PlanBuilder.h"
#include "runtime/core/Plan.h"
#include "test/TestKeys.h"

#include <chrono>
#include <cstring>
#include <functional>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace gridloom;
using namespace gridloom::test;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;

namespace {

/// y = x; with several ranks, y is the sum of x's shards on every rank.
PlanBuilder makePlan(int ranks) {
  PlanBuilder plan;
  if (ranks > 1)
    plan.addAxis("data", ranks);
  std::vector<std::string> axes =
      ranks > 1 ? std::vector<std::string>{"data"} : std::vector<std::string>{};
  plan.addEntry({PlanBuilder::argument("x", {4})}, {PlanBuilder::argument("y", {4})},
                {{"batch", 4}});
  schema::Specialisation &program = plan.program();
  PlanBuilder::fillBinding(*program.add_inputs(), "x", {4 / ranks}, {axes});
  PlanBuilder::fillBinding(*program.add_outputs(), "y", {4 / ranks}, {axes});
  uint32_t from = PlanBuilder::addBuffer(program, schema::INPUT, {4 / ranks});
  uint32_t to = PlanBuilder::addBuffer(program, schema::OUTPUT, {4 / ranks});
  schema::Block &block = PlanBuilder::addBlock(program);
  if (ranks > 1)
    PlanBuilder::addGroup(block, schema::Group::ALL_REDUCE, {"data"}, {from}, {to});
  else
    PlanBuilder::addCopy(block, from, to);
  return plan;
}

class CApi : public testing::Test {
protected:
  void TearDown() override {
    gridloom_session_destroy(session);
    gridloom_plan_destroy(plan);
  }
  void open(PlanBuilder builder, const gridloom_session_options *options = nullptr) {
    ASSERT_EQ(gridloom_plan_open(builder.write(folder.getPath()).c_str(), &plan), GRIDLOOM_OK)
        << gridloom_last_error();
    ASSERT_EQ(gridloom_session_create(plan, options, &session), GRIDLOOM_OK)
        << gridloom_last_error();
  }
  gridloom_status bind(std::vector<int64_t> shape = {4}) {
    gridloom_tensor tensor = {GRIDLOOM_F32, int32_t(shape.size()), shape.data(), x.data()};
    return gridloom_session_bind(session, "x", &tensor);
  }
  std::vector<float> getOutput() {
    gridloom_tensor tensor;
    EXPECT_EQ(gridloom_session_output(session, "y", &tensor), GRIDLOOM_OK) << gridloom_last_error();
    EXPECT_EQ(tensor.type, GRIDLOOM_F32);
    EXPECT_EQ(tensor.rank, 1);
    const float *data = static_cast<const float *>(tensor.data);
    return {data, data + tensor.shape[0]};
  }

  TemporaryFolder folder;
  gridloom_plan *plan = nullptr;
  gridloom_session *session = nullptr;
  std::vector<float> x = {1, 2, 3, 4};
};

TEST_F(CApi, DescribesThePlan) {
  open(makePlan(2));
  EXPECT_EQ(gridloom_plan_num_ranks(plan), 2);
  ASSERT_EQ(gridloom_plan_num_entries(plan), 1);
  EXPECT_STREQ(gridloom_plan_entry_name(plan, 0), "main");
  EXPECT_EQ(gridloom_plan_entry_name(plan, 1), nullptr);
  EXPECT_EQ(gridloom_plan_num_specialisations(plan, 0), 1);
  ASSERT_EQ(gridloom_plan_num_inputs(plan, 0, 0), 1);
  ASSERT_EQ(gridloom_plan_num_outputs(plan, 0, 0), 1);
  gridloom_argument argument;
  ASSERT_EQ(gridloom_plan_input(plan, 0, 0, 0, &argument), GRIDLOOM_OK);
  EXPECT_STREQ(argument.name, "x");
  EXPECT_EQ(argument.type, GRIDLOOM_F32);
  ASSERT_EQ(argument.rank, 1);
  EXPECT_EQ(argument.shape[0], 4);
  EXPECT_EQ(gridloom_plan_output(plan, 0, 0, 1, &argument), GRIDLOOM_INVALID_ARGUMENT);
  EXPECT_EQ(gridloom_plan_input(plan, 3, 0, 0, &argument), GRIDLOOM_INVALID_ARGUMENT);
  EXPECT_STREQ(gridloom_version(), "0.1.0");
}

TEST_F(CApi, OpensOnlyWhatIsSigned) {
  std::string path = makePlan(2).write(folder.getPath()).string();
  auto write = [this](const char *name, const char *contents) {
    writeFile(folder.getPath() / name, contents);
    return (folder.getPath() / name).string();
  };
  std::string key = write("private.pem", kPrivateKey), required = write("public.pem", kPublicKey),
              other = write("other.pub", kOtherPublicKey);
  auto openSigned = [&](const std::vector<const char *> &keys) {
    return gridloom_plan_open_signed(path.c_str(), keys.data(), int32_t(keys.size()), &plan);
  };
  EXPECT_EQ(openSigned({required.c_str()}), GRIDLOOM_INVALID_PLAN);
  EXPECT_THAT(gridloom_last_error(), HasSubstr("is not signed"));
  rt::signPlan(*rt::Plan::load(path), key, [](const std::string &, uint64_t) {});
  EXPECT_EQ(openSigned({other.c_str()}), GRIDLOOM_INVALID_PLAN);
  EXPECT_THAT(gridloom_last_error(), HasSubstr("is signed with key"));
  // No key may not mean that any will do.
  EXPECT_EQ(openSigned({}), GRIDLOOM_INVALID_ARGUMENT);
  EXPECT_EQ(openSigned({nullptr}), GRIDLOOM_INVALID_ARGUMENT);
  EXPECT_EQ(openSigned({""}), GRIDLOOM_INVALID_ARGUMENT);
  EXPECT_EQ(gridloom_plan_open_signed(path.c_str(), nullptr, 1, &plan), GRIDLOOM_INVALID_ARGUMENT);
  EXPECT_EQ(plan, nullptr);
  ASSERT_EQ(openSigned({other.c_str(), required.c_str()}), GRIDLOOM_OK) << gridloom_last_error();
  ASSERT_EQ(gridloom_session_create(plan, nullptr, &session), GRIDLOOM_OK) << gridloom_last_error();
  ASSERT_EQ(bind(), GRIDLOOM_OK);
  ASSERT_EQ(gridloom_session_run(session, nullptr, nullptr, nullptr, 0), GRIDLOOM_OK);
  EXPECT_THAT(getOutput(), ElementsAre(4, 6, 4, 6));
}

TEST_F(CApi, AnOutputThatWasTakenStays) {
  open(makePlan(2));
  std::vector<gridloom_memory *> taken;
  std::vector<gridloom_tensor> tensors;
  for (int run = 0; run < 3; ++run) {
    ASSERT_EQ(bind(), GRIDLOOM_OK) << gridloom_last_error();
    ASSERT_EQ(gridloom_session_run(session, nullptr, nullptr, nullptr, 0), GRIDLOOM_OK);
    gridloom_memory *memory = nullptr;
    gridloom_tensor tensor = {};
    ASSERT_EQ(gridloom_session_take_output(session, "y", &tensor, &memory), GRIDLOOM_OK)
        << gridloom_last_error();
    taken.push_back(memory);
    tensors.push_back(tensor);
    x[0] += 10;
  }
  gridloom_tensor tensor;
  gridloom_memory *memory;
  EXPECT_EQ(gridloom_session_take_output(session, "z", &tensor, &memory),
            GRIDLOOM_INVALID_ARGUMENT);
  EXPECT_EQ(gridloom_session_take_output(session, "y", &tensor, nullptr),
            GRIDLOOM_INVALID_ARGUMENT);
  gridloom_session_destroy(session);
  session = nullptr;
  for (int run = 0; run < 3; ++run) {
    ASSERT_EQ(tensors[size_t(run)].rank, 1);
    EXPECT_EQ(tensors[size_t(run)].shape[0], 4);
    // Each rank holds the sum of both halves.
    EXPECT_EQ(static_cast<const float *>(tensors[size_t(run)].data)[0], 1 + 10.0f * float(run) + 3);
  }
  for (gridloom_memory *each : taken)
    gridloom_memory_release(each);
  gridloom_memory_release(nullptr);
}

TEST_F(CApi, RunsAndGathers) {
  gridloom_session_options options = {};
  options.size = sizeof(options);
  options.trace = 1;
  open(makePlan(2), &options);
  EXPECT_EQ(gridloom_session_num_outputs(session), 0);
  ASSERT_EQ(bind(), GRIDLOOM_OK) << gridloom_last_error();
  ASSERT_EQ(gridloom_session_run(session, nullptr, nullptr, nullptr, 0), GRIDLOOM_OK)
      << gridloom_last_error();
  ASSERT_EQ(gridloom_session_num_outputs(session), 1);
  EXPECT_STREQ(gridloom_session_output_name(session, 0), "y");
  EXPECT_THAT(getOutput(), ElementsAre(4, 6, 4, 6));
  x = {10, 20, 30, 40}; // the same memory, read again at the next run
  const char *dims[] = {"batch"};
  int64_t values[] = {4};
  ASSERT_EQ(gridloom_session_run(session, "main", dims, values, 1), GRIDLOOM_OK);
  EXPECT_THAT(getOutput(), ElementsAre(40, 60, 40, 60));
  gridloom_tensor shard;
  ASSERT_EQ(gridloom_session_output_shard(session, 1, "y", &shard), GRIDLOOM_OK);
  EXPECT_EQ(shard.shape[0], 2);
  gridloom_stats stats;
  ASSERT_EQ(gridloom_session_stats(session, &stats), GRIDLOOM_OK);
  EXPECT_GT(stats.wall_ms, 0);
  EXPECT_GT(stats.communication_ms, 0);
  std::string trace = (folder.getPath() / "trace.json").string();
  ASSERT_EQ(gridloom_session_write_trace(session, trace.c_str()), GRIDLOOM_OK);
  EXPECT_GT(std::filesystem::file_size(trace), 100u);
}

TEST_F(CApi, BindsOneRanksPart) {
  open(makePlan(2));
  ASSERT_EQ(bind(), GRIDLOOM_OK);
  std::vector<float> part = {100, 200};
  int64_t shape[] = {2};
  gridloom_tensor tensor = {GRIDLOOM_F32, 1, shape, part.data()};
  ASSERT_EQ(gridloom_session_bind_shard(session, 1, "x", &tensor), GRIDLOOM_OK);
  ASSERT_EQ(gridloom_session_run(session, nullptr, nullptr, nullptr, 0), GRIDLOOM_OK);
  EXPECT_THAT(getOutput(), ElementsAre(101, 202, 101, 202));
  EXPECT_EQ(gridloom_session_bind_shard(session, 2, "x", &tensor), GRIDLOOM_INVALID_ARGUMENT);
  EXPECT_THAT(gridloom_last_error(), HasSubstr("rank 2 is not one of 2"));
}

TEST_F(CApi, RunsAsynchronously) {
  open(makePlan(2));
  ASSERT_EQ(bind(), GRIDLOOM_OK);
  EXPECT_EQ(gridloom_session_wait(session), GRIDLOOM_OK); // none in progress
  ASSERT_EQ(gridloom_session_run_async(session, nullptr, nullptr, nullptr, 0), GRIDLOOM_OK);
  EXPECT_EQ(gridloom_session_run(session, nullptr, nullptr, nullptr, 0), GRIDLOOM_INVALID_ARGUMENT);
  EXPECT_THAT(gridloom_last_error(), HasSubstr("gridloom_session_wait"));
  ASSERT_EQ(gridloom_session_wait(session), GRIDLOOM_OK) << gridloom_last_error();
  EXPECT_THAT(getOutput(), ElementsAre(4, 6, 4, 6));
  ASSERT_EQ(gridloom_session_run_async(session, "none", nullptr, nullptr, 0), GRIDLOOM_OK);
  EXPECT_EQ(gridloom_session_wait(session), GRIDLOOM_INVALID_ARGUMENT);
  EXPECT_THAT(gridloom_last_error(), HasSubstr("no entry 'none'"));
  ASSERT_EQ(gridloom_session_run_async(session, nullptr, nullptr, nullptr, 0), GRIDLOOM_OK);
  // TearDown destroys the session while it runs.
}

/// Calls a session while a call of it asks is_interrupted, then aborts it.
struct Nested {
  gridloom_session **session; // null until it is created
  float *data;
  std::vector<gridloom_status> statuses;
  std::vector<std::string> errors;

  static int ask(void *given) {
    Nested &nested = *static_cast<Nested *>(given);
    gridloom_session *session = *nested.session;
    if (!session || !nested.statuses.empty())
      return 0;
    int64_t shape[] = {4};
    gridloom_tensor tensor = {GRIDLOOM_F32, 1, shape, nested.data}, out = {};
    gridloom_progress progress = {};
    gridloom_stats stats = {};
    auto expect = [&](gridloom_status status) {
      nested.statuses.push_back(status);
      nested.errors.emplace_back(gridloom_last_error());
    };
    expect(gridloom_session_run(session, nullptr, nullptr, nullptr, 0));
    expect(gridloom_session_run_async(session, nullptr, nullptr, nullptr, 0));
    expect(gridloom_session_wait(session));
    expect(gridloom_session_bind(session, "x", &tensor));
    expect(gridloom_session_output(session, "y", &out));
    expect(gridloom_session_get_state(session, "w", &out));
    expect(gridloom_session_reset_states(session));
    expect(gridloom_session_save(session, "checkpoint", &progress));
    expect(gridloom_session_stats(session, &stats));
    EXPECT_EQ(gridloom_session_num_outputs(session), 0);
    gridloom_session_destroy(session); // does nothing
    EXPECT_EQ(gridloom_session_abort(session, "enough of this"), GRIDLOOM_OK);
    return 0;
  }
};

TEST_F(CApi, CallsWithinACallAreRefused) {
  PlanBuilder builder = makePlan(1);
  PlanBuilder::addState(builder.stages[0], "w", {4}, {4});
  schema::Specialisation &program = builder.program();
  uint32_t always = PlanBuilder::addBuffer(program, schema::CONSTANT, {}, 0, 0, schema::BOOL);
  PlanBuilder::addConstant(program, std::string(1, 1));
  schema::While *loop = program.add_body()->mutable_loop();
  loop->set_condition(always);
  PlanBuilder::addCopy(*loop->add_body()->mutable_block(), 0, 1);
  std::string path = builder.write(folder.getPath());
  ASSERT_EQ(gridloom_plan_open(path.c_str(), &plan), GRIDLOOM_OK) << gridloom_last_error();
  for (bool isAsync : {false, true}) {
    Nested nested = {&session, x.data(), {}, {}};
    gridloom_session_options options = {};
    options.size = sizeof(options);
    options.is_interrupted = &Nested::ask;
    options.interrupt_data = &nested;
    ASSERT_EQ(gridloom_session_create(plan, &options, &session), GRIDLOOM_OK)
        << gridloom_last_error();
    ASSERT_EQ(bind(), GRIDLOOM_OK) << gridloom_last_error();
    gridloom_status status;
    if (isAsync) {
      ASSERT_EQ(gridloom_session_run_async(session, nullptr, nullptr, nullptr, 0), GRIDLOOM_OK);
      status = gridloom_session_wait(session);
    } else {
      status = gridloom_session_run(session, nullptr, nullptr, nullptr, 0);
    }
    EXPECT_NE(status, GRIDLOOM_OK);
    EXPECT_THAT(gridloom_last_error(), HasSubstr("enough of this"));
    EXPECT_EQ(nested.statuses.size(), 9u);
    EXPECT_THAT(nested.statuses, testing::Each(GRIDLOOM_INVALID_ARGUMENT));
    EXPECT_THAT(nested.errors, testing::Each(HasSubstr("a call is in progress")));
    gridloom_session_destroy(session);
    session = nullptr;
  }
}

TEST_F(CApi, ErrorsAreOneLineAndOfTheThread) {
  EXPECT_EQ(gridloom_plan_open("/nowhere/model.plan", &plan), GRIDLOOM_INVALID_PLAN);
  EXPECT_STREQ(gridloom_last_error(),
               "/nowhere/model.plan: is not a plan folder; nothing has this name");
  std::thread([] { EXPECT_STREQ(gridloom_last_error(), ""); }).join();
  EXPECT_EQ(gridloom_plan_open(nullptr, &plan), GRIDLOOM_INVALID_ARGUMENT);
  EXPECT_EQ(gridloom_session_create(nullptr, nullptr, &session), GRIDLOOM_INVALID_ARGUMENT);
  open(makePlan(1));
  EXPECT_EQ(gridloom_session_run(session, nullptr, nullptr, nullptr, 0), GRIDLOOM_INVALID_ARGUMENT);
  EXPECT_THAT(gridloom_last_error(), HasSubstr("input 'x' is not bound"));
  EXPECT_EQ(bind({4, -1}), GRIDLOOM_INVALID_ARGUMENT);
  gridloom_tensor none = {GRIDLOOM_F32, 1, nullptr, nullptr};
  EXPECT_EQ(gridloom_session_bind(session, "x", &none), GRIDLOOM_INVALID_ARGUMENT);
  EXPECT_EQ(gridloom_session_update_weights(session, "none.onnx"), GRIDLOOM_INVALID_PLAN);
  ASSERT_EQ(bind(), GRIDLOOM_OK);
  ASSERT_EQ(gridloom_session_run(session, nullptr, nullptr, nullptr, 0), GRIDLOOM_OK);
  EXPECT_EQ(gridloom_session_write_trace(session, "t.json"), GRIDLOOM_INVALID_ARGUMENT);
  gridloom_session_options options = {};
  gridloom_session *second = nullptr;
  EXPECT_EQ(gridloom_session_create(plan, &options, &second), GRIDLOOM_INVALID_ARGUMENT);
  EXPECT_THAT(gridloom_last_error(), HasSubstr("options.size"));
  options.size = sizeof(options);
  const int four = 4; // ranks, as somebody may take it
  std::memcpy(&options.ranks, &four, sizeof four);
  EXPECT_EQ(gridloom_session_create(plan, &options, &second), GRIDLOOM_INVALID_ARGUMENT);
  EXPECT_THAT(gridloom_last_error(), HasSubstr("options.ranks is neither"));
}

TEST_F(CApi, ThePlanMayGoFirst) {
  open(makePlan(1));
  gridloom_plan_destroy(plan);
  plan = nullptr;
  ASSERT_EQ(bind(), GRIDLOOM_OK);
  ASSERT_EQ(gridloom_session_run(session, nullptr, nullptr, nullptr, 0), GRIDLOOM_OK);
  EXPECT_THAT(getOutput(), ElementsAreArray(x));
}

/// What `body` returns on each rank of a job of processes.
std::vector<std::string> runRanks(int ranks, const std::function<std::string(int)> &body) {
  std::vector<pid_t> children;
  std::vector<int> pipes;
  for (int rank = 0; rank < ranks; ++rank) {
    int ends[2];
    if (pipe(ends) != 0)
      throw std::runtime_error("no pipe");
    pid_t child = fork();
    if (child == 0) {
      alarm(60);
      auto set = [](const char *name, const std::string &value) { setenv(name, value.c_str(), 1); };
      set("RANK", std::to_string(rank));
      set("WORLD_SIZE", std::to_string(ranks));
      set("LOCAL_RANK", std::to_string(rank));
      set("LOCAL_WORLD_SIZE", std::to_string(ranks));
      set("MASTER_ADDR", "localhost");
      set("MASTER_PORT", std::to_string(20000 + getppid() % 20000));
      std::string text = body(rank);
      (void)!write(ends[1], text.data(), text.size());
      _exit(0);
    }
    close(ends[1]);
    children.push_back(child);
    pipes.push_back(ends[0]);
  }
  std::vector<std::string> texts;
  for (size_t i = 0; i < children.size(); ++i) {
    char buffer[4096];
    ssize_t got = read(pipes[i], buffer, sizeof buffer);
    close(pipes[i]);
    texts.emplace_back(buffer, size_t(std::max<ssize_t>(got, 0)));
    int status = 0;
    waitpid(children[i], &status, 0);
    EXPECT_EQ(status, 0) << "rank " << i;
  }
  return texts;
}

/// One process per rank, each with the same plan.
class CApiRanks : public CApi {
protected:
  void SetUp() override {
    path = makePlan(2).write(folder.getPath());
    options.size = sizeof(options);
    options.ranks = GRIDLOOM_RANK_FROM_ENVIRONMENT;
    options.deadline_ms = 40000;
  }
  gridloom_status create() {
    if (gridloom_status status = gridloom_plan_open(path.c_str(), &plan); status != GRIDLOOM_OK)
      return status;
    return gridloom_session_create(plan, &options, &session);
  }
  gridloom_status run() { return gridloom_session_run(session, nullptr, nullptr, nullptr, 0); }
  /// The last error; if the status is not the expected one, a text that says so.
  static std::string tell(gridloom_status status, gridloom_status expected) {
    if (status != expected)
      return "status " + std::to_string(status) + ": " + gridloom_last_error();
    return status == GRIDLOOM_OK ? "" : gridloom_last_error();
  }

  std::string path;
  gridloom_session_options options = {};
};

TEST_F(CApiRanks, RunAndGather) {
  std::vector<std::string> texts = runRanks(2, [&](int rank) -> std::string {
    gridloom_tensor out = {};
    if (create() || bind() || run() || gridloom_session_output(session, "y", &out))
      return gridloom_last_error();
    if (rank == 0 && (out.shape[0] != 4 || static_cast<float *>(out.data)[3] != 6))
      return "wrong output";
    gridloom_session_destroy(session);
    return rank != 0 && out.data ? "has an output" : "";
  });
  EXPECT_THAT(texts, ElementsAre("", ""));
}

/// If a rank fails before it has a session, the ranks that wait for it fail at once.
TEST_F(CApiRanks, AFailureToStartIsEverybodys) {
  auto begin = std::chrono::steady_clock::now();
  std::vector<std::string> texts = runRanks(2, [&](int rank) {
    if (rank == 1)
      options.transport = "nccl";
    return tell(create(), rank == 1 ? GRIDLOOM_INVALID_ARGUMENT : GRIDLOOM_PEER_FAILED);
  });
  EXPECT_THAT(texts[1], HasSubstr("--transport nccl joins GPUs"));
  EXPECT_THAT(texts[0], HasSubstr("rank 1 gave up: --transport nccl joins GPUs"));
  texts = runRanks(2, [&](int rank) -> std::string {
    if (rank == 1)
      return tell(gridloom_job_abort("my disk is empty"), GRIDLOOM_OK);
    return tell(create(), GRIDLOOM_PEER_FAILED);
  });
  EXPECT_THAT(texts, ElementsAre(HasSubstr("rank 1 gave up: my disk is empty"), ""));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

TEST_F(CApiRanks, AWrongInputOfOneRankIsEverybodys) {
  auto begin = std::chrono::steady_clock::now();
  std::vector<std::string> texts = runRanks(2, [&](int rank) {
    if (create() || bind({rank == 1 ? 3 : 4}))
      return std::string(gridloom_last_error());
    return tell(run(), rank == 1 ? GRIDLOOM_INVALID_ARGUMENT : GRIDLOOM_PEER_FAILED);
  });
  EXPECT_EQ(texts[1], "input 'x' has shape [3], the plan takes [4]");
  EXPECT_THAT(texts[0], HasSubstr("rank 1 gave up: input 'x' has shape [3], the plan takes [4]"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

TEST_F(CApiRanks, TheNumberOfRanksMustBeThePlans) {
  std::vector<std::string> texts =
      runRanks(3, [&](int) { return tell(create(), GRIDLOOM_INVALID_ARGUMENT); });
  for (const std::string &text : texts)
    EXPECT_THAT(text, HasSubstr("is for 2 ranks but torchrun (RANK, WORLD_SIZE) says 3"));
}

/// Rank 1 never runs; rank 0, which waits for it, can be interrupted.
TEST_F(CApiRanks, AWaitingRunCanBeInterrupted) {
  auto begin = std::chrono::steady_clock::now();
  for (bool throws : {false, true}) {
    std::vector<std::string> texts = runRanks(2, [&](int rank) -> std::string {
      bool runs = false; // the callback must not interrupt the session's creation
      options.interrupt_data = &runs;
      if (rank == 0)
        options.is_interrupted =
            throws ? [](void *data) -> int { return *static_cast<bool *>(data) ? throw 7 : 0; }
                   : [](void *data) { return int(*static_cast<bool *>(data)); };
      if (create() || bind())
        return gridloom_last_error();
      runs = true;
      if (rank == 0)
        return tell(run(), throws ? GRIDLOOM_INTERNAL : GRIDLOOM_PEER_FAILED);
      std::this_thread::sleep_for(std::chrono::seconds(4));
      return "";
    });
    EXPECT_THAT(texts[0], HasSubstr(throws ? "an exception of unknown type was thrown"
                                           : "the run was interrupted"));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

TEST_F(CApiRanks, AnyThreadMayAbort) {
  std::vector<std::string> texts = runRanks(2, [&](int rank) -> std::string {
    if (create() || bind())
      return gridloom_last_error();
    if (rank == 1)
      return tell(gridloom_session_abort(session, "no more requests"), GRIDLOOM_OK);
    return tell(run(), GRIDLOOM_PEER_FAILED);
  });
  EXPECT_THAT(texts, ElementsAre(HasSubstr("rank 1 gave up: no more requests"), ""));
}

/// A forked process has none of the session's threads.
TEST_F(CApi, AForkedProcessIsRefusedAndDoesNotHang) {
  open(makePlan(2));
  ASSERT_EQ(bind(), GRIDLOOM_OK);
  std::string text = runRanks(1, [&](int) {
    gridloom_status status = gridloom_session_run(session, nullptr, nullptr, nullptr, 0);
    std::string error = gridloom_last_error();
    gridloom_session_wait(session);
    gridloom_session_destroy(session);
    return std::to_string(status) + " " + error;
  })[0];
  EXPECT_THAT(text, HasSubstr("1 the session was made in process " + std::to_string(getpid()) +
                              " and cannot be used in process"));
  EXPECT_EQ(gridloom_session_run(session, nullptr, nullptr, nullptr, 0), GRIDLOOM_OK);
}

TEST_F(CApi, StatesAreWhole) {
  PlanBuilder builder = makePlan(2);
  PlanBuilder::addState(builder.stages[0], "w", {3}, {2}, {{"data"}});
  open(std::move(builder));
  ASSERT_EQ(gridloom_plan_num_states(plan), 1);
  gridloom_argument state;
  ASSERT_EQ(gridloom_plan_state(plan, 0, &state), GRIDLOOM_OK);
  EXPECT_STREQ(state.name, "w");
  EXPECT_EQ(state.type, GRIDLOOM_F32);
  ASSERT_EQ(state.rank, 1);
  EXPECT_EQ(state.shape[0], 3);
  EXPECT_EQ(gridloom_plan_state(plan, 1, &state), GRIDLOOM_INVALID_ARGUMENT);
  EXPECT_EQ(gridloom_plan_num_states(nullptr), 0);

  std::vector<float> given = {7, 8, 9};
  int64_t shape[] = {3};
  gridloom_tensor tensor = {GRIDLOOM_F32, 1, shape, given.data()};
  ASSERT_EQ(gridloom_session_set_state(session, "w", &tensor), GRIDLOOM_OK);
  gridloom_progress progress = {5, 10, 3, 42}, read = {};
  std::filesystem::path checkpoint = folder.getPath() / "c";
  ASSERT_EQ(gridloom_session_save(session, checkpoint.c_str(), &progress), GRIDLOOM_OK)
      << gridloom_last_error();
  std::vector<float> other(3, 1);
  tensor.data = other.data();
  ASSERT_EQ(gridloom_session_set_state(session, "w", &tensor), GRIDLOOM_OK);
  ASSERT_EQ(gridloom_session_restore(session, checkpoint.c_str(), &read), GRIDLOOM_OK)
      << gridloom_last_error();
  EXPECT_EQ(std::memcmp(&read, &progress, sizeof(read)), 0);
  gridloom_tensor whole = {};
  ASSERT_EQ(gridloom_session_get_state(session, "w", &whole), GRIDLOOM_OK);
  const float *values = static_cast<const float *>(whole.data);
  EXPECT_THAT(std::vector<float>(values, values + 3), ElementsAreArray(given));
  gridloom_tensor taken = {};
  gridloom_memory *memory = nullptr;
  ASSERT_EQ(gridloom_session_take_state(session, "w", &taken, &memory), GRIDLOOM_OK)
      << gridloom_last_error();
  tensor.data = other.data();
  ASSERT_EQ(gridloom_session_set_state(session, "w", &tensor), GRIDLOOM_OK);
  ASSERT_EQ(taken.rank, 1);
  values = static_cast<const float *>(taken.data);
  EXPECT_THAT(std::vector<float>(values, values + taken.shape[0]), ElementsAreArray(given));
  gridloom_memory_release(memory);

  EXPECT_EQ(gridloom_session_take_state(session, "w", &taken, nullptr), GRIDLOOM_INVALID_ARGUMENT);
  EXPECT_EQ(gridloom_session_get_state(session, "v", &whole), GRIDLOOM_INVALID_ARGUMENT);
  EXPECT_THAT(gridloom_last_error(), HasSubstr("no state 'v'"));
  EXPECT_EQ(gridloom_session_set_state(session, "w", nullptr), GRIDLOOM_INVALID_ARGUMENT);
  progress.step = -1;
  EXPECT_EQ(gridloom_session_save(session, checkpoint.c_str(), &progress),
            GRIDLOOM_INVALID_ARGUMENT);
  EXPECT_EQ(gridloom_session_restore(session, "/nowhere", nullptr), GRIDLOOM_INVALID_ARGUMENT);
}

TEST_F(CApi, NoCheckpointReplacesAnythingElse) {
  PlanBuilder builder = makePlan(1);
  PlanBuilder::addState(builder.stages[0], "w", {2}, {2});
  open(std::move(builder));
  gridloom_progress progress = {};
  auto save = [&](const std::filesystem::path &path) {
    return gridloom_session_save(session, path.c_str(), &progress);
  };
  std::filesystem::path other = folder.getPath() / "other", plan = folder.getPath() / "model.plan";
  std::filesystem::create_directory(other);
  test::writeFile(other / "thesis.tex", "mine");
  for (const std::filesystem::path &path : {other, other / "thesis.tex"}) {
    EXPECT_EQ(save(path), GRIDLOOM_INVALID_ARGUMENT);
    EXPECT_THAT(gridloom_last_error(), HasSubstr("exists and is not a checkpoint"));
  }
  for (const std::filesystem::path &path : {plan, plan / "checkpoint"}) {
    EXPECT_EQ(save(path), GRIDLOOM_INVALID_ARGUMENT);
    EXPECT_THAT(gridloom_last_error(), HasSubstr(" is inside the plan "));
  }
  EXPECT_TRUE(std::filesystem::is_regular_file(other / "thesis.tex"));
  EXPECT_TRUE(std::filesystem::exists(plan / "manifest.json"));
  EXPECT_FALSE(std::filesystem::exists(plan / "checkpoint"));
}

TEST_F(CApi, SchedulesAndOrdersNeedNoSession) {
  double factor = 0;
  ASSERT_EQ(gridloom_schedule_factor("linear(warmup=2)", 4, 3, &factor), GRIDLOOM_OK);
  EXPECT_EQ(factor, 0.5);
  EXPECT_EQ(gridloom_schedule_factor("cosine", 0, 3, &factor), GRIDLOOM_INVALID_ARGUMENT);
  EXPECT_EQ(gridloom_schedule_factor(nullptr, 0, 3, &factor), GRIDLOOM_INVALID_ARGUMENT);
  int64_t indices[3] = {};
  ASSERT_EQ(gridloom_sample_order(3, 1, 0, 3, indices), GRIDLOOM_OK);
  EXPECT_THAT(indices, testing::UnorderedElementsAre(0, 1, 2));
  EXPECT_EQ(gridloom_sample_order(0, 1, 0, 3, indices), GRIDLOOM_INVALID_ARGUMENT);
  EXPECT_EQ(gridloom_sample_order(3, 1, 0, 3, nullptr), GRIDLOOM_INVALID_ARGUMENT);
}

/// EventLogTest checks the contents of the files.
TEST_F(CApi, EventsNeedNoSession) {
  TemporaryFolder folder;
  std::string path = folder.getPath() / "runs";
  gridloom_events *events = nullptr, *more = nullptr;
  ASSERT_EQ(gridloom_events_create(path.c_str(), -1, &events), GRIDLOOM_OK);
  const char *tags[] = {"loss", "accuracy"};
  double values[] = {2, 0.5};
  EXPECT_EQ(gridloom_events_scalars(events, 1, tags, values, 2), GRIDLOOM_OK);
  float data[] = {1, -1};
  int64_t shape[] = {2};
  gridloom_tensor tensor = {GRIDLOOM_F32, 1, shape, data};
  EXPECT_EQ(gridloom_events_histogram(events, 1, "w", &tensor), GRIDLOOM_OK);
  EXPECT_EQ(gridloom_events_sync(events), GRIDLOOM_OK);
  EXPECT_EQ(gridloom_events_create(path.c_str(), -1, &more), GRIDLOOM_INVALID_ARGUMENT);
  EXPECT_THAT(gridloom_last_error(), HasSubstr("has events of another run"));
  gridloom_events_destroy(events);
  ASSERT_EQ(gridloom_events_create(path.c_str(), 1, &more), GRIDLOOM_OK);
  EXPECT_EQ(gridloom_events_scalars(more, 1, nullptr, values, 2), GRIDLOOM_INVALID_ARGUMENT);
  EXPECT_EQ(gridloom_events_histogram(more, 1, "w", nullptr), GRIDLOOM_INVALID_ARGUMENT);
  EXPECT_EQ(gridloom_events_histogram(more, 1, nullptr, &tensor), GRIDLOOM_INVALID_ARGUMENT);
  EXPECT_EQ(gridloom_events_sync(nullptr), GRIDLOOM_INVALID_ARGUMENT);
  gridloom_events_destroy(more);
  gridloom_events_destroy(nullptr);
}

} // namespace
