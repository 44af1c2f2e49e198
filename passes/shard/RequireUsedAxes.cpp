//===- RequireUsedAxes.cpp - refuse meshes with unused axes -----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/dist/Sharding.h"
#include "dialects/loom/Training.h"
#include "passes/shard/Shard.h"
#include "passes/shard/StrategyWriter.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

namespace gridloom {
#define GEN_PASS_DEF_REQUIREUSEDAXES
#include "passes/shard/Passes.h.inc"
} // namespace gridloom

/// Calls `visit` for each weight, read from a file or trained as a state, with its name.
static void forEachWeight(ModuleOp module, llvm::function_ref<void(Value, StringRef)> visit) {
  for (auto func : module.getOps<func::FuncOp>()) {
    for (BlockArgument argument : func.getArguments())
      if (auto name = func.getArgAttrOfType<StringAttr>(argument.getArgNumber(), loom::kName);
          name && loom::isWeight(argument))
        visit(argument, name);
    func.walk([&](loom::GetWeightOp weight) { visit(weight.getOutput(), weight.getName()); });
  }
}

/// The obstacle, in parentheses: the first weight that a user split, but not over the axis, else
/// the first that a strategy failed to split. Empty if there is none.
static std::string describeObstacle(ModuleOp module, StringAttr axis) {
  std::string given, tried;
  forEachWeight(module, [&](Value weight, StringRef name) {
    OriginAttr origin = gridloom::dist::getOrigin(weight);
    if (!origin)
      return;
    if (origin.getTried() == axis && tried.empty())
      tried = (" (weight '" + name + "': " + origin.getReplicated().getValue() + ")").str();
    ShardingAttr sharding = getSharding(weight);
    auto isGiven = [](const auto &axis) { return axis.second.getValue() == "user"; };
    if (!given.empty() || llvm::none_of(origin.getAxes(), isGiven))
      return;
    std::string dims = printSharding(Sharding(sharding));
    given = (" (weight '" + name + "' is given as " + dims + ", without it; 'stored" + dims +
             "' says only how it lies)")
                .str();
  });
  return given.empty() ? tried : given;
}

/// Whether every input's batch, the dimension that is split most or else the first, has a row for
/// each device of the axis besides.
static bool canSplitBatch(ModuleOp module, const Mesh &mesh, int64_t devices) {
  bool found = false;
  for (auto func : module.getOps<func::FuncOp>())
    for (BlockArgument argument : func.getArguments()) {
      auto type = cast<RankedTensorType>(argument.getType());
      ShardingAttr sharding = getSharding(argument);
      if (type.getRank() == 0 || loom::isOfTraining(argument) || !sharding)
        continue;
      int64_t batch = 0, parts = 1;
      for (auto [dim, split] : llvm::enumerate(sharding.getDims()))
        if (int64_t size = mesh.getSize(split.getAxes()); size > parts) {
          batch = static_cast<int64_t>(dim);
          parts = size;
        }
      if (type.getDimSize(batch) < parts * devices)
        return false;
      found = true;
    }
  return found;
}

namespace {
struct RequireUsedAxesPass : public gridloom::impl::RequireUsedAxesBase<RequireUsedAxesPass> {
  using RequireUsedAxesBase::RequireUsedAxesBase;

  std::string listRemedies(const Mesh::Axis &axis, const Mesh &mesh) {
    std::string text = "a smaller or another axis, ";
    if (llvm::is_contained(tp, axis.name.getValue()) &&
        canSplitBatch(getOperation(), mesh, axis.size))
      text += "--strategy dp, which splits the batch over it too, ";
    return text + "--strategy search, which may leave it idle, or --shard";
  }

  void runOnOperation() override {
    MeshOp meshOp = getMesh(getOperation());
    if (!meshOp)
      return;
    Mesh mesh(meshOp);
    llvm::DenseSet<StringAttr> used;
    int64_t largest = 1;
    auto use = [&](ShardingAttr sharding) {
      if (sharding)
        for (DimShardingAttr dim : sharding.getDims())
          used.insert_range(dim.getAxes());
    };
    auto visit = [&](Value value) {
      for (int64_t size : cast<RankedTensorType>(value.getType()).getShape())
        largest = std::max(largest, size);
      use(getSharding(value));
    };
    for (auto func : getOperation().getOps<func::FuncOp>()) {
      llvm::for_each(func.getArguments(), visit);
      for (unsigned i = 0; i < func.getNumResults(); ++i)
        use(func.getResultAttrOfType<ShardingAttr>(i, kSharding));
      func.walk([&](Operation *op) { llvm::for_each(op->getResults(), visit); });
    }
    for (const Mesh::Axis &axis : mesh.getAxes()) {
      if (axis.size == 1 || axis.name.getValue() == stageAxis || used.contains(axis.name))
        continue;
      // An upper bound: the longest dimension may not be one that can be split.
      auto error = getOperation().emitError("axis '")
                   << axis.name.getValue() << "' of " << axis.size
                   << " devices splits nothing of the model: ";
      if (largest < axis.size)
        error << "its longest dimension has " << largest << " elements; use a smaller axis";
      else
        error << "no input or weight has a dimension that the strategy can cut in " << axis.size
              << " without gathering it again" << describeObstacle(getOperation(), axis.name)
              << "; use " << listRemedies(axis, mesh);
      return signalPassFailure();
    }
  }
};
} // namespace
