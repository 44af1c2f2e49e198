//===- CApiTest.cpp - the C interface -------------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The C interface as a C program sees it: through the shared library alone.
//
//===----------------------------------------------------------------------===//
#include "runtime/include/gridloom.h"

#include "PlanBuilder.h"

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

/// y = x over "data", and z = the sum of x's parts.
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
    ASSERT_EQ(gridloom_plan_open(builder.write(folder.path).c_str(), &plan), GRIDLOOM_OK)
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
  x = {10, 20, 30, 40}; // the same memory, read again
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
  std::string trace = (folder.path / "trace.json").string();
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
  // TearDown destroys the session during the run.
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
}

TEST_F(CApi, ThePlanMayGoFirst) {
  open(makePlan(1));
  gridloom_plan_destroy(plan);
  plan = nullptr;
  ASSERT_EQ(bind(), GRIDLOOM_OK);
  ASSERT_EQ(gridloom_session_run(session, nullptr, nullptr, nullptr, 0), GRIDLOOM_OK);
  EXPECT_THAT(getOutput(), ElementsAreArray(x));
}

TEST_F(CApi, AProcessPerRank) {
  PlanBuilder builder = makePlan(2);
  std::string path = builder.write(folder.path);
  std::vector<pid_t> children;
  for (int rank = 0; rank < 2; ++rank) {
    pid_t child = fork();
    if (child == 0) {
      setenv("RANK", std::to_string(rank).c_str(), 1);
      setenv("WORLD_SIZE", "2", 1);
      setenv("LOCAL_RANK", std::to_string(rank).c_str(), 1);
      setenv("LOCAL_WORLD_SIZE", "2", 1);
      setenv("MASTER_ADDR", "localhost", 1);
      setenv("MASTER_PORT", std::to_string(20000 + getppid() % 20000).c_str(), 1);
      gridloom_session_options options = {};
      options.size = sizeof(options);
      options.ranks = GRIDLOOM_RANK_FROM_ENVIRONMENT;
      options.deadline_ms = 20000;
      bool ok = gridloom_plan_open(path.c_str(), &plan) == GRIDLOOM_OK &&
                gridloom_session_create(plan, &options, &session) == GRIDLOOM_OK &&
                bind() == GRIDLOOM_OK &&
                gridloom_session_run(session, nullptr, nullptr, nullptr, 0) == GRIDLOOM_OK;
      gridloom_tensor out = {};
      ok = ok && gridloom_session_output(session, "y", &out) == GRIDLOOM_OK;
      if (ok && rank == 0)
        ok = out.shape[0] == 4 && static_cast<float *>(out.data)[3] == 6;
      else if (ok)
        ok = out.data == nullptr;
      if (!ok)
        fprintf(stderr, "rank %d: %s\n", rank, gridloom_last_error());
      gridloom_session_destroy(session);
      _exit(ok ? 0 : 1);
    }
    children.push_back(child);
  }
  for (pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
}

} // namespace
