//===- ResharderTest.cpp - every pair of shardings on small meshes ----------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// All pairs of shardings of tensors of rank 1 to 3 on all meshes of up to 8 devices with one to
// three axes: partial sources, targets that stay partial, sizes that divide and that do not,
// granules. Meshes of two and three axes are sampled; GRIDLOOM_EXHAUSTIVE=1 runs all pairs.
//
//===----------------------------------------------------------------------===//
#include "InterpreterTesting.h"

#include "ReshardSimulator.h"

#include "dialects/loom/Loom.h"

#include "llvm/ADT/StringSet.h"

#include <chrono>
#include <ctime>
#include <iostream>
#include <random>

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;
using namespace gridloom::testing;

namespace {

using Sizes = std::vector<int64_t>;

const std::vector<Sizes> kMeshes = {{2},    {3},    {4},    {5},    {6},    {7},      {8},
                                    {2, 2}, {2, 3}, {3, 2}, {2, 4}, {4, 2}, {2, 2, 2}};
const std::vector<Sizes> kShapes = {{8},    {5},     {12},      {3},       {8, 8},    {5, 7},
                                    {6, 4}, {12, 3}, {8, 8, 8}, {5, 7, 6}, {4, 6, 3}, {2, 9, 1}};
/// Granules of the source's and the target's split dimensions.
const std::pair<int64_t, int64_t> kGranules[] = {{1, 1}, {2, 2}, {1, 2}, {3, 1}};

bool isExhaustive() { return std::getenv("GRIDLOOM_EXHAUSTIVE") != nullptr; }

/// A mesh with axes a, b, c and an empty module around it.
struct Fixture {
  explicit Fixture(const Sizes &axisSizes, llvm::StringRef first = "a")
      : builder(context.get()), module(ModuleOp::create(builder.getUnknownLoc())) {
    builder.setInsertionPointToStart(module->getBody());
    SmallVector<Attribute> axes;
    for (auto [i, size] : llvm::enumerate(axisSizes)) {
      std::string name = i == 0 ? first.str() : std::string(1, static_cast<char>('a' + i));
      axes.push_back(AxisAttr::get(context.get(), name, size));
      names.push_back(builder.getStringAttr(name));
    }
    op = MeshOp::create(builder, builder.getUnknownLoc(), "mesh", builder.getArrayAttr(axes));
    mesh.emplace(op);
  }
  Context context;
  OpBuilder builder;
  OwningOpRef<ModuleOp> module;
  MeshOp op;
  std::optional<Mesh> mesh;
  SmallVector<StringAttr> names;
};

/// All ways to place every axis on a dimension, in every order, unreduced or unused.
void enumerateShardings(ArrayRef<StringAttr> axes, const Sharding &sharding,
                        std::vector<Sharding> &out) {
  out.push_back(sharding);
  for (auto [i, axis] : llvm::enumerate(axes)) {
    SmallVector<StringAttr> rest(axes);
    rest.erase(rest.begin() + i);
    for (size_t dim = 0; dim < sharding.dims.size(); ++dim) {
      Sharding next = sharding;
      next.dims[dim].axes.push_back(axis);
      enumerateShardings(rest, next, out);
    }
    if (sharding.unreduced.empty() || sharding.unreduced.back().getValue() < axis.getValue()) {
      Sharding next = sharding;
      next.unreduced.push_back(axis);
      enumerateShardings(rest, next, out);
    }
  }
}

std::string print(const Sharding &sharding, const Mesh &mesh) {
  std::string text;
  llvm::raw_string_ostream(text) << sharding.getAttr(mesh);
  return text;
}

std::string print(ArrayRef<ReshardStep> steps) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  const char *names[] = {"slice",      "reduce_scatter", "all_reduce",
                         "all_to_all", "all_gather",     "permute"};
  for (const ReshardStep &step : steps) {
    stream << "\n  " << names[step.kind] << " over";
    for (StringAttr axis : step.axes)
      stream << " " << axis.getValue();
    stream << " dim " << step.dim << " split " << step.splitDim << " pad " << step.padTo << " trim "
           << step.trimTo;
  }
  return text;
}

std::vector<Sharding> makeShardings(const Fixture &fixture, size_t rank) {
  std::vector<Sharding> all, unique;
  enumerateShardings(fixture.names, Sharding::replicated(rank), all);
  llvm::StringSet<> seen;
  for (Sharding &sharding : all)
    if (seen.insert(print(sharding, *fixture.mesh)).second)
      unique.push_back(std::move(sharding));
  return unique;
}

