//===- RequireUsedAxes.cpp - no axis of the mesh for nothing ----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/dist/Sharding.h"
#include "passes/shard/Shard.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

namespace gridloom {
#define GEN_PASS_DEF_REQUIREUSEDAXES
#include "passes/shard/Passes.h.inc"
} // namespace gridloom

/// The obstacle for the first weight that was tried, in parentheses; empty if there is none.
static std::string getObstacle(ModuleOp module, StringAttr axis) {
  std::string text;
  module.walk([&](loom::GetWeightOp weight) {
    OriginAttr origin = gridloom::dist::getOrigin(weight.getOutput());
    if (!origin || origin.getTried() != axis)
      return WalkResult::advance();
    text =
        (" (weight '" + weight.getName() + "': " + origin.getReplicated().getValue() + ")").str();
    return WalkResult::interrupt();
  });
  return text;
}

namespace {
struct RequireUsedAxesPass : public gridloom::impl::RequireUsedAxesBase<RequireUsedAxesPass> {
  using RequireUsedAxesBase::RequireUsedAxesBase;

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
      // The longest dimension may not be one that can be split; it bounds what can.
      auto error = getOperation().emitError("axis '")
                   << axis.name.getValue() << "' of " << axis.size
                   << " devices splits nothing of the model: ";
      if (largest < axis.size)
        error << "its longest dimension has " << largest << " elements; use a smaller axis";
      else
        error << "no input or weight has a dimension that the strategy can cut in " << axis.size
              << " without gathering it again" << getObstacle(getOperation(), axis.name)
              << "; use a smaller or another axis, or --shard";
      return signalPassFailure();
    }
  }
};
} // namespace
