//===- CudaMiniatureTest.cpp - a small plan on two fake GPUs --------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// gelu(x w + b) with w split by rows over two ranks: one matmul, one all_reduce, one kernel. The
// plan is built here as the compiler writes it; its cubin is a stand-in, since no GPU runs it.
//
//===----------------------------------------------------------------------===//

#include "runtime/core/Session.h"
#include "runtime/core/plan.pb.h"
#include "support/Sha256.h"
#include "test/fake/GpuHarness.h"

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

using namespace gridloom;
using namespace gridloom::rt;
using namespace gridloom::rt::test;
using nlohmann::json;
using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

namespace {

constexpr int64_t rows = 4, inner = 8, columns = 16, ranks = 2;

/// The variations of the plan.
struct Planting {
  bool waitBeforeReduce = true;
  bool waitAfterReduce = true;
  int architecture = 90;
  bool withPtx = false;
  int specialisations = 1; // they differ only in the dimension "mode", which counts from 1
  bool withState = false;  // y is added to the state "sum"
};

//===----------------------------------------------------------------------===//
// The plan
//===----------------------------------------------------------------------===//

enum Buffer : uint32_t { X, W, Partial, Sum, Bias, Out, Total };
enum StreamIndex : uint32_t { Compute, Comm };

void addBuffer(schema::Specialisation &program, schema::Space space, uint64_t offset,
               uint32_t index, std::vector<int64_t> shape) {
  schema::Buffer &buffer = *program.add_buffers();
  buffer.set_space(space);
  buffer.set_type(schema::F32);
  uint64_t bytes = sizeof(float);
  for (int64_t size : shape) {
    buffer.add_shape(size);
    bytes *= uint64_t(size);
  }
  buffer.set_bytes(bytes);
  buffer.set_offset(offset);
  buffer.set_index(index);
}

schema::Step &addStep(schema::Block &block, uint32_t stream, uint32_t origin) {
  schema::Step &step = *block.add_steps();
  step.set_stream(stream);
  step.set_origin(origin);
  return step;
}

void addMatmul(schema::Block &block) {
  schema::Library &call = *addStep(block, Compute, 0).mutable_library();
  schema::Matmul &matmul = *call.mutable_matmul();
  int64_t part = inner / ranks;
  for (int64_t size : {rows, columns, part})
    matmul.add_sizes(size);
  for (int64_t stride : {part, int64_t(1)})
    matmul.add_lhs(stride);
  for (int64_t stride : {columns, int64_t(1)}) {
    matmul.add_rhs(stride);
    matmul.add_out(stride);
  }
  matmul.set_alpha(1);
  matmul.set_type(schema::F32);
  matmul.set_workspace_limit(1 << 20);
  call.add_inputs(X);
  call.add_inputs(W);
  call.add_outputs(Partial);
}

void addReduce(schema::Block &block, const Planting &planting) {
  addStep(block, Compute, 0).mutable_record()->set_id(0);
  if (planting.waitBeforeReduce)
    addStep(block, Comm, 0).mutable_wait()->set_id(0);
  schema::Group &group = *addStep(block, Comm, 0).mutable_group();
  group.set_kind(schema::Group::ALL_REDUCE);
  group.add_axes("model");
  group.set_reduction(schema::Group::SUM);
  group.set_sequence(0);
  group.add_inputs(Partial);
  group.add_outputs(Sum);
  addStep(block, Comm, 0).mutable_record()->set_id(1);
  if (planting.waitAfterReduce)
    addStep(block, Compute, 1).mutable_wait()->set_id(1);
}

/// sum += y.
void addState(schema::Stage &stage, schema::Specialisation &program) {
  schema::State &state = *stage.add_states();
  state.set_name("sum");
  state.set_type(schema::F32);
  for (int64_t size : {rows, columns}) {
    state.add_shape(size);
    state.add_global_shape(size);
    state.mutable_sharding()->add_dims();
  }
  state.set_bytes(uint64_t(rows * columns) * sizeof(float));
  schema::Kernel &kernel = *stage.add_kernels();
  kernel = stage.kernels(0);
  kernel.set_symbol("add_to");
  kernel.set_num_pointers(2);
  addBuffer(program, schema::STATE, 0, 0, {rows, columns});
  schema::Launch &launch =
      *addStep(*program.mutable_body(0)->mutable_block(), Compute, 1).mutable_launch();
  launch.set_kernel(1);
  launch.add_inputs(Out);
  launch.add_outputs(Total);
}

schema::Stage makeStage(const Planting &planting) {
  schema::Stage stage;
  stage.add_origins("/MatMul");
  stage.add_origins("/Gelu");
  schema::Kernel &kernel = *stage.add_kernels();
  kernel.set_symbol("gelu_bias");
  kernel.set_library("gelu_bias.cubin");
  kernel.set_num_pointers(3);
  for (uint32_t size : {1u, 1u, 1u})
    kernel.add_grid(size);
  for (uint32_t size : {uint32_t(rows * columns), 1u, 1u})
    kernel.add_block(size);

  auto addWeight = [&](const char *name, std::vector<int64_t> shape, bool cut) {
    schema::Weight &weight = *stage.add_weights();
    weight.set_name(name);
    weight.set_type(schema::F32);
    uint64_t bytes = sizeof(float);
    for (size_t i = 0; i < shape.size(); ++i) {
      weight.add_shape(shape[i]);
      bytes *= uint64_t(shape[i]);
      schema::DimSharding &dim = *weight.mutable_sharding()->add_dims();
      if (cut && i == 0)
        dim.add_axes("model");
    }
    weight.set_bytes(bytes);
  };
  addWeight("w", {inner / ranks, columns}, true);
  addWeight("b", {columns}, false);

  schema::Entry &entry = *stage.add_entries();
  entry.set_name("main");
  schema::Specialisation &program = *entry.add_specialisations();
  auto addBinding = [](schema::Binding &binding, const char *name, std::vector<int64_t> shape) {
    binding.set_name(name);
    binding.set_type(schema::F32);
    for (int64_t size : shape) {
      binding.add_shape(size);
      binding.mutable_sharding()->add_dims();
    }
  };
  addBinding(*program.add_inputs(), "x", {rows, inner / ranks});
  program.mutable_inputs(0)->mutable_sharding()->mutable_dims(1)->add_axes("model");
  addBinding(*program.add_outputs(), "y", {rows, columns});

  constexpr uint64_t bytes = uint64_t(rows * columns) * sizeof(float);
  addBuffer(program, schema::INPUT, 0, 0, {rows, inner / ranks});
  addBuffer(program, schema::WEIGHT, 0, 0, {inner / ranks, columns});
  addBuffer(program, schema::ARENA, 0, 0, {rows, columns});
  addBuffer(program, schema::ARENA, bytes, 0, {rows, columns});
  addBuffer(program, schema::WEIGHT, 0, 1, {columns});
  addBuffer(program, schema::OUTPUT, 0, 0, {rows, columns});
  program.set_arena_bytes(2 * bytes);
  program.set_num_events(2);
  program.add_streams()->set_name("compute");
  schema::Stream &comm = *program.add_streams();
  comm.set_name("comm.model");
  comm.set_kind(schema::Stream::COMMUNICATION);

  schema::Block &block = *program.add_body()->mutable_block();
  addMatmul(block);
  addReduce(block, planting);
  schema::Launch &launch = *addStep(block, Compute, 1).mutable_launch();
  launch.set_kernel(0);
  launch.add_inputs(Sum);
  launch.add_inputs(Bias);
  launch.add_outputs(Out);
  if (planting.withState)
    addState(stage, program);
  for (int i = 1; i < planting.specialisations; ++i)
    *entry.add_specialisations() = schema::Specialisation(entry.specialisations(0));
  return stage;
}

void write(const std::filesystem::path &path, std::span<const std::byte> bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char *>(bytes.data()), std::streamsize(bytes.size()));
  ASSERT_TRUE(file.good()) << path;
}