bool setGranule(Sharding &sharding, int64_t granule) {
  bool isSplit = false;
  for (Sharding::Dim &dim : sharding.dims)
    if (!dim.axes.empty()) {
      dim.granule = granule;
      isSplit = true;
    }
  return isSplit || granule == 1;
}

/// Bytes that a device sends to reduce all axes that the target reduces, gather every dimension,
/// and slice.
double getGatherBytes(const Sharding &from, const Sharding &to, RankedTensorType whole,
                      const Mesh &mesh) {
  RankedTensorType local = getLocalType(whole, from, mesh);
  auto bytes = static_cast<double>(local.getNumElements() * whole.getElementTypeBitWidth() / 8);
  double total = 0;
  AxisList pending;
  for (StringAttr axis : from.unreduced)
    if (!llvm::is_contained(to.unreduced, axis))
      pending.push_back(axis);
  auto members = static_cast<double>(mesh.getSize(pending));
  total += 2 * bytes * (members - 1) / members;
  for (auto [i, dim] : llvm::enumerate(from.dims)) {
    total += bytes * static_cast<double>(mesh.getSize(dim.axes) - 1);
    bytes =
        bytes / static_cast<double>(local.getDimSize(i)) * static_cast<double>(whole.getDimSize(i));
  }
  return total;
}

struct Figures {
  int64_t pairs = 0, wrong = 0, dearer = 0, collectives = 0, nanoseconds = 0;
  size_t most = 0;
  double bytes = 0, gatherBytes = 0;
  std::string example;
};

void countPair(const ReshardSimulator &simulator, const std::vector<Shard> &start,
               const Sharding &from, const Sharding &to, RankedTensorType whole, const Mesh &mesh,
               Figures &figures) {
  auto before = std::chrono::steady_clock::now();
  FailureOr<SmallVector<ReshardStep>> steps = planReshard(from, to, whole, mesh);
  figures.nanoseconds += std::chrono::duration_cast<std::chrono::nanoseconds>(
                             std::chrono::steady_clock::now() - before)
                             .count();
  ++figures.pairs;
  auto complain = [&](int64_t &counter, const std::string &what) {
    ++counter;
    if (figures.example.empty())
      figures.example = what + ": " + print(from, mesh) + " to " + print(to, mesh) +
                        (succeeded(steps) ? print(*steps) : std::string());
  };
  if (failed(steps))
    return complain(figures.wrong, "no plan");
  int64_t device = simulator.findWrong(simulator.run(*steps, start, from.reduction), from, to);
  if (device >= 0)
    complain(figures.wrong, "device " + std::to_string(device) + " is wrong");
  double bytes = getReshardCost(*steps, getLocalType(whole, from, mesh), mesh).sent;
  double most = getGatherBytes(from, to, whole, mesh);
  if (bytes > most + 1e-6)
    complain(figures.dearer,
             std::to_string(bytes) + " bytes, gathering takes " + std::to_string(most));
  figures.bytes += bytes;
  figures.gatherBytes += most;
  size_t count = llvm::count_if(
      *steps, [](const ReshardStep &step) { return step.kind != ReshardStep::Slice; });
  figures.collectives += static_cast<int64_t>(count);
  figures.most = std::max(figures.most, count);
}

/// Every pair on one mesh for tensors of one shape; `keep` decides which to run. The size of the
/// elements decides whether bytes or rounds dominate.
void countShape(const Fixture &fixture, const Sizes &shape, unsigned elementBits,
                llvm::function_ref<bool()> keep, Figures &figures) {
  const Mesh &mesh = *fixture.mesh;
  ReshardSimulator simulator(mesh, shape);
  auto whole =
      RankedTensorType::get(shape, IntegerType::get(fixture.mesh->getContext(), elementBits));
  std::vector<Sharding> shardings = makeShardings(fixture, shape.size());
  for (auto [granuleFrom, granuleTo] : kGranules)
    for (Sharding from : shardings) {
      if (!setGranule(from, granuleFrom))
        continue;
      // Every fourth partial source is a maximum instead of a sum.
      if (!from.unreduced.empty() && figures.pairs % 4 == 0)
        from.reduction = ReductionKind::Max;
      std::vector<Shard> start = simulator.make(from);
      for (Sharding to : shardings) {
        bool isReachable = llvm::all_of(to.unreduced, [&](StringAttr axis) {
          return llvm::is_contained(from.unreduced, axis);
        });
        if (!isReachable || !setGranule(to, granuleTo) || !keep())
          continue;
        to.reduction = from.reduction;
        countPair(simulator, start, from, to, whole, mesh, figures);
      }
    }
}

