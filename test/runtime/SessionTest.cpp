//===- SessionTest.cpp - running plans ------------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Hand-made plans of matrix products, copies and groups, run on one rank and on several.
//
//===----------------------------------------------------------------------===//
#include "runtime/core/Session.h"

#include "Arrays.h"
#include "PlanBuilder.h"
#include "runtime/comm/local/LocalTransport.h"
#include "runtime/core/Error.h"
#include "runtime/core/InProcessJob.h"

#include <gmock/gmock.h>
#include <malloc.h>
#include <thread>

using namespace gridloom;
using namespace gridloom::rt;
using namespace gridloom::test;
using testing::ElementsAreArray;
using testing::HasSubstr;

namespace {

/// Row-major a[m, k] * b[k, n].
std::vector<float> multiply(const std::vector<float> &a, const std::vector<float> &b, int64_t m,
                            int64_t n, int64_t k) {
  std::vector<float> out(size_t(m * n), 0);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t p = 0; p < k; ++p)
      for (int64_t j = 0; j < n; ++j)
        out[size_t(i * n + j)] += a[size_t(i * k + p)] * b[size_t(p * n + j)];
  return out;
}

/// y[4, 6] = x[4, 4] * w[4, 6], with w's second dimension or the batch split over the axes.
class Job : public testing::Test {
protected:
  static constexpr int64_t m = 4, n = 6, k = 4;
  TemporaryFolder folder;
  std::vector<float> x = iota(m * k), w = iota(k * n, -7), y = multiply(x, w, m, n, k);

  std::unique_ptr<InProcessJob> start(PlanBuilder &builder, const InProcessOptions &options = {}) {
    return std::make_unique<InProcessJob>(Plan::load(builder.write(folder.getPath())), options);
  }
};

/// The columns of w are split over "model"; the test gathers y.
PlanBuilder makeColumnPlan(int parts, int64_t rowPad, const std::vector<float> &w) {
  PlanBuilder plan;
  if (parts > 1)
    plan.addAxis("model", parts);
  plan.addWeight("w", {4, 6}, w);
  plan.addEntry({PlanBuilder::argument("x", {4, 4})}, {PlanBuilder::argument("y", {4, 6})});
  int64_t local = (6 + parts - 1) / parts;
  std::vector<std::string> axes =
      parts > 1 ? std::vector<std::string>{"model"} : std::vector<std::string>{};
  schema::Weight *weight = plan.stages[0].add_weights();
  weight->set_name("w");
  weight->set_type(schema::F32);
  weight->add_shape(4);
  weight->add_shape(local);
  weight->set_row_pad(rowPad);
  weight->set_bytes(uint64_t(4 * (local + rowPad) * 4));
  PlanBuilder::fillSharding(*weight->mutable_sharding(), {{}, axes});
  schema::Specialisation &program = plan.program();
  PlanBuilder::fillBinding(*program.add_inputs(), "x", {4, 4});
  PlanBuilder::fillBinding(*program.add_outputs(), "y", {4, local}, {{}, axes});
  uint32_t x = PlanBuilder::addBuffer(program, schema::INPUT, {4, 4});
  uint32_t weightBuffer = PlanBuilder::addBuffer(program, schema::WEIGHT, {4, local});
  program.mutable_buffers(int(weightBuffer))->set_bytes(weight->bytes());
  uint32_t y = PlanBuilder::addBuffer(program, schema::OUTPUT, {4, local});
  schema::Block &block = PlanBuilder::addBlock(program);
  PlanBuilder::addMatmul(block, x, weightBuffer, y, 4, local, 4, local + rowPad);
  return plan;
}

class ColumnParallel : public Job, public testing::WithParamInterface<std::pair<int, int>> {};

TEST_P(ColumnParallel, EqualsTheWhole) {
  auto [parts, rowPad] = GetParam();
  PlanBuilder plan = makeColumnPlan(parts, rowPad, w);
  auto job = start(plan);
  job->bind("x", view(x, {m, k}));
  for (int repeat = 0; repeat < 3; ++repeat) {
    job->run();
    EXPECT_THAT(toVector(job->getOutput("y")), ElementsAreArray(y));
  }
}
INSTANTIATE_TEST_SUITE_P(All, ColumnParallel,
                         testing::Values(std::pair(1, 0), std::pair(1, 16), std::pair(2, 0),
                                         std::pair(3, 3), std::pair(4, 0), std::pair(4, 5)));