json describeArgument(const char *name, std::vector<int64_t> shape) {
  return {{"name", name}, {"type", "f32"}, {"shape", shape}, {"stages", {0}}};
}

/// Writes the plan and its model with `weights`: w, then b.
void writePlan(const std::filesystem::path &folder, const std::vector<float> &weights,
               const Planting &planting) {
  std::map<std::string, std::vector<std::byte>> files;
  std::string stage = makeStage(planting).SerializeAsString();
  auto stageBytes = std::as_bytes(std::span(stage));
  files["stage0.pb"].assign(stageBytes.begin(), stageBytes.end());
  files["kernels/gelu_bias.cubin"] =
      fake::makeCubin(planting.architecture, {"gelu_bias", "add_to"});
  if (planting.withPtx) {
    std::string ptx = ".version 8.0\n.target sm_80\n.visible .entry gelu_bias() { ret; }\n";
    auto bytes = std::as_bytes(std::span(ptx));
    files["kernels/gelu_bias.ptx"].assign(bytes.begin(), bytes.end());
  }
  auto model = std::as_bytes(std::span(weights));
  write(folder.parent_path() / "mini.onnx", model);

  uint64_t weightBytes = uint64_t(inner * columns) * sizeof(float);
  json manifest = {
      {"schema", {{"major", 2}, {"minor", 0}}},
      {"producer", "gridloom test"},
      {"requires", {"cuda", "collectives"}},
      {"target", {{"kind", "cuda"}, {"arch", "sm_90"}}},
      {"model", {{"path", "../mini.onnx"}, {"bytes", model.size()}, {"sha256", sha256(model)}}},
      {"mesh", {{"axes", {{{"name", "model"}, {"size", ranks}}}}}},
      {"microbatches", 1},
      {"stages", {"stage0.pb"}},
      {"entries", {{{"name", "main"}, {"specialisations", json::array()}}}},
      {"weights",
       {{{"name", "w"},
         {"type", "f32"},
         {"shape", {inner, columns}},
         {"file", ""},
         {"offset", 0},
         {"bytes", weightBytes}},
        {{"name", "b"},
         {"type", "f32"},
         {"shape", {columns}},
         {"file", ""},
         {"offset", weightBytes},
         {"bytes", columns * int64_t(sizeof(float))}}}},
      {"folded", json::array()}};
  for (int mode = 1; mode <= planting.specialisations; ++mode)
    manifest["entries"][0]["specialisations"].push_back(
        {{"dims", planting.specialisations == 1 ? json::object() : json{{"mode", mode}}},
         {"inputs", {describeArgument("x", {rows, inner})}},
         {"outputs", {describeArgument("y", {rows, columns})}}});
  for (const auto &[name, bytes] : files) {
    write(folder / name, bytes);
    manifest["files"][name] = {{"bytes", bytes.size()}, {"sha256", sha256(bytes)}};
  }
  std::string text = manifest.dump(1);
  write(folder / "manifest.json", std::as_bytes(std::span(text)));
}

