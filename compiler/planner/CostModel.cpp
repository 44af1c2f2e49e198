//===- CostModel.cpp - predicted time and memory ----------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/planner/CostModel.h"

#include "dialects/loom/Control.h"
#include "dialects/loom/Work.h"

#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

namespace {
struct StageCost {
  double seconds = 0; ///< of a micro-batch
  int64_t leastBytes = 0;
};
} // namespace

/// Bytes of states, and of inputs and outputs over all micro-batches.
static int64_t getBindingBytes(func::FuncOp func) {
  auto count = func->getAttrOfType<IntegerAttr>(kMicrobatches);
  auto isCut = [](ShardingAttr sharding) {
    return sharding && !sharding.getDims().empty() &&
           llvm::any_of(sharding.getDims()[0].getAxes(),
                        [](StringAttr axis) { return axis.getValue() == MeshOp::kMicroAxis; });
  };
  auto bytesOf = [&](Type type, ShardingAttr sharding) {
    return loom::getByteSize(type) * (count && isCut(sharding) ? count.getInt() : 1);
  };
  int64_t bytes = 0;
  for (auto [i, type] : llvm::enumerate(func.getArgumentTypes()))
    bytes += bytesOf(type, func.getArgAttrOfType<ShardingAttr>(i, kSharding));
  for (auto [i, type] : llvm::enumerate(func.getResultTypes()))
    if (!func.getResultAttr(i, loom::kState))
      bytes += bytesOf(type, func.getResultAttrOfType<ShardingAttr>(i, kSharding));
  return bytes;
}

static StageCost costStage(func::FuncOp func, const Mesh &mesh) {
  StageCost cost;
  cost.leastBytes = getBindingBytes(func);
  llvm::DenseSet<std::pair<Attribute, Attribute>> weights;
  // The number of runs of each function: a loop's body runs once per iteration.
  llvm::DenseMap<Operation *, double> runs = {{func, 1}};
  SmallVector<func::FuncOp> functions = {func};
  loom::forEachBody(func, [&](Operation *op, func::FuncOp body) {
    auto loop = dyn_cast<loom::WhileOp>(op);
    double trips = loop ? static_cast<double>(loop.getTrips().value_or(1)) : 1;
    runs[body] = trips * runs.lookup(op->getParentOp());
    functions.push_back(body);
  });
  auto visit = [&](Operation *op, double times) {
    if (loom::isControl(op))
      return;
    if (isa<StartOp>(op->getParentOp())) // a group's time includes its members'
      return;
    if (isCommunication(op) || isa<StartOp>(op)) {
      cost.seconds += times * loom::getCommunicationSeconds(op, mesh);
      return;
    }
    if (auto weight = dyn_cast<loom::GetWeightOp>(op)) {
      Attribute sharding = weight.getSharding() ? *weight.getSharding() : Attribute();
      if (weights.insert({weight.getNameAttr(), sharding}).second)
        cost.leastBytes += loom::getByteSize(weight.getType());
      return;
    }
    cost.seconds += times * loom::getComputeSeconds(op, mesh.getMachine());
  };
  for (func::FuncOp function : functions)
    function.walk([&](Operation *op) { visit(op, runs.lookup(function)); });
  return cost;
}

std::vector<Estimate> gridloom::estimate(ModuleOp module) {
  Mesh mesh = Mesh::get(module);
  // Stages of one specialisation share entry and bound dimensions.
  llvm::MapVector<std::pair<Attribute, Attribute>, SmallVector<func::FuncOp>> specialisations;
  for (auto func : module.getOps<func::FuncOp>())
    if (!loom::isBody(func))
      specialisations[{func->getAttr(loom::kEntry), func->getAttr(loom::kDims)}].push_back(func);
  std::vector<Estimate> estimates;
  for (auto &[key, stages] : specialisations) {
    Estimate result;
    double slowest = 0;
    for (func::FuncOp func : stages) {
      StageCost cost = costStage(func, mesh);
      if (auto count = func->getAttrOfType<IntegerAttr>(kMicrobatches))
        result.microbatches = count.getInt();
      result.microSeconds += cost.seconds;
      slowest = std::max(slowest, cost.seconds);
      result.leastBytes = std::max(result.leastBytes, cost.leastBytes);
    }
    result.seconds = result.microSeconds + static_cast<double>(result.microbatches - 1) * slowest;
    estimates.push_back(result);
  }
  return estimates;
}