/// k is split over "model": each rank multiplies its part; an all-reduce, ordered by events, sums.
TEST_F(Job, RowParallelSums) {
  for (bool serialize : {false, true}) {
    PlanBuilder plan;
    plan.addAxis("model", 2);
    plan.addWeight("w", {k, n}, w);
    plan.addEntry({PlanBuilder::argument("x", {m, k})}, {PlanBuilder::argument("y", {m, n})});
    schema::Weight *weight = plan.stages[0].add_weights();
    weight->set_name("w");
    weight->set_type(schema::F32);
    weight->add_shape(k / 2);
    weight->add_shape(n);
    weight->set_bytes(k / 2 * n * 4);
    PlanBuilder::fillSharding(*weight->mutable_sharding(), {{"model"}, {}});
    schema::Specialisation &program = plan.program();
    program.set_registered_bytes(256);
    program.set_num_events(1);
    PlanBuilder::fillBinding(*program.add_inputs(), "x", {m, k / 2}, {{}, {"model"}});
    PlanBuilder::fillBinding(*program.add_outputs(), "y", {m, n});
    uint32_t xBuffer = PlanBuilder::addBuffer(program, schema::INPUT, {m, k / 2});
    uint32_t wBuffer = PlanBuilder::addBuffer(program, schema::WEIGHT, {k / 2, n});
    uint32_t part = PlanBuilder::addBuffer(program, schema::REGISTERED, {m, n}, 0, 64);
    uint32_t yBuffer = PlanBuilder::addBuffer(program, schema::OUTPUT, {m, n});
    schema::Block &block = PlanBuilder::addBlock(program);
    PlanBuilder::addMatmul(block, xBuffer, wBuffer, part, m, n, k / 2);
    PlanBuilder::addRecord(block, 0, 0);
    PlanBuilder::addWait(block, 0, 1);
    PlanBuilder::addGroup(block, schema::Group::ALL_REDUCE, {"model"}, {part}, {yBuffer});
    InProcessOptions options;
    options.session.serialize = serialize;
    options.session.trace = true;
    auto job = start(plan, options);
    job->bind("x", view(x, {m, k}));
    std::vector<RunStats> stats = job->run();
    EXPECT_THAT(toVector(job->getOutput("y")), ElementsAreArray(y));
    EXPECT_GT(stats[0].communication, 0);
    ASSERT_EQ(job->getSession(1).getTrace().size(), 2u);
    EXPECT_EQ(job->getSession(1).getTrace()[1].name, "all_reduce #0");
    EXPECT_EQ(job->getSession(1).getTrace()[1].rank, 1);
  }
}

/// Micro-batches through two stages: stage 0 multiplies and sends; stage 1 receives and multiplies.
TEST_F(Job, PipelineStreamsMicrobatches) {
  constexpr int64_t batch = 6, micro = 3, rows = batch / micro;
  std::vector<float> input = iota(batch * k), v = iota(n * k, 2);
  PlanBuilder plan(2);
  plan.addAxis("pipe", 2);
  plan.setStageAxis("pipe");
  plan.manifest["microbatches"] = micro;
  plan.addWeight("w", {k, n}, w);
  plan.addWeight("v", {n, k}, v);
  plan.addEntry({PlanBuilder::argument("x", {batch, k}, {0})},
                {PlanBuilder::argument("y", {batch, k}, {1})});
  for (int s = 0; s < 2; ++s) {
    schema::Weight *weight = plan.stages[size_t(s)].add_weights();
    weight->set_name(s ? "v" : "w");
    weight->set_type(schema::F32);
    weight->add_shape(s ? n : k);
    weight->add_shape(s ? k : n);
    weight->set_bytes(k * n * 4);
    schema::Specialisation &program = plan.program(s);
    program.set_num_events(2);
    program.set_registered_bytes(2 * rows * n * 4);
    PlanBuilder::fillBinding(s ? *program.add_outputs() : *program.add_inputs(), s ? "y" : "x",
                             {batch, k});
    uint32_t bound = PlanBuilder::addBuffer(program, s ? schema::OUTPUT : schema::INPUT, {rows, k});
    program.mutable_buffers(int(bound))->set_slots(micro);
    uint32_t wBuffer = PlanBuilder::addBuffer(program, schema::WEIGHT, {s ? n : k, s ? k : n});
    uint32_t edge = PlanBuilder::addBuffer(program, schema::REGISTERED, {rows, n});
    program.mutable_buffers(int(edge))->set_slots(2); // two in flight
    schema::Repeat *repeat = program.add_body()->mutable_repeat();
    repeat->set_count(micro);
    schema::Block &block = *repeat->add_body()->mutable_block();
    if (s == 0) {
      PlanBuilder::addWait(block, 1, 0, /*lag=*/2);
      PlanBuilder::addMatmul(block, bound, wBuffer, edge, rows, n, k);
      PlanBuilder::addRecord(block, 0, 0);
      PlanBuilder::addWait(block, 0, 1);
      PlanBuilder::addGroup(block, schema::Group::SEND, {}, {edge}, {}).set_peer_stage(1);
      PlanBuilder::addRecord(block, 1, 1);
    } else {
      PlanBuilder::addWait(block, 1, 1, /*lag=*/2);
      PlanBuilder::addGroup(block, schema::Group::RECV, {}, {}, {edge}).set_peer_stage(0);
      PlanBuilder::addRecord(block, 0, 1);
      PlanBuilder::addWait(block, 0, 0);
      PlanBuilder::addMatmul(block, edge, wBuffer, bound, rows, k, n);
      PlanBuilder::addRecord(block, 1, 0);
    }
  }
  auto job = start(plan);
  job->bind("x", view(input, {batch, k}));
  std::vector<float> expected = multiply(multiply(input, w, batch, n, k), v, batch, k, n);
  for (int repeat = 0; repeat < 20; ++repeat) {
    std::vector<RunStats> stats = job->run();
    EXPECT_TRUE(stats[0].isPipeline);
    EXPECT_EQ(stats[0].graphs, repeat == 0 ? 0 : 1); // with the figures of this run only
    EXPECT_GT(stats[0].compute, 0);
    EXPECT_LT(stats[0].compute, stats[0].wall);
    EXPECT_LT(stats[0].busy, stats[0].wall);
    ASSERT_THAT(toVector(job->getOutput("y")), ElementsAreArray(expected));
  }
  EXPECT_TRUE(job->getOutputShard(0, "y").isNull());
  EXPECT_EQ(job->getOutputShard(1, "y").getShape(), (std::vector<int64_t>{batch, k}));
}