//===----------------------------------------------------------------------===//
// Running it
//===----------------------------------------------------------------------===//

float gelu(float x) { return 0.5f * x * (1 + std::erf(x * 0.70710678f)); }

void registerGelu() {
  constexpr size_t count = size_t(rows * columns);
  fake::registerKernel("gelu_bias", {3,
                                     [](const fake::Launch &launch) -> std::vector<fake::Access> {
                                       return {{launch.pointers[0], count * 4, false},
                                               {launch.pointers[1], size_t(columns) * 4, false},
                                               {launch.pointers[2], count * 4, true}};
                                     },
                                     [](const fake::Launch &launch) {
                                       auto *sum = static_cast<const float *>(launch.pointers[0]);
                                       auto *bias = static_cast<const float *>(launch.pointers[1]);
                                       auto *out = static_cast<float *>(launch.pointers[2]);
                                       uint32_t threads = launch.grid[0] * launch.block[0];
                                       for (uint32_t i = 0; i < threads; ++i)
                                         out[i] = gelu(sum[i] + bias[i % columns]);
                                     }});
}

void registerAdd() {
  constexpr size_t count = size_t(rows * columns);
  fake::registerKernel("add_to", {2,
                                  [](const fake::Launch &launch) -> std::vector<fake::Access> {
                                    return {{launch.pointers[0], count * 4, false},
                                            {launch.pointers[1], count * 4, true}};
                                  },
                                  [](const fake::Launch &launch) {
                                    auto *y = static_cast<const float *>(launch.pointers[0]);
                                    auto *sum = static_cast<float *>(launch.pointers[1]);
                                    for (size_t i = 0; i < count; ++i)
                                      sum[i] += y[i];
                                  }});
}