class ResharderTest : public ::testing::TestWithParam<Sizes> {};

/// Every pair is planned twice: for small tensors, where plans save rounds, and for large ones,
/// where they save bytes.
TEST_P(ResharderTest, EveryPairOfShardings) {
  Fixture fixture(GetParam());
  std::mt19937 random(7);
  for (auto [name, bits] : {std::pair("small", 32U), std::pair("large", 1U << 23)})
    for (size_t rank = 1; rank <= 3; ++rank) {
      Figures figures;
      uint32_t every = isExhaustive() || GetParam().size() == 1 ? 1
                       : rank == 3                              ? 32
                       : rank == 2 && bits == 32                ? 8
                                                                : 1;
      for (const Sizes &shape : kShapes)
        if (shape.size() == rank)
          countShape(fixture, shape, bits, [&] { return random() % every == 0; }, figures);
      std::cout << name << " tensors of rank " << rank << (every > 1 ? " (sampled): " : ": ")
                << figures.pairs << " pairs, " << figures.wrong << " wrong, " << figures.dearer
                << " dearer than gathering; collectives: "
                << double(figures.collectives) / double(figures.pairs) << " on average, "
                << figures.most << " at most; bytes: " << 100 * figures.bytes / figures.gatherBytes
                << " % of gathering; " << double(figures.nanoseconds) / 1000 / double(figures.pairs)
                << " us a plan\n";
      EXPECT_GT(figures.pairs, 10);
      EXPECT_EQ(figures.wrong, 0) << figures.example;
      EXPECT_EQ(figures.dearer, 0) << figures.example;
    }
}

/// A reshard as a program: the input is sharded as `from`; where `from` is partial, member i of the
/// group contributes i + 1 times the value.
void buildProgram(Fixture &fixture, const Sharding &from, const Sharding &to,
                  RankedTensorType whole, ArrayRef<ReshardStep> steps) {
  const Mesh &mesh = *fixture.mesh;
  OpBuilder &builder = fixture.builder;
  Location loc = builder.getUnknownLoc();
  builder.setInsertionPointToEnd(fixture.module->getBody());
  Sharding input = from;
  input.unreduced.clear();
  RankedTensorType local = getLocalType(whole, input, mesh);
  auto func = func::FuncOp::create(
      builder, loc, "main", builder.getFunctionType({local}, {getLocalType(whole, to, mesh)}));
  func->setAttr(loom::kEntry, builder.getStringAttr("main"));
  func->setAttr(loom::kDims, builder.getDictionaryAttr({}));
  func->setAttr(kStage, builder.getI64IntegerAttr(0));
  func->setAttr(kMicrobatches, builder.getI64IntegerAttr(1));
  func.setArgAttr(0, loom::kName, builder.getStringAttr("x"));
  func.setArgAttr(0, kSharding, input.getAttr(mesh));
  func.setArgAttr(0, loom::kGlobalType, TypeAttr::get(whole));
  func.setResultAttr(0, loom::kName, builder.getStringAttr("out"));
  func.setResultAttr(0, kSharding, to.getAttr(mesh));
  func.setResultAttr(0, loom::kGlobalType, TypeAttr::get(whole));
  builder.setInsertionPointToStart(func.addEntryBlock());
  Value value = func.getArgument(0);
  if (!from.unreduced.empty()) {
    auto scalar = RankedTensorType::get({}, builder.getI64Type());
    SmallVector<Attribute> axes(from.unreduced.begin(), from.unreduced.end());
    Value index = AxisIndexOp::create(builder, loc, scalar, builder.getArrayAttr(axes));
    Value one = loom::ConstantOp::create(
        builder, loc, DenseElementsAttr::get(scalar, builder.getI64IntegerAttr(1)));
    Value factor = loom::AddOp::create(builder, loc, scalar, index, one);
    value = loom::MultiplyOp::create(
        builder, loc, local, value,
        loom::BroadcastOp::create(builder, loc, local, factor, ArrayRef<int64_t>{}));
  }
  value = emitReshard(builder, loc, value, steps, ReductionKind::Sum, mesh);
  func::ReturnOp::create(builder, loc, value);
}

class ResharderProgramTest : public ::testing::TestWithParam<Sizes> {};

