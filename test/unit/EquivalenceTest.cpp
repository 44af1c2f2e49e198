//===- EquivalenceTest.cpp - split programs equal unsplit ones ------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Programs of one or a few operations, each value with its own sharding over small meshes, are
// partitioned and interpreted on virtual ranks in exact mode: the outputs must be the unsplit
// program's, bit by bit, also after the communicate phase.
//
//===----------------------------------------------------------------------===//
#include "EquivalenceCases.h"

#include "dialects/dist/Sharding.h"
#include "passes/communicate/Communicate.h"
#include "passes/fuse/Fuse.h"
#include "passes/layout/Layout.h"
#include "passes/partition/Partition.h"
#include "passes/shard/Shard.h"

#include "mlir/Pass/PassManager.h"

#include <random>

using namespace gridloom;
using namespace gridloom::testing;
using loom::ElementKind;
using loom::HostTensor;

namespace {

struct Axes {
  const char *name;
  std::vector<std::pair<const char *, int64_t>> axes;
};
const Axes kMeshes[] = {{"2", {{"x", 2}}},
                        {"3", {{"x", 3}}},
                        {"4", {{"x", 4}}},
                        {"2x2", {{"x", 2}, {"y", 2}}},
                        {"2x3", {{"x", 2}, {"y", 3}}},
                        {"2x2x2", {{"x", 2}, {"y", 2}, {"z", 2}}}};
/// Random shardings per case and mesh, besides those where every value follows the first.
constexpr int kSamples = 40;

class Equivalence : public ::testing::TestWithParam<Case> {
protected:
  void insertMesh(mlir::ModuleOp module, const Axes &axes) {
    mlir::OpBuilder builder = mlir::OpBuilder::atBlockBegin(module.getBody());
    llvm::SmallVector<mlir::Attribute> list;
    for (auto [name, size] : axes.axes)
      list.push_back(dist::AxisAttr::get(context.get(), name, size));
    dist::MeshOp::create(builder, builder.getUnknownLoc(), "mesh", builder.getArrayAttr(list));
  }

  /// A sharding that puts each axis, in a random order, on a random dimension or none, also where
  /// sizes do not divide, in granules of up to three elements.
  dist::ShardingAttr makeSharding(mlir::RankedTensorType type, const dist::Mesh &mesh) {
    auto pick = [&](int64_t low, int64_t high) {
      return std::uniform_int_distribution<int64_t>(low, high)(random);
    };
    dist::Sharding sharding = dist::Sharding::replicated(type.getRank());
    auto axes = llvm::to_vector(mesh.getAxes());
    std::shuffle(axes.begin(), axes.end(), random);
    for (const dist::Mesh::Axis &axis : axes)
      if (int64_t dim = pick(-1, type.getRank() - 1); dim >= 0)
        sharding.dims[dim].axes.push_back(axis.name);
    for (dist::Sharding::Dim &dim : sharding.dims)
      if (!dim.axes.empty() && pick(0, 2) == 0)
        dim.granule = pick(2, 3);
    return sharding.getAttr(mesh);
  }

  void shard(mlir::ModuleOp module) {
    dist::Mesh mesh(dist::getMesh(module));
    for (auto function : module.getOps<mlir::func::FuncOp>()) {
      mlir::Builder builder(context.get());
      auto set = [&](mlir::Value value) {
        dist::setSharding(
            value, makeSharding(mlir::cast<mlir::RankedTensorType>(value.getType()), mesh), "test");
      };
      llvm::for_each(function.getArguments(), set);
      for (mlir::Operation &op : function.getBody().front()) {
        op.setAttr(dist::kStage, builder.getI64IntegerAttr(0));
        llvm::for_each(op.getResults(), set);
      }
      auto type = mlir::cast<mlir::RankedTensorType>(function.getResultTypes()[0]);
      function.setResultAttr(0, dist::kSharding, makeSharding(type, mesh));
      function.setResultAttr(0, dist::kOrigin, dist::OriginAttr::get(builder.getContext(), "test"));
    }
  }

  /// The output after the passes, in exact mode.
  llvm::FailureOr<HostTensor> runAfter(mlir::ModuleOp module,
                                       llvm::function_ref<void(mlir::OpPassManager &)> addPasses,
                                       const NamedTensors &inputs) {
    mlir::PassManager manager(context.get());
    addPasses(manager);
    if (failed(manager.run(module)))
      return mlir::failure();
    llvm::FailureOr<NamedTensors> outputs = run(module, inputs, exact);
    if (failed(outputs))
      return mlir::failure();
    return (*outputs)["out"];
  }

  static std::string print(mlir::ModuleOp module) {
    std::string text;
    llvm::raw_string_ostream stream(text);
    module.print(stream);
    return text;
  }

  Context context;
  InterpreterOptions exact{.exact = true, .observer = {}};
  std::mt19937 random{12345};
};

TEST_P(Equivalence, SplitIsUnsplit) {
  const Case &test = GetParam();
  auto module = context.parse(makeText(test));
  ASSERT_TRUE(module);
  NamedTensors inputs = makeCaseInputs(test, *module);
  auto expected = run(*module, inputs, exact);
  ASSERT_TRUE(succeeded(expected)) << context.takeError();
  for (const Axes &axes : kMeshes) {
    for (int sample = 0; sample < kSamples; ++sample) {
      mlir::OwningOpRef<mlir::ModuleOp> split = module->clone();
      insertMesh(*split, axes);
      shard(*split);
      std::string sharded = print(*split);
      auto check = [&](const char *phase,
                       llvm::function_ref<void(mlir::OpPassManager &)> addPasses) {
        auto actual = runAfter(*split, addPasses, inputs);
        ASSERT_TRUE(succeeded(actual))
            << phase << ", mesh " << axes.name << ": " << context.takeError() << "\n"
            << sharded << print(*split);
        ASSERT_TRUE(actual->isBitwiseEqual((*expected)["out"]))
            << phase << ", mesh " << axes.name << "\n"
            << sharded << print(*split);
      };
      check("partition", [](mlir::OpPassManager &pm) {
        pm.addPass(createChooseSplits());
        addPartitionPasses(pm);
      });
      if (!HasFatalFailure())
        check("communicate", [](mlir::OpPassManager &pm) { addCommunicatePasses(pm); });
      if (!HasFatalFailure())
        check("layout and fuse", [](mlir::OpPassManager &pm) {
          addLayoutPasses(pm, {});
          addFusePasses(pm, {});
        });
      if (HasFatalFailure())
        return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Operations, Equivalence, ::testing::ValuesIn(kCases),
                         [](const auto &info) { return std::string(info.param.name); });

} // namespace