class CudaMiniatureTest : public FakeGpus {
protected:
  void SetUp() override {
    FakeGpus::SetUp();
    folder = std::filesystem::path(testing::TempDir()) /
             ("gridloom-miniature-" + std::to_string(getpid()));
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = float(int(i * 7 % 11) - 5) / 4;
    for (size_t i = 0; i < weights.size(); ++i)
      weights[i] = float(int(i * 5 % 13) - 6) / 8;
  }
  void TearDown() override {
    std::filesystem::remove_all(folder);
    FakeGpus::TearDown();
  }

  void restart(fake::Schedule schedule, uint64_t seed = 1, int polls = 0) {
    fake::Options options;
    options.schedule = schedule;
    options.seed = seed;
    fake::reset(options);
    fake::NcclSettings settings;
    settings.polls = polls;
    fake::resetNccl(settings);
    registerGelu();
    registerAdd();
  }

  /// The output of the unsplit model.
  std::vector<float> computeExpected() const {
    std::vector<float> y(size_t(rows * columns));
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = 0; column < columns; ++column) {
        double sum = 0;
        for (int64_t k = 0; k < inner; ++k)
          sum += double(x[size_t(row * inner + k)]) * double(weights[size_t(k * columns + column)]);
        float bias = weights[size_t(inner * columns + column)];
        y[size_t(row * columns + column)] = gelu(float(sum) + bias);
      }
    return y;
  }

  /// Loads the plan on two ranks and runs it `runs` times. Returns each rank's error; outputs[i]
  /// becomes rank i's last output.
  std::vector<std::string> run(const Planting &planting = {}, int runs = 1,
                               const SessionOptions &options = {}) {
    return with(planting, options, [&](Session &session) {
      for (int i = 0; i < runs; ++i)
        session.run();
      keep(session);
    });
  }

  /// Loads the plan on two ranks and calls `body` on each; returns each rank's error.
  std::vector<std::string> with(const Planting &planting, const SessionOptions &options,
                                const std::function<void(Session &)> &body) {
    writePlan(folder / "mini.plan", weights, planting);
    auto plan = Plan::load(folder / "mini.plan");
    ThreadExchange exchange;
    outputs.assign(ranks, {});
    return runRanks(ranks, [&](int rank) {
      CudaDevice device(rank);
      auto transport =
          createNcclTransport(device, rank, ranks, exchange.makeOptions(rank, deadline));
      Session session(plan, device, transport.get(), options);
      session.bind("x", HostArray::borrow(DataType::F32, {rows, inner}, x.data()));
      body(session);
    });
  }

  /// Stores the rank's last output in `outputs`.
  void keep(Session &session) {
    HostArray y = session.getOutputShard("y");
    outputs[size_t(session.getRank())].assign(y.as<float>().begin(), y.as<float>().end());
  }

  static size_t countCalls(const std::string &name, int device) {
    size_t count = 0;
    for (const fake::Call &call : fake::getCalls(name))
      count += call.device == device;
    return count;
  }

  std::chrono::milliseconds deadline = std::chrono::seconds(20);
  std::filesystem::path folder;
  std::vector<float> x = std::vector<float>(size_t(rows * inner));
  std::vector<float> weights = std::vector<float>(size_t((inner + 1) * columns));
  std::vector<std::vector<float>> outputs;
};