TEST_P(ResharderProgramTest, ComputesWhatTheStepsDo) {
  std::mt19937 random(11);
  for (const Sizes &shape : kShapes)
    for (int sample = 0; sample < 12; ++sample) {
      Fixture fixture(GetParam());
      const Mesh &mesh = *fixture.mesh;
      std::vector<Sharding> shardings = makeShardings(fixture, shape.size());
      auto pick = [&] { return shardings[random() % shardings.size()]; };
      Sharding from = pick(), to = pick();
      to.unreduced.clear();
      auto [granuleFrom, granuleTo] = kGranules[sample % std::size(kGranules)];
      setGranule(from, granuleFrom);
      setGranule(to, granuleTo);
      auto whole = RankedTensorType::get(shape, fixture.builder.getI64Type());
      FailureOr<SmallVector<ReshardStep>> steps = planReshard(from, to, whole, mesh);
      ASSERT_TRUE(succeeded(steps));
      buildProgram(fixture, from, to, whole, *steps);
      std::vector<int64_t> input, expected;
      int64_t members = mesh.getSize(from.unreduced), factor = members * (members + 1) / 2;
      for (int64_t i = 0; i < whole.getNumElements(); ++i) {
        input.push_back(i * 37 % 101 - 50);
        expected.push_back(input.back() * factor);
      }
      NamedTensors inputs;
      inputs["x"] = ints(shape, input);
      auto outputs = gridloom::testing::run(*fixture.module, inputs);
      ASSERT_TRUE(succeeded(outputs))
          << fixture.context.takeError() << print(from, mesh) << " to " << print(to, mesh);
      EXPECT_TRUE((*outputs)["out"].isBitwiseEqual(ints(shape, expected)))
          << print(from, mesh) << " to " << print(to, mesh) << print(*steps);
    }
}

std::string getName(const ::testing::TestParamInfo<Sizes> &info) {
  std::string name = "mesh";
  for (int64_t size : info.param)
    name += "_" + std::to_string(size);
  return name;
}

/// The simulation detects wrong steps: every plan with a planted fault must give a wrong result.
TEST(ResharderFaultTest, SimulationSeesWrongSteps) {
  Fixture fixture({2, 2, 2});
  const Mesh &mesh = *fixture.mesh;
  Sizes shape = {5, 7};
  ReshardSimulator simulator(mesh, shape);
  auto whole = RankedTensorType::get(shape, fixture.builder.getF32Type());
  int64_t planted = 0, seen = 0;
  for (const Sharding &from : makeShardings(fixture, 2))
    for (const Sharding &to : makeShardings(fixture, 2)) {
      FailureOr<SmallVector<ReshardStep>> steps = planReshard(from, to, whole, mesh);
      if (failed(steps))
        continue;
      std::vector<Shard> start = simulator.make(from);
      for (size_t i = 0; i < steps->size(); ++i) {
        SmallVector<ReshardStep> wrong = *steps;
        ReshardStep &step = wrong[i];
        if (step.kind == ReshardStep::Permute)
          std::rotate(step.permutation.begin(), step.permutation.begin() + 1,
                      step.permutation.end());
        else if (step.kind == ReshardStep::AllReduce)
          wrong.erase(wrong.begin() + static_cast<int64_t>(i));
        else if (step.axes.size() > 1)
          std::swap(step.axes.front(), step.axes.back());
        else
          continue;
        ++planted;
        seen += simulator.findWrong(simulator.run(wrong, start, from.reduction), from, to) >= 0;
      }
    }
  std::cout << planted << " wrong steps, " << seen << " seen\n";
  EXPECT_GT(planted, 500);
  EXPECT_EQ(seen, planted);
}

TEST(ResharderLimitsTest, MicroBatchesAreNotCommunicatedOver) {
  Fixture fixture({2, 2}, "micro");
  auto whole = RankedTensorType::get({8, 8}, fixture.builder.getF32Type());
  int64_t possible = 0, impossible = 0;
  for (const Sharding &from : makeShardings(fixture, 2))
    for (const Sharding &to : makeShardings(fixture, 2)) {
      FailureOr<SmallVector<ReshardStep>> steps = planReshard(from, to, whole, *fixture.mesh);
      bool isPartial = llvm::all_of(
          to.unreduced, [&](StringAttr axis) { return llvm::is_contained(from.unreduced, axis); });
      // The micro-batch axis and axes major to it must not move.
      auto getFixed = [&](const Sharding &sharding) {
        SmallVector<AxisList> fixed;
        for (const Sharding::Dim &dim : sharding.dims) {
          auto micro = llvm::find(dim.axes, fixture.names[0]);
          fixed.push_back(micro == dim.axes.end() ? AxisList()
                                                  : AxisList(dim.axes.begin(), micro + 1));
        }
        return std::pair(fixed, llvm::is_contained(sharding.unreduced, fixture.names[0]));
      };
      bool expected = isPartial && getFixed(from) == getFixed(to);
      EXPECT_EQ(succeeded(steps), expected)
          << print(from, *fixture.mesh) << " to " << print(to, *fixture.mesh);
      ++(expected ? possible : impossible);
      if (succeeded(steps))
        for (const ReshardStep &step : *steps)
          EXPECT_FALSE(llvm::is_contained(step.axes, fixture.names[0]));
    }
  EXPECT_GT(possible, 20);
  EXPECT_GT(impossible, 20);
}