/// A batch of 5 over 3 ranks: 2 and 2 rows, then 1 row and 1 of padding.
TEST_F(Job, UnevenBatchIsPadded) {
  PlanBuilder plan;
  plan.addAxis("data", 3);
  plan.addEntry({PlanBuilder::argument("x", {5, 2})}, {PlanBuilder::argument("y", {5, 2})});
  schema::Specialisation &program = plan.program();
  PlanBuilder::fillBinding(*program.add_inputs(), "x", {2, 2}, {{"data"}, {}});
  PlanBuilder::fillBinding(*program.add_outputs(), "y", {2, 2}, {{"data"}, {}});
  uint32_t from = PlanBuilder::addBuffer(program, schema::INPUT, {2, 2});
  uint32_t to = PlanBuilder::addBuffer(program, schema::OUTPUT, {2, 2});
  PlanBuilder::addCopy(PlanBuilder::addBlock(program), from, to);
  auto job = start(plan);
  std::vector<float> values = iota(10);
  job->bind("x", view(values, {5, 2}));
  job->run();
  EXPECT_THAT(toVector(job->getOutput("y")), ElementsAreArray(values));
  EXPECT_THAT(toVector(job->getOutputShard(2, "y")), ElementsAreArray({9.f, 10.f, 0.f, 0.f}));

  std::vector<float> shard = {-1, -2, -3, -4};
  job->bindShard(1, "x", view(shard, {2, 2}));
  job->run();
  EXPECT_THAT(toVector(job->getOutput("y")),
              ElementsAreArray({1.f, 2.f, 3.f, 4.f, -1.f, -2.f, -3.f, -4.f, 9.f, 10.f}));
}

/// Every collective on four ranks of a 2 x 2 mesh, over either axis and over both.
class Collectives : public Job, public testing::WithParamInterface<std::vector<std::string>> {};

TEST_P(Collectives, FollowTheMesh) {
  std::vector<std::string> axes = GetParam();
  int64_t members = axes.size() == 2 ? 4 : 2;
  PlanBuilder plan;
  plan.addAxis("data", 2);
  plan.addAxis("model", 2);
  // Each rank has 4 rows of its own; each output's rows are concatenated over both axes.
  auto rows = [&](const std::string &name, int64_t local) {
    return PlanBuilder::argument(name, {4 * local, 1});
  };
  plan.addEntry({rows("x", 4)},
                {rows("gathered", 4 * members), rows("scattered", 4 / members),
                 rows("exchanged", 4), rows("permuted", 4), rows("most", 4), rows("index", 1)});
  plan.manifest["entries"][0]["specialisations"][0]["outputs"][5]["type"] = "i64";
  schema::Specialisation &program = plan.program();
  std::vector<std::vector<std::string>> both = {{"data", "model"}, {}};
  PlanBuilder::fillBinding(*program.add_inputs(), "x", {4, 1}, both);
  uint32_t x = PlanBuilder::addBuffer(program, schema::INPUT, {4, 1});
  schema::Block &block = PlanBuilder::addBlock(program);
  auto addOutput = [&](const std::string &name, int64_t local,
                       schema::DataType type = schema::F32) {
    uint32_t index = uint32_t(program.outputs_size());
    PlanBuilder::fillBinding(*program.add_outputs(), name, {local, 1}, both, type);
    return PlanBuilder::addBuffer(program, schema::OUTPUT, {local, 1}, index, 0, type);
  };
  auto addGroup = [&](schema::Group::Kind kind, const std::string &name,
                      int64_t local) -> schema::Group & {
    return PlanBuilder::addGroup(block, kind, axes, {x}, {addOutput(name, local)});
  };
  addGroup(schema::Group::ALL_GATHER, "gathered", 4 * members);
  addGroup(schema::Group::REDUCE_SCATTER, "scattered", 4 / members);
  addGroup(schema::Group::ALL_TO_ALL, "exchanged", 4);
  schema::Group &permute = addGroup(schema::Group::PERMUTE, "permuted", 4);
  for (int64_t i = 0; i < members; ++i)
    permute.add_permutation((i + 1) % members);
  addGroup(schema::Group::ALL_REDUCE, "most", 4).set_reduction(schema::Group::MAX);
  uint32_t param = PlanBuilder::addBuffer(program, schema::RANK_PARAM, {1, 1}, 0, 0, schema::I64);
  for (const std::string &axis : axes)
    program.mutable_buffers(int(param))->add_axes(axis);
  PlanBuilder::addCopy(block, param, addOutput("index", 1, schema::I64));

  auto job = start(plan);
  std::vector<float> values = iota(16, 0); // rank r has 4r to 4r + 3
  job->bind("x", view(values, {16, 1}));
  job->run();
  Mesh mesh({{"data", 2}, {"model", 2}}, "");
  for (int rank = 0; rank < 4; ++rank) {
    std::vector<int> group = mesh.getGroup(rank, axes);
    int64_t mine = mesh.getIndex(rank, axes), part = 4 / members;
    auto value = [&](int64_t member, int64_t row) {
      return float(4 * int64_t(group[size_t(member)]) + row);
    };
    std::vector<float> gathered, scattered, exchanged, most;
    for (int64_t i = 0; i < 4 * members; ++i)
      gathered.push_back(value(i / 4, i % 4));
    for (int64_t row = 0; row < part; ++row) {
      float sum = 0;
      for (int64_t member = 0; member < members; ++member)
        sum += value(member, mine * part + row);
      scattered.push_back(sum);
    }
    int64_t last = *std::max_element(group.begin(), group.end());
    for (int64_t i = 0; i < 4; ++i) {
      exchanged.push_back(value(i / part, mine * part + i % part));
      most.push_back(float(4 * last + i));
    }
    auto get = [&](const char *name) { return toVector(job->getOutputShard(rank, name)); };
    EXPECT_THAT(get("gathered"), ElementsAreArray(gathered)) << rank;
    EXPECT_THAT(get("scattered"), ElementsAreArray(scattered)) << rank;
    EXPECT_THAT(get("exchanged"), ElementsAreArray(exchanged)) << rank;
    EXPECT_THAT(get("most"), ElementsAreArray(most)) << rank;
    EXPECT_EQ(get("permuted")[3], value((mine + 1) % members, 3)) << rank;
    EXPECT_EQ(job->getOutputShard(rank, "index").as<int64_t>()[0], mine) << rank;
  }
}
INSTANTIATE_TEST_SUITE_P(Axes, Collectives,
                         testing::Values(std::vector<std::string>{"data"},
                                         std::vector<std::string>{"model"},
                                         std::vector<std::string>{"data", "model"},
                                         std::vector<std::string>{"model", "data"}));