TEST_F(CudaMiniatureTest, SplitEqualsUnsplitOnEverySchedule) {
  std::vector<float> expected = computeExpected();
  auto check = [&] {
    EXPECT_THAT(run({}, 3), Each(""));
    for (const std::vector<float> &y : outputs)
      EXPECT_THAT(y, testing::Pointwise(testing::FloatNear(1e-5f), expected));
    EXPECT_EQ(outputs[0], outputs[1]); // replicated means bitwise equal
    EXPECT_THAT(fake::takeFindings(), IsEmpty());
    EXPECT_THAT(fake::findLeaks(), IsEmpty());
    EXPECT_THAT(fake::findNcclCycles(), IsEmpty());
  };
  for (auto schedule :
       {fake::Schedule::Eager, fake::Schedule::OldestFirst, fake::Schedule::NewestFirst})
    for (int polls : {0, 2}) {
      restart(schedule, 1, polls);
      check();
    }
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    restart(fake::Schedule::Random, seed);
    check();
  }
}

TEST_F(CudaMiniatureTest, CallsAreThePlansInItsOrder) {
  restart(fake::Schedule::OldestFirst);
  EXPECT_THAT(run(), Each(""));
  for (int device = 0; device < ranks; ++device) {
    std::vector<std::string> order;
    for (const fake::Call &call : fake::getCalls())
      if (call.device == device &&
          (call.name == "cublasLtMatmul" || call.name == "ncclAllReduce" ||
           call.name == "cuLaunchKernel" || call.name == "cuStreamWaitEvent"))
        order.push_back(call.name + (call.detail.empty() ? "" : " ") + call.detail);
    // 16x4: cuBLASLt's columns are our rows. 64 elements, type f32, sum. The all_reduce waits for
    // the product and for the previous operation on another communicator, the ranks' barrier.
    EXPECT_THAT(order, ElementsAre("cublasLtMatmul 16x4x1 by 0", "cuStreamWaitEvent",
                                   "cuStreamWaitEvent", "ncclAllReduce 64 7 0", "cuStreamWaitEvent",
                                   "cuLaunchKernel gelu_bias"));
  }
}

TEST_F(CudaMiniatureTest, CommunicationHasItsOwnStreamOfHighPriority) {
  restart(fake::Schedule::Eager);
  EXPECT_THAT(run(), Each(""));
  int seen = 0;
  for (const fake::Call &call : fake::getCalls()) {
    bool computes = call.name == "cublasLtMatmul" || call.name == "cuLaunchKernel";
    if (!computes && call.name != "ncclAllReduce")
      continue;
    EXPECT_EQ(fake::getStreamPriority(call.stream), computes ? 0 : -5) << call.name;
    ++seen;
  }
  EXPECT_EQ(seen, 3 * ranks);
}

TEST_F(CudaMiniatureTest, RunsAllocateNothing) {
  auto countAllocations = [&](int runs) {
    restart(fake::Schedule::Eager);
    EXPECT_THAT(run({}, runs), Each(""));
    return fake::getCalls("cuMemAlloc").size() + fake::getCalls("cuMemHostAlloc").size() +
           fake::getCalls("cuStreamCreate").size();
  };
  EXPECT_EQ(countAllocations(1), countAllocations(4));
}

TEST_F(CudaMiniatureTest, PlantedMissingWaitBeforeReduceIsFound) {
  restart(fake::Schedule::Eager);
  Planting planting;
  planting.waitBeforeReduce = false;
  run(planting);
  EXPECT_THAT(fake::takeFindings(), Contains(AllOf(HasSubstr("race: ncclAllReduce"),
                                                   HasSubstr("reads what cublasLtMatmul"))));
}

TEST_F(CudaMiniatureTest, PlantedMissingWaitAfterReduceIsFound) {
  restart(fake::Schedule::Eager);
  Planting planting;
  planting.waitAfterReduce = false;
  run(planting);
  EXPECT_THAT(fake::takeFindings(), Contains(AllOf(HasSubstr("race: kernel gelu_bias"),
                                                   HasSubstr("reads what ncclAllReduce"))));
}

TEST_F(CudaMiniatureTest, CubinOfAnotherGpuIsRefusedOrCompiledFromPtx) {
  restart(fake::Schedule::Eager);
  Planting planting;
  planting.architecture = 100;
  EXPECT_THAT(run(planting), Each(HasSubstr("gelu_bias.cubin on cuda:")));
  planting.withPtx = true;
  EXPECT_THAT(run(planting), Each(""));
  EXPECT_THAT(outputs[0], testing::Pointwise(testing::FloatNear(1e-5f), computeExpected()));
}

