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
    auto declare = [](Value value) {
      ShardingAttr sharding = getSharding(value);
      if (sharding && !getStorage(value))
        setStorage(value, sharding);
    };
    for (auto func : getOperation().getOps<func::FuncOp>()) {
      for (BlockArgument argument : func.getArguments())
        if (func.getArgAttr(argument.getArgNumber(), loom::kState))
          declare(argument);
      for (auto weight : func.getOps<loom::GetWeightOp>())
        declare(weight.getOutput());
    }
  }
};
} // namespace