/// `if` and `while` with constant conditions and a group inside; the stage's first rank decides.
TEST_F(Job, ConditionsAreRead) {
  for (char condition : {0, 1}) {
    PlanBuilder plan;
    plan.addAxis("data", 2);
    plan.addEntry({PlanBuilder::argument("x", {2, 2})}, {PlanBuilder::argument("y", {2, 2})});
    schema::Specialisation &program = plan.program();
    PlanBuilder::fillBinding(*program.add_inputs(), "x", {1, 2}, {{"data"}, {}});
    PlanBuilder::fillBinding(*program.add_outputs(), "y", {1, 2}, {{"data"}, {}});
    uint32_t x = PlanBuilder::addBuffer(program, schema::INPUT, {1, 2});
    uint32_t y = PlanBuilder::addBuffer(program, schema::OUTPUT, {1, 2});
    uint32_t flag = PlanBuilder::addBuffer(program, schema::CONSTANT, {1}, 0, 0, schema::BOOL);
    PlanBuilder::addConstant(program, std::string(1, condition));
    uint32_t off = PlanBuilder::addBuffer(program, schema::CONSTANT, {}, 0, 0, schema::BOOL);
    PlanBuilder::addConstant(program, std::string(1, 0));
    schema::If *branch = program.add_body()->mutable_branch();
    branch->set_condition(flag);
    PlanBuilder::addGroup(*branch->add_then()->mutable_block(), schema::Group::ALL_REDUCE, {"data"},
                          {x}, {y});
    PlanBuilder::addCopy(*branch->add_otherwise()->mutable_block(), x, y);
    schema::While *loop = program.add_body()->mutable_loop();
    loop->set_condition(off);
    PlanBuilder::addGroup(*loop->add_body()->mutable_block(), schema::Group::ALL_REDUCE, {"data"},
                          {x}, {y});
    auto job = start(plan);
    std::vector<float> values = {1, 2, 3, 4};
    job->bind("x", view(values, {2, 2}));
    job->run();
    std::vector<float> expected = condition ? std::vector<float>{4, 6, 4, 6} : values;
    EXPECT_THAT(toVector(job->getOutput("y")), ElementsAreArray(expected));
  }
}

/// Work after a branch starts when all streams of the branch are done, without an event.
TEST_F(Job, BranchesEndOnAllStreams) {
  constexpr int64_t n = 1 << 16;
  PlanBuilder plan;
  plan.addAxis("data", 2);
  plan.addEntry({PlanBuilder::argument("x", {2, n})}, {PlanBuilder::argument("y", {2, n})});
  schema::Specialisation &program = plan.program();
  program.set_registered_bytes(n * 4);
  PlanBuilder::fillBinding(*program.add_inputs(), "x", {1, n}, {{"data"}, {}});
  PlanBuilder::fillBinding(*program.add_outputs(), "y", {1, n}, {{"data"}, {}});
  uint32_t x = PlanBuilder::addBuffer(program, schema::INPUT, {1, n});
  uint32_t y = PlanBuilder::addBuffer(program, schema::OUTPUT, {1, n});
  uint32_t sum = PlanBuilder::addBuffer(program, schema::REGISTERED, {1, n});
  uint32_t flag = PlanBuilder::addBuffer(program, schema::CONSTANT, {1}, 0, 0, schema::BOOL);
  PlanBuilder::addConstant(program, std::string(1, 1));
  schema::If *branch = program.add_body()->mutable_branch();
  branch->set_condition(flag);
  PlanBuilder::addGroup(*branch->add_then()->mutable_block(), schema::Group::ALL_REDUCE, {"data"},
                        {x}, {sum});
  PlanBuilder::addCopy(*branch->add_otherwise()->mutable_block(), x, sum);
  PlanBuilder::addCopy(PlanBuilder::addBlock(program), sum, y);
  auto job = start(plan);
  for (int run = 1; run <= 20; ++run) {
    std::vector<float> values(size_t(2 * n), float(run));
    job->bind("x", view(values, {2, n}));
    job->run();
    EXPECT_EQ(toVector(job->getOutput("y")), std::vector<float>(size_t(2 * n), float(2 * run)));
  }
}