TEST_F(CudaMiniatureTest, FailureOfOneRankIsToldAndLeavesNothing) {
  // Calls fail one after another on one rank; the other rank must end soon, too.
  for (const char *call : {"cuLaunchKernel", "cublasLtMatmul", "ncclAllReduce",
                           "cuModuleLoadDataEx", "cublasLtMatmulAlgoGetHeuristic"}) {
    SCOPED_TRACE(call);
    restart(fake::Schedule::Eager);
    fake::failCall(call, 14);
    auto start = std::chrono::steady_clock::now();
    EXPECT_THAT(run(), Contains(testing::Ne("")));
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15));
    EXPECT_THAT(fake::takeFindings(), IsEmpty());
    EXPECT_THAT(fake::findLeaks(), IsEmpty());
  }
}

//===----------------------------------------------------------------------===//
// Graphs
//===----------------------------------------------------------------------===//

TEST_F(CudaMiniatureTest, GraphsEqualStepsBitForBit) {
  Planting planting;
  planting.withState = true;
  std::vector<std::vector<float>> states[2];
  for (uint64_t seed = 1; seed <= 3; ++seed)
    for (bool graphs : {false, true}) {
      restart(fake::Schedule::Random, seed, int(seed % 2) * 2);
      SessionOptions options;
      options.graphs = graphs;
      auto &state = states[graphs];
      state.assign(ranks, {});
      EXPECT_THAT(with(planting, options,
                       [&](Session &session) {
                         for (int i = 0; i < 4; ++i) {
                           EXPECT_EQ(session.run().graphs, graphs && i ? 1 : 0);
                         }
                         keep(session);
                         HostArray sum = session.getState("sum");
                         state[size_t(session.getRank())].assign(sum.as<float>().begin(),
                                                                 sum.as<float>().end());
                       }),
                  Each(""));
      EXPECT_THAT(outputs[0], testing::Pointwise(testing::FloatNear(1e-5f), computeExpected()));
      EXPECT_THAT(fake::takeFindings(), IsEmpty());
      EXPECT_THAT(fake::findLeaks(), IsEmpty());
      for (int device = 0; device < ranks; ++device) {
        // One run and one capture of two kernels each; then one graph launch per run.
        EXPECT_EQ(countCalls("cuLaunchKernel", device), graphs ? 4u : 8u);
        EXPECT_EQ(countCalls("cuGraphLaunch", device), graphs ? 3u : 0u);
      }
      EXPECT_EQ(states[graphs], states[0]);
    }
}

TEST_F(CudaMiniatureTest, SpecialisationsHaveTheirOwnGraphs) {
  restart(fake::Schedule::Random);
  Planting planting;
  planting.specialisations = 2;
  EXPECT_THAT(with(planting, {},
                   [&](Session &session) {
                     for (int i = 0; i < 3; ++i)
                       for (int64_t mode : {1, 2})
                         session.run("main", {{"mode", mode}});
                     keep(session);
                   }),
              Each(""));
  EXPECT_THAT(outputs[1], testing::Pointwise(testing::FloatNear(1e-5f), computeExpected()));
  for (int device = 0; device < ranks; ++device) {
    EXPECT_EQ(countCalls("cuStreamBeginCapture", device), 2u);
    EXPECT_EQ(countCalls("cuGraphLaunch", device), 4u);
  }
}

