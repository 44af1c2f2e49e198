//===- Propagate.cpp - complete the shardings -------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/shard/Propagation.h"
#include "passes/shard/Shard.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

namespace gridloom {
#define GEN_PASS_DEF_PROPAGATE
#include "passes/shard/Passes.h.inc"
} // namespace gridloom

namespace {
struct PropagatePass : public gridloom::impl::PropagateBase<PropagatePass> {
  using PropagateBase::PropagateBase;

  void runOnOperation() override {
    MeshOp mesh = getMesh(getOperation());
    if (!mesh) {
      getOperation().emitError("no mesh is declared");
      return signalPassFailure();
    }
    for (auto func : getOperation().getOps<func::FuncOp>()) {
      Propagation state(func, Mesh(mesh));
      state.run();
      state.commit(/*close=*/true);
      remarkConflicts(state);
    }
  }

private:
  /// Says where an operation's tensors want different splits, and which one gives way.
  static void remarkConflicts(const Propagation &state) {
    for (Operation *op : state.getOperations()) {
      SmallVector<Layout> layouts;
      SmallVector<Value> values(op->getOperands());
      llvm::append_range(values, op->getResults());
      for (Value value : values)
        layouts.push_back(state.lookup(value).layout);
      SmallVector<FactorConflict> conflicts;
      mergeFactors(cast<ShardingRuleInterface>(op).getShardingRule(), layouts, getTensorTypes(op),
                   state.getMesh(), &conflicts);
      for (const FactorConflict &conflict : conflicts)
        op->emitRemark("shardings disagree at '")
            << loom::getNodeName(op->getLoc()) << "': tensor " << conflict.loser << ", "
            << layouts[conflict.loser].getAttr(state.getMesh()) << " from "
            << state.lookup(values[conflict.loser]).describe()
            << ", is resharded because fewer bytes have its split";
    }
  }
};
} // namespace