/// Each run returns the last run's input: states persist between runs.
TEST_F(Job, StateOutlivesARun) {
  PlanBuilder plan;
  plan.addEntry({PlanBuilder::argument("x", {2})}, {PlanBuilder::argument("y", {2})});
  PlanBuilder::addState(plan.stages[0], "last", {2}, {2});
  schema::Specialisation &program = plan.program();
  PlanBuilder::fillBinding(*program.add_inputs(), "x", {2});
  PlanBuilder::fillBinding(*program.add_outputs(), "y", {2});
  uint32_t x = PlanBuilder::addBuffer(program, schema::INPUT, {2});
  uint32_t last = PlanBuilder::addBuffer(program, schema::STATE, {2});
  uint32_t y = PlanBuilder::addBuffer(program, schema::OUTPUT, {2});
  schema::Block &block = PlanBuilder::addBlock(program);
  PlanBuilder::addCopy(block, last, y);
  PlanBuilder::addCopy(block, x, last);
  auto device = createCpuDevice(1);
  Session session(Plan::load(plan.write(folder.getPath())), *device, nullptr);
  std::vector<float> first = {1, 2}, second = {3, 4};
  session.bind("x", view(first, {2}));
  session.run();
  EXPECT_THAT(toVector(session.getOutputShard("y")), ElementsAreArray({0.f, 0.f}));
  session.bind("x", view(second, {2}));
  session.run();
  EXPECT_THAT(toVector(session.getOutputShard("y")), ElementsAreArray(first));
  EXPECT_THAT(toVector(session.getState("last")), ElementsAreArray(second));
  session.resetStates();
  session.run();
  EXPECT_THAT(toVector(session.getOutputShard("y")), ElementsAreArray({0.f, 0.f}));
  EXPECT_THROW(session.getState("none"), Error);
  EXPECT_THAT([&] { session.bind("last", view(first, {2})); },
              testing::ThrowsMessage<Error>(
                  testing::HasSubstr("'last' is a state, which the session keeps")));
}

/// A state that does not divide evenly starts on each rank with that rank's part of the weight.
TEST_F(Job, StatesBeginWithWeights) {
  PlanBuilder plan;
  plan.addAxis("data", 2);
  plan.addWeight("w", {3, 2}, {1, 2, 3, 4, 5, 6});
  plan.addEntry({PlanBuilder::argument("x", {4, 2})}, {PlanBuilder::argument("y", {4, 2})});
  PlanBuilder::addState(plan.stages[0], "w", {3, 2}, {2, 2}, {{"data"}, {}}).set_init("w");
  PlanBuilder::addState(plan.stages[0], "w/momentum", {3, 2}, {2, 2}, {{"data"}, {}});
  schema::Specialisation &program = plan.program();
  PlanBuilder::fillBinding(*program.add_inputs(), "x", {2, 2}, {{"data"}, {}});
  PlanBuilder::fillBinding(*program.add_outputs(), "y", {2, 2}, {{"data"}, {}});
  uint32_t x = PlanBuilder::addBuffer(program, schema::INPUT, {2, 2});
  uint32_t state = PlanBuilder::addBuffer(program, schema::STATE, {2, 2});
  uint32_t y = PlanBuilder::addBuffer(program, schema::OUTPUT, {2, 2});
  schema::Block &block = PlanBuilder::addBlock(program);
  PlanBuilder::addCopy(block, state, y);
  PlanBuilder::addCopy(block, x, state);
  auto job = start(plan);
  std::vector<float> next = {9, 9, 9, 9, 9, 9, 9, 9};
  job->bind("x", view(next, {4, 2}));
  job->run();
  EXPECT_THAT(toVector(job->getOutput("y")), ElementsAreArray({1., 2., 3., 4., 5., 6., 0., 0.}));
  job->run();
  EXPECT_EQ(toVector(job->getOutput("y")), next);
  Session &session = job->getSession(0);
  session.resetStates();
  EXPECT_THAT(toVector(session.getState("w")), ElementsAreArray({1., 2., 3., 4.}));
  EXPECT_THAT(toVector(session.getState("w/momentum")), ElementsAreArray({0., 0., 0., 0.}));
  std::vector<float> given = {5, 6, 7, 8};
  session.setState("w", view(given, {2, 2}));
  EXPECT_EQ(toVector(session.getState("w")), given);
  EXPECT_THAT([&] { session.setState("w", view(given, {4})); },
              testing::ThrowsMessage<Error>(
                  testing::HasSubstr("state 'w' is f32[2, 2] on this rank, not f32[4]")));
  EXPECT_THROW(session.setState("v", view(given, {2, 2})), Error);
  // The unsplit value, without padding.
  EXPECT_THAT(toVector(job->getState("w")), ElementsAreArray({5., 6., 7., 8., 9., 9.}));
  std::vector<float> whole = iota(6);
  job->setState("w", view(whole, {3, 2}));
  EXPECT_EQ(toVector(job->getState("w")), whole);
  EXPECT_THAT(toVector(job->getSession(1).getState("w")), ElementsAreArray({5., 6., 0., 0.}));
  EXPECT_THAT(
      [&] { job->setState("w", view(whole, {2, 3})); },
      testing::ThrowsMessage<Error>(testing::HasSubstr("state 'w' is f32[3, 2], not f32[2, 3]")));
  EXPECT_THROW(job->setState("v", view(whole, {3, 2})), Error);
  EXPECT_THROW(job->getState("v"), Error);
}