/// Axes of size one do not enlarge the search, however many there are.
TEST(ResharderLimitsTest, AxesOfOneDeviceDoNotCount) {
  Context context;
  OpBuilder builder(context.get());
  OwningOpRef<ModuleOp> module = ModuleOp::create(builder.getUnknownLoc());
  builder.setInsertionPointToStart(module->getBody());
  SmallVector<Attribute> axes;
  SmallVector<StringAttr> names;
  for (int i = 0; i < 34; ++i) {
    bool isLarge = i == 0 || i == 32 || i == 33;
    axes.push_back(AxisAttr::get(context.get(), "a" + std::to_string(i), isLarge ? 2 : 1));
    names.push_back(builder.getStringAttr("a" + std::to_string(i)));
  }
  Mesh mesh(MeshOp::create(builder, builder.getUnknownLoc(), "mesh", builder.getArrayAttr(axes)));
  auto whole = RankedTensorType::get({8, 8}, builder.getF32Type());
  ReshardSimulator simulator(mesh, whole.getShape());
  std::vector<Sharding> shardings;
  enumerateShardings({names[0], names[32], names[33], names[5]}, Sharding::replicated(2),
                     shardings);
  int64_t pairs = 0;
  for (size_t i = 0; i < shardings.size(); i += 29)
    for (size_t j = 1; j < shardings.size(); j += 17) {
      const Sharding &from = shardings[i], &to = shardings[j];
      if (!to.unreduced.empty())
        continue;
      FailureOr<SmallVector<ReshardStep>> steps = planReshard(from, to, whole, mesh);
      ASSERT_TRUE(succeeded(steps)) << print(from, mesh) << " to " << print(to, mesh);
      std::vector<Shard> shards = simulator.run(*steps, simulator.make(from), from.reduction);
      ASSERT_EQ(simulator.findWrong(shards, from, to), -1)
          << print(from, mesh) << " to " << print(to, mesh) << print(*steps);
      ++pairs;
    }
  EXPECT_GT(pairs, 30);
}

/// Planning on large meshes takes bounded time, and plans cost no more than gathering.
TEST(ResharderLimitsTest, LargeMeshesArePlannedSoon) {
  Fixture fixture({4, 8, 2, 4, 3});
  Sharding from = Sharding::replicated(4), to = Sharding::replicated(4);
  from.dims[0].axes = {fixture.names[0], fixture.names[1]};
  from.dims[1].axes = {fixture.names[2], fixture.names[4]};
  from.unreduced = {fixture.names[3]};
  to.dims[1].axes = {fixture.names[1], fixture.names[3]};
  to.dims[2].axes = {fixture.names[4], fixture.names[0]};
  to.dims[3].axes = {fixture.names[2]};
  auto whole = RankedTensorType::get({96, 100, 64, 130}, fixture.builder.getF32Type());
  // Processor time, so that other load on the machine does not count.
  std::clock_t before = std::clock();
  FailureOr<SmallVector<ReshardStep>> steps = planReshard(from, to, whole, *fixture.mesh);
  double seconds = double(std::clock() - before) / CLOCKS_PER_SEC;
  ASSERT_TRUE(succeeded(steps));
  double bytes =
      getReshardCost(*steps, getLocalType(whole, from, *fixture.mesh), *fixture.mesh).sent;
  double most = getGatherBytes(from, to, whole, *fixture.mesh);
  std::cout << "768 devices: " << seconds * 1000 << " ms, " << steps->size() << " steps, "
            << 100 * bytes / most << " % of gathering" << print(*steps) << "\n";
  EXPECT_LT(bytes, most / 10);
  EXPECT_LT(seconds, 5);
}

INSTANTIATE_TEST_SUITE_P(Meshes, ResharderTest, ::testing::ValuesIn(kMeshes), getName);
INSTANTIATE_TEST_SUITE_P(Meshes, ResharderProgramTest, ::testing::ValuesIn(kMeshes), getName);

} // namespace