TEST_F(CudaMiniatureTest, UpdatedWeightsAreUsedByLaterRuns) {
  restart(fake::Schedule::Random);
  std::vector<float> updated = weights;
  for (float &value : updated)
    value = 1 - value;
  std::string header = json{{"w",
                             {{"dtype", "F32"},
                              {"shape", {inner, columns}},
                              {"data_offsets", {0, inner * columns * 4}}}},
                            {"b",
                             {{"dtype", "F32"},
                              {"shape", {columns}},
                              {"data_offsets", {inner * columns * 4, (inner + 1) * columns * 4}}}}}
                           .dump();
  uint64_t length = header.size();
  std::string file(reinterpret_cast<const char *>(&length), sizeof(length));
  file += header + std::string(reinterpret_cast<const char *>(updated.data()), updated.size() * 4);
  std::filesystem::path path = folder / "updated.safetensors";
  write(path, std::as_bytes(std::span(file)));

  EXPECT_THAT(with({}, {},
                   [&](Session &session) {
                     for (int i = 0; i < 3; ++i)
                       session.run();
                     session.updateWeights(path);
                     for (int i = 0; i < 2; ++i)
                       session.run();
                     keep(session);
                   }),
              Each(""));
  weights = updated;
  EXPECT_THAT(outputs[0], testing::Pointwise(testing::FloatNear(1e-5f), computeExpected()));
  EXPECT_EQ(countCalls("cuGraphLaunch", 0), 4u);
  EXPECT_EQ(countCalls("cuStreamBeginCapture", 0), 2u);
}

TEST_F(CudaMiniatureTest, RefusedCaptureGoesOnStepByStep) {
  for (const char *call :
       {"cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphInstantiateWithFlags"}) {
    SCOPED_TRACE(call);
    restart(fake::Schedule::Random);
    fake::failCall(call, 900); // on one of the ranks
    std::mutex mutex;
    std::vector<std::string> remarks;
    SessionOptions options;
    options.remark = [&](const std::string &line) {
      std::lock_guard lock(mutex);
      remarks.push_back(line);
    };
    EXPECT_THAT(run({}, 4, options), Each(""));
    EXPECT_THAT(outputs[0], testing::Pointwise(testing::FloatNear(1e-5f), computeExpected()));
    EXPECT_THAT(fake::getCalls("cuGraphLaunch"), IsEmpty());
    EXPECT_THAT(remarks,
                ElementsAre(AllOf(StartsWith("no graphs for entry main: rank "),
                                  HasSubstr("failed with CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"))));
    EXPECT_THAT(fake::takeFindings(), IsEmpty());
    EXPECT_THAT(fake::findLeaks(), IsEmpty());
  }
}

TEST_F(CudaMiniatureTest, FailureInACaptureOrAReplayIsToldAndLeavesNothing) {
  for (const char *call : {"ncclAllReduce", "cublasLtMatmul", "cuGraphLaunch", "cuEventRecord",
                           "cuLaunchKernel", "cuStreamWaitEvent"}) {
    SCOPED_TRACE(call);
    restart(fake::Schedule::Random);
    auto start = std::chrono::steady_clock::now();
    std::vector<std::string> errors = with({}, {}, [&](Session &session) {
      session.run();
      if (session.getRank() == 0)
        fake::failCall(call, 14);
      for (int i = 0; i < 3; ++i)
        session.run();
    });
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15));
    for (const std::string &error : errors)
      EXPECT_THAT(error, testing::Not(HasSubstr("\n")));
    EXPECT_THAT(fake::takeFindings(), IsEmpty());
    EXPECT_THAT(fake::findLeaks(), IsEmpty());
  }
}

TEST_F(CudaMiniatureTest, PeerThatLaunchesNoGraphIsNamedAtTheDeadline) {
  restart(fake::Schedule::Random);
  deadline = std::chrono::milliseconds(1500);
  auto start = std::chrono::steady_clock::now();
  std::vector<std::string> errors = with({}, {}, [&](Session &session) {
    for (int i = 0; i < (session.getRank() == 0 ? 3 : 2); ++i)
      session.run();
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15));
  EXPECT_THAT(errors[0], AllOf(HasSubstr("all_reduce #0 (onnx node /MatMul) in a graph made no "
                                         "progress for"),
                               HasSubstr("rank 0 waits for rank 1")));
}