/// Gathers an output and texts through the sessions of all ranks.
TEST_F(Job, GathersToRootAndToAll) {
  PlanBuilder plan = makeColumnPlan(3, 0, w);
  auto job = start(plan);
  job->bind("x", view(x, {m, k}));
  job->run();
  std::vector<HostArray> toRoot(3), toAll(3);
  std::vector<std::vector<std::string>> texts(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank)
    threads.emplace_back([&, rank] {
      toRoot[rank] = job->getSession(rank).gatherOutput("y");
      toAll[rank] = job->getSession(rank).gatherOutputToAll("y");
      texts[rank] = job->getSession(rank).gatherText(std::string(rank, 'a'));
    });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_THAT(toVector(toRoot[0]), ElementsAreArray(y));
  EXPECT_TRUE(toRoot[1].isNull());
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_THAT(toVector(toAll[rank]), ElementsAreArray(y));
  EXPECT_THAT(texts[0], ElementsAreArray({"", "a", "aa"}));
  EXPECT_TRUE(texts[2].empty());
}

std::string messageOf(const std::function<void()> &work) {
  try {
    work();
  } catch (const Error &error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
  return "nothing was thrown";
}

TEST_F(Job, WrongInputsAreRefusedAndForgiven) {
  PlanBuilder plan = makeColumnPlan(2, 0, w);
  auto job = start(plan);
  EXPECT_THAT(messageOf([&] { job->run(); }), HasSubstr("input 'x' is not bound"));
  EXPECT_THAT(messageOf([&] { job->bind("z", view(x, {m, k})); }),
              HasSubstr("the plan has no input 'z'; its inputs are: x"));
  EXPECT_THAT(messageOf([&] { job->bind("x", HostArray::allocate(DataType::I64, {m, k})); }),
              HasSubstr("input 'x' is i64, the plan takes f32"));
  job->bind("x", view(x, {2, 8}));
  EXPECT_THAT(messageOf([&] { job->run(); }),
              HasSubstr("input 'x' has shape [2, 8], the plan takes [4, 4]"));
  EXPECT_THAT(messageOf([&] { job->run("step"); }), HasSubstr("its entries are: main"));
  EXPECT_THAT(messageOf([&] { job->run("main", {{"batch", 3}}); }),
              HasSubstr("no specialisation has batch=3"));
  job->bind("x", view(x, {m, k}));
  job->run();
  EXPECT_THAT(toVector(job->getOutput("y")), ElementsAreArray(y));
  EXPECT_THAT(messageOf([&] { job->getOutput("q"); }), HasSubstr("its outputs are: y"));
}

TEST_F(Job, WorldSizeMustBeTheMeshs) {
  PlanBuilder plan = makeColumnPlan(2, 0, w);
  auto loaded = Plan::load(plan.write(folder.getPath()));
  auto device = createCpuDevice(1);
  EXPECT_THAT(messageOf([&] { Session(loaded, *device, nullptr); }),
              HasSubstr("the plan is for 2 ranks, the job has 1"));
}

/// Counts `turns` up from `begin`, at least once, until it is 3; the condition is at the beginning
/// of the arena. Returns the loop's body, which counts.
static schema::Block &addCountingLoop(PlanBuilder &plan, uint32_t begin, uint32_t turns) {
  std::ifstream file(GRIDLOOM_TEST_KERNELS, std::ios::binary);
  plan.kernels["test.so"] = std::string{std::istreambuf_iterator<char>(file), {}};
  schema::Kernel *kernel = plan.stages[0].add_kernels();
  kernel->set_library("test.so");
  kernel->set_symbol("step");
  kernel->set_num_pointers(2);
  kernel->set_rows(1);
  schema::Specialisation &program = plan.program();
  uint32_t more = PlanBuilder::addBuffer(program, schema::ARENA, {1}, 0, 0, schema::BOOL);
  auto addKernel = [&](schema::Block &block) {
    schema::Launch *launch = PlanBuilder::addStep(block).mutable_launch();
    launch->add_outputs(turns);
    launch->add_outputs(more);
  };
  schema::Block &before = PlanBuilder::addBlock(program);
  PlanBuilder::addCopy(before, begin, turns);
  addKernel(before);
  schema::While *loop = program.add_body()->mutable_loop();
  loop->set_condition(more);
  schema::Block &body = *loop->add_body()->mutable_block();
  addKernel(body);
  return body;
}

/// A while loop driven by a kernel: the counter reaches 3 on every rank, with a sum per iteration.
TEST_F(Job, LoopsUntilTheConditionFalls) {
  PlanBuilder plan;
  plan.addAxis("data", 2);
  plan.addEntry({}, {PlanBuilder::argument("turns", {2}), PlanBuilder::argument("sum", {2})});
  schema::Specialisation &program = plan.program();
  program.set_arena_bytes(64);
  PlanBuilder::fillBinding(*program.add_outputs(), "turns", {1}, {{"data"}});
  PlanBuilder::fillBinding(*program.add_outputs(), "sum", {1}, {{"data"}});
  uint32_t zero = PlanBuilder::addBuffer(program, schema::CONSTANT, {1});
  PlanBuilder::addConstant(program, std::string(4, 0));
  uint32_t turns = PlanBuilder::addBuffer(program, schema::OUTPUT, {1}, 0);
  uint32_t sum = PlanBuilder::addBuffer(program, schema::OUTPUT, {1}, 1);
  schema::Block &body = addCountingLoop(plan, zero, turns);
  program.set_num_events(1);
  PlanBuilder::addRecord(body, 0, 0);
  PlanBuilder::addWait(body, 0, 1);
  PlanBuilder::addGroup(body, schema::Group::ALL_REDUCE, {"data"}, {turns}, {sum});
  auto job = start(plan);
  for (int repeat = 0; repeat < 3; ++repeat) {
    job->run();
    EXPECT_THAT(toVector(job->getOutput("turns")), ElementsAreArray({3.f, 3.f}));
    EXPECT_THAT(toVector(job->getOutput("sum")), ElementsAreArray({6.f, 6.f}));
  }
}

/// 3,000 iterations of five steps, whose times once took 3.5 MB.
TEST_F(Job, ALongLoopKeepsNoTimes) {
  PlanBuilder plan;
  plan.addEntry({}, {PlanBuilder::argument("turns", {1})});
  schema::Specialisation &program = plan.program();
  program.set_arena_bytes(128);
  PlanBuilder::fillBinding(*program.add_outputs(), "turns", {1});
  uint32_t begin = PlanBuilder::addBuffer(program, schema::CONSTANT, {1});
  PlanBuilder::addConstant(program, toBytes({-2997.f}));
  uint32_t turns = PlanBuilder::addBuffer(program, schema::OUTPUT, {1}, 0);
  uint32_t other = PlanBuilder::addBuffer(program, schema::ARENA, {1}, 0, 64);
  schema::Block &body = addCountingLoop(plan, begin, turns);
  for (int copy = 0; copy < 4; ++copy)
    PlanBuilder::addCopy(body, turns, other);
  auto job = start(plan);
  auto count = [] { // zeros under sanitizers
    struct mallinfo2 info = mallinfo2();
    return int64_t(info.uordblks + info.hblkhd);
  };
  int64_t least = count();
  for (int repeat = 0; repeat < 3; ++repeat) { // the third is a replay
    std::vector<RunStats> stats = job->run();
    EXPECT_THAT(toVector(job->getOutput("turns")), ElementsAreArray({3.f}));
    EXPECT_GT(stats[0].kernels, 0);
    EXPECT_LE(stats[0].kernels, stats[0].device);
    EXPECT_LT(count() - least, 1 << 20);
  }
}

TEST_F(Job, AProgramMayHaveNothingToDo) {
  PlanBuilder plan;
  plan.addEntry({}, {PlanBuilder::argument("y", {2})});
  plan.program().clear_streams();
  PlanBuilder::fillBinding(*plan.program().add_outputs(), "y", {2});
  auto job = start(plan);
  for (int repeat = 0; repeat < 3; ++repeat) { // the third is a replay
    job->run();
    EXPECT_THAT(toVector(job->getOutput("y")), ElementsAreArray({0.f, 0.f}));
  }
}

/// The shapes select the specialisation, or the dims if they are given.
TEST_F(Job, PicksTheSpecialisation) {
  PlanBuilder plan;
  plan.addEntry({PlanBuilder::argument("x", {2})}, {PlanBuilder::argument("y", {2})},
                {{"batch", 2}});
  nlohmann::json &list = plan.manifest["entries"][0]["specialisations"];
  list.push_back(list[0]);
  list[1]["dims"]["batch"] = 5;
  list[1]["inputs"][0]["shape"] = {5};
  list[1]["outputs"][0]["shape"] = {5};
  *plan.stages[0].mutable_entries(0)->add_specialisations() = plan.program();
  for (int s = 0; s < 2; ++s) {
    schema::Specialisation &program =
        *plan.stages[0].mutable_entries(0)->mutable_specialisations(s);
    int64_t size = s ? 5 : 2;
    PlanBuilder::fillBinding(*program.add_inputs(), "x", {size});
    PlanBuilder::fillBinding(*program.add_outputs(), "y", {size});
    uint32_t from = PlanBuilder::addBuffer(program, schema::INPUT, {size});
    uint32_t to = PlanBuilder::addBuffer(program, schema::OUTPUT, {size});
    PlanBuilder::addCopy(PlanBuilder::addBlock(program), from, to);
  }
  auto job = start(plan);
  std::vector<float> values = iota(5);
  job->bind("x", view(values, {5}));
  job->run();
  EXPECT_THAT(toVector(job->getOutput("y")), ElementsAreArray(values));
  EXPECT_EQ(job->getLastSpecialisation().dims.at("batch"), 5);
  job->bind("x", view(values, {2}));
  job->run("main", {{"batch", 2}});
  EXPECT_THAT(toVector(job->getOutput("y")), ElementsAreArray({1.f, 2.f}));
  EXPECT_THAT(messageOf([&] { job->run("main", {{"batch", 5}}); }),
              HasSubstr("input 'x' has shape [2], the plan takes [5]"));
  job->bind("x", view(values, {3}));
  EXPECT_THAT(messageOf([&] { job->run(); }),
              HasSubstr("entry 'main' is compiled for: batch=2; batch=5"));
  std::vector<int64_t> shape = {2, 1};
  job->bind("x", view(values, shape));
  EXPECT_THAT(messageOf([&] { job->run(); }),
              HasSubstr("input 'x' has shape [2, 1], the plan takes 1 dimensions: [2]"));
}

/// A wrong size in a dimension that all specialisations share is wrong for each of them.
TEST(EntryTest, NamesTheFixedDimensionThatDiffers) {
  Entry entry{"main", {}};
  for (int64_t batch : {2, 5})
    entry.specialisations.push_back(
        {{{"batch", batch}}, {{"x", DataType::F32, {batch, 16}, {"batch", ""}, {0}, {}, {}}}, {}});
  EXPECT_EQ(entry.findMisfit("x", {2, 16}), "");
  EXPECT_EQ(entry.findMisfit("x", {3, 16}), ""); // the batch selects one
  EXPECT_EQ(entry.findMisfit("x", {3, 8}),
            "input 'x' has 8 in dimension 1, the plan takes 16 there in all specialisations");
  EXPECT_EQ(entry.findMisfit("other", {1}), "");
}

/// A failing rank ends the others' run soon, with one error; later runs say that one failed.
TEST_F(Job, AFailedPeerEndsTheRun) {
  PlanBuilder plan;
  plan.addAxis("data", 2);
  plan.addEntry({PlanBuilder::argument("x", {2})}, {PlanBuilder::argument("y", {2})});
  schema::Specialisation &program = plan.program();
  PlanBuilder::fillBinding(*program.add_inputs(), "x", {1}, {{"data"}});
  PlanBuilder::fillBinding(*program.add_outputs(), "y", {1}, {{"data"}});
  uint32_t from = PlanBuilder::addBuffer(program, schema::INPUT, {1});
  uint32_t to = PlanBuilder::addBuffer(program, schema::OUTPUT, {1});
  PlanBuilder::addGroup(PlanBuilder::addBlock(program), schema::Group::ALL_REDUCE, {"data"}, {from},
                        {to});
  auto loaded = Plan::load(plan.write(folder.getPath()));
  auto transports = createInProcessTransports(2);
  std::vector<float> values = {1, 2};
  std::atomic<bool> ready{false};
  std::string message;
  std::thread other([&] {
    auto device = createCpuDevice(1);
    Session session(loaded, *device, transports[1].get());
    while (!ready)
      std::this_thread::yield();
    transports[1]->abort("rank 1: the disk is full");
  });
  auto device = createCpuDevice(1);
  Session session(loaded, *device, transports[0].get());
  session.bind("x", view(values, {2}));
  ready = true;
  message = messageOf([&] { session.run(); });
  other.join();
  EXPECT_THAT(message, HasSubstr("the disk is full"));
  EXPECT_THAT(messageOf([&] { session.run(); }), HasSubstr("the session failed before"));
}

TEST_F(Job, RanksMustHaveOnePlan) {
  PlanBuilder plan = makeColumnPlan(2, 0, w);
  auto first = Plan::load(plan.write(folder.getPath() / "a"));
  plan.manifest["producer"] = "another";
  auto second = Plan::load(plan.write(folder.getPath() / "b"));
  auto transports = createInProcessTransports(2);
  std::string messages[2];
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      auto device = createCpuDevice(1);
      messages[rank] = messageOf(
          [&] { Session(rank ? second : first, *device, transports[size_t(rank)].get()); });
    });
  for (std::thread &thread : threads)
    thread.join();
  for (const std::string &message : messages)
    EXPECT_THAT(message, HasSubstr("rank 1 has plan " + second->getDigest().substr(0, 12)));
}

/// If the model file is missing, loading fails with the reason on all ranks, and none hangs.
TEST_F(Job, AMissingModelFailsAllRanks) {
  PlanBuilder plan = makeColumnPlan(2, 0, w);
  auto loaded = Plan::load(plan.write(folder.getPath()));
  std::filesystem::remove(folder.getPath() / "model.onnx");
  EXPECT_THAT(messageOf([&] { InProcessJob job(loaded); }),
              HasSubstr("model.onnx: the model whose weights the plan uses is not there"));
}

} // namespace
