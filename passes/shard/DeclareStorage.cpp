//===- DeclareStorage.cpp - how weights and states lie in memory ------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/dist/Splits.h"
#include "passes/shard/Shard.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

namespace gridloom {
#define GEN_PASS_DEF_DECLARESTORAGE
#include "passes/shard/Passes.h.inc"
} // namespace gridloom

namespace {
struct DeclareStoragePass : public gridloom::impl::DeclareStorageBase<DeclareStoragePass> {
  using DeclareStorageBase::DeclareStorageBase;

  void runOnOperation() override {
    Mesh mesh = Mesh::get(getOperation());
    auto declare = [](Value value) {
      ShardingAttr sharding = getSharding(value);
      if (sharding && !getStorage(value))
        setStorage(value, sharding);
    };
    // As it is split, without axes that cannot split it: a dimension of one element stays whole.
    auto declareWeight = [&](loom::GetWeightOp weight) {
      ShardingAttr sharding = getSharding(weight.getOutput());
      if (!sharding || getStorage(weight.getOutput()))
        return;
      ShardingRule rule = cast<ShardingRuleInterface>(weight.getOperation()).getShardingRule();
      FactorSplits splits = mergeFactors(rule, {Sharding(sharding)}, getTensorTypes(weight), mesh);
      setStorage(weight.getOutput(), project(rule, 0, splits, mesh).getAttr(mesh));
    };
    for (auto func : getOperation().getOps<func::FuncOp>()) {
      for (BlockArgument argument : func.getArguments())
        if (func.getArgAttr(argument.getArgNumber(), loom::kState))
          declare(argument);
      for (auto weight : func.getOps<loom::GetWeightOp>())
        declareWeight(weight);
    }
  }
};
} // namespace
