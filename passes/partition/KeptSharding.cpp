//===- KeptSharding.cpp - a value resharded once for many readers ---------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/partition/KeptSharding.h"

#include "dialects/dist/Splits.h"
#include "dialects/loom/Uses.h"
#include "passes/partition/Resharder.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

/// The distinct shardings that the value's readers need, in program order; nullopt if a reader does
/// not say what it needs.
static std::optional<SmallVector<Sharding>> findNeeds(OpResult value, const Mesh &mesh) {
  SmallVector<Sharding> needs;
  for (OpOperand *use : loom::listUses(value)) {
    Operation *user = use->getOwner();
    unsigned i = use->getOperandNumber();
    Sharding need;
    if (isa<func::ReturnOp>(user)) {
      auto attr =
          cast<func::FuncOp>(user->getParentOp()).getResultAttrOfType<ShardingAttr>(i, kSharding);
      if (!attr)
        return std::nullopt;
      need = Sharding(attr);
    } else {
      auto ruled = dyn_cast<ShardingRuleInterface>(user);
      if (!ruled || !user->hasAttr(kSplits))
        return std::nullopt;
      ShardingRule rule = ruled.getShardingRule();
      FailureOr<OpSplits> splits = readSplits(user, rule, mesh);
      if (failed(splits))
        return std::nullopt;
      need = getSplitShardings(user, rule, *splits, mesh)[i];
    }
    if (!llvm::is_contained(needs, need))
      needs.push_back(std::move(need));
  }
  return needs;
}

/// The time to reshard the value to each of the shardings in turn, each from the nearest one it
/// already has; infinite if one cannot be reached.
static double getSeconds(Sharding made, ArrayRef<Sharding> wanted, RankedTensorType type,
                         const Mesh &mesh) {
  SmallVector<Sharding> there = {std::move(made)};
  double sum = 0;
  for (const Sharding &want : wanted) {
    double least = std::numeric_limits<double>::infinity();
    for (const Sharding &from : there)
      if (FailureOr<SmallVector<ReshardStep>> plan = planReshard(from, want, type, mesh);
          succeeded(plan))
        least =
            std::min(least, getReshardCost(*plan, getLocalType(type, from, mesh), mesh).seconds);
    sum += least;
    there.push_back(want);
  }
  return sum;
}

std::optional<Sharding> gridloom::findKept(OpResult value, const Sharding &made, const Mesh &mesh) {
  ShardingAttr declared = getSharding(value);
  if (!declared || value.use_empty() || value.hasOneUse())
    return std::nullopt;
  Sharding kept(declared);
  auto type = cast<RankedTensorType>(value.getType());
  if (areSamePlacement(kept, made, type, mesh))
    return std::nullopt;
  std::optional<SmallVector<Sharding>> needs = findNeeds(value, mesh);
  if (!needs || needs->size() < 2 || needs->front() == kept)
    return std::nullopt;
  SmallVector<Sharding> through = {kept};
  llvm::append_range(through, *needs);
  // Differences due to rounding do not count.
  constexpr double rounding = 1 - 1e-9;
  if (getSeconds(made, through, type, mesh) < rounding * getSeconds(made, *needs, type, mesh))
    return kept;
  return std::nullopt;
}