TEST_F(CudaMiniatureTest, WhyThereAreNoGraphsIsSaid) {
  auto remark = [&](const fake::Options &machine, SessionOptions options) {
    restart(fake::Schedule::Eager);
    fake::reset(machine);
    registerGelu();
    std::string said;
    options.remark = [&](const std::string &line) { said += line; };
    EXPECT_THAT(run({}, 3, options), Each(""));
    EXPECT_THAT(fake::getCalls("cuGraphLaunch"), IsEmpty());
    return said;
  };
  fake::Options old;
  old.driverVersion = 11030;
  EXPECT_EQ(remark(old, {}), "no graphs: the driver supports CUDA 11.3, graphs need 11.4");
  SessionOptions options;
  options.graphs = false;
  EXPECT_EQ(remark({}, options), "no graphs: they are turned off");
  options.graphs = options.trace = true;
  EXPECT_EQ(remark({}, options), "no graphs: a trace times every step");
}

TEST_F(CudaMiniatureTest, PlantedMissingWaitIsFoundInAGraphToo) {
  restart(fake::Schedule::Eager);
  Planting planting;
  planting.waitAfterReduce = false;
  run(planting, 1);
  EXPECT_THAT(fake::takeFindings(), testing::SizeIs(testing::Ge(1u)));
  restart(fake::Schedule::Eager);
  with(planting, {}, [&](Session &session) {
    session.run();
    fake::takeFindings();
    session.run();
  });
  EXPECT_THAT(fake::takeFindings(), Contains(AllOf(HasSubstr("race: kernel gelu_bias"),
                                                   HasSubstr("reads what ncclAllReduce"))));
}

//===----------------------------------------------------------------------===//
// A GPU that fails
//===----------------------------------------------------------------------===//

/// Runs until GPU 1 fails instead of running its kernel number `kernels`.
class CudaFaultTest : public CudaMiniatureTest {
protected:
  std::vector<std::string> runUntil(int kernels, int error, bool graphs) {
    fake::Options machine;
    machine.schedule = fake::Schedule::Random;
    machine.fault = {1, kernels, error};
    fake::reset(machine);
    fake::resetNccl();
    registerGelu();
    registerAdd();
    SessionOptions options;
    options.graphs = graphs;
    auto start = std::chrono::steady_clock::now();
    std::vector<std::string> errors = run({}, 5, options);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15));
    // Memory that lost work may use is freed, but nothing may wait forever.
    EXPECT_THAT(fake::takeFindings(), Each(testing::Not(HasSubstr("for ever"))));
    EXPECT_THAT(fake::findLeaks(), IsEmpty());
    return errors;
  }
};

TEST_F(CudaFaultTest, LostGpuNamesStepNodeRankAndDevice) {
  for (auto [error, name] :
       {std::pair(700, "CUDA_ERROR_ILLEGAL_ADDRESS"), std::pair(719, "CUDA_ERROR_LAUNCH_FAILED"),
        std::pair(214, "CUDA_ERROR_ECC_UNCORRECTABLE"),
        std::pair(46, "CUDA_ERROR_DEVICE_UNAVAILABLE")}) {
    std::vector<std::string> errors = runUntil(0, error, /*graphs=*/false);
    EXPECT_THAT(errors[1], AllOf(HasSubstr(name), HasSubstr("on rank 1"), HasSubstr("cuda:1"),
                                 HasSubstr("in step gelu_bias (onnx node /Gelu)")));
    EXPECT_NE(errors[0], "");
  }
}

TEST_F(CudaFaultTest, LostGpuInAGraphIsToldToAll) {
  for (int kernels : {1, 2, 3}) {
    std::vector<std::string> errors = runUntil(kernels, 700, /*graphs=*/true);
    EXPECT_THAT(errors[1], AllOf(HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"), HasSubstr("on rank 1")));
    EXPECT_THAT(errors[1], HasSubstr("in a graph: run without graphs to see in which step"));
    EXPECT_NE(errors[0], "");
  }
}

TEST_F(CudaMiniatureTest, WithoutADriverOneLineSaysSo) {
  setenv("GRIDLOOM_CUDA_DRIVER", "libcuda_missing.so.1", 1);
  for (const std::string &error : run())
    EXPECT_THAT(error, AllOf(StartsWith("libcuda_missing.so.1 not found: the NVIDIA driver is not "
                                        "installed on this machine"),
                             testing::Not(HasSubstr("\n"))));
}

} // namespace
