//===- MicroBatches.cpp - batches cut into micro-batches ------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/shard/MicroBatches.h"

#include "dialects/loom/Control.h"
#include "dialects/loom/Parts.h"
#include "dialects/loom/Training.h"

#include <numeric>

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

bool gridloom::isParallelOver(const Propagation &state, Operation *op, StringAttr axis) {
  const ShardingRule &rule = state.getRule(op);
  FactorSplits splits = op->hasAttr(kSplits) ? mergeFactors(rule, state.getShardings(op),
                                                            getTensorTypes(op), state.getMesh())
                                             : state.getSplits(op);
  for (auto [kind, list] : llvm::zip_equal(rule.kinds, splits.axes))
    if (kind == FactorKind::Reduction && llvm::is_contained(list, axis))
      return false;
  for (int64_t factor : rule.coupled)
    if (llvm::is_contained(splits.axes[factor], axis))
      return false;
  return true;
}

static std::string getNode(Location loc) { return "'" + loom::getNodeName(loc) + "'"; }

/// Whether the leading dimension is cut into micro-batches, minor to the axes of devices.
static bool isCutInTime(const Sharding &sharding) { return sharding.getMicroDim() == 0; }

Sharding gridloom::cutInTime(ShardingAttr pinned, StringAttr micro) {
  Sharding sharding(pinned);
  if (!sharding.dims.empty() && sharding.getMicroDim() < 0)
    sharding.dims[0].axes.push_back(micro);
  return sharding;
}

static std::string quote(Attribute name) {
  return "'" + (name ? cast<StringAttr>(name).str() : std::string()) + "'";
}

static std::optional<MicrobatchObstacle> findInputObstacle(const Propagation &state,
                                                           func::FuncOp func) {
  for (BlockArgument argument : func.getArguments()) {
    unsigned i = argument.getArgNumber();
    // A state exists once, not once per micro-batch.
    if (func.getArgAttr(i, loom::kState))
      return MicrobatchObstacle{func.getLoc(), getNode(func.getLoc()) + " needs all of it"};
    if (!isCutInTime(state.lookup(argument).sharding))
      return MicrobatchObstacle{func.getLoc(),
                                "a device's part of input " +
                                    quote(func.getArgAttr(i, loom::kName)) +
                                    " cannot be cut along its leading dimension",
                                /*isSize=*/true};
  }
  return std::nullopt;
}

static std::optional<MicrobatchObstacle> findResultObstacle(const Propagation &state,
                                                            func::FuncOp func, StringAttr micro) {
  for (auto [i, value] : llvm::enumerate(func.front().getTerminator()->getOperands())) {
    const Sharding &sharding = state.lookup(value).sharding;
    Location loc = value.getDefiningOp() ? value.getLoc() : func.getLoc();
    if (!isCutInTime(sharding))
      return MicrobatchObstacle{loc, getNode(loc) + " needs all of it"};
    auto pinned = func.getResultAttrOfType<ShardingAttr>(i, kSharding);
    if (pinned && !areCutAlikeInTime(cutInTime(pinned, micro), sharding))
      return MicrobatchObstacle{
          loc, "output " + quote(func.getResultAttr(i, loom::kName)) +
                   " is asked for with another split of the batch than it is computed "
                   "with"};
  }
  return std::nullopt;
}

std::optional<MicrobatchObstacle>
gridloom::findMicrobatchObstacle(const Propagation &state, func::FuncOp func, StringAttr micro) {
  if (std::optional<MicrobatchObstacle> obstacle = findInputObstacle(state, func))
    return obstacle;
  for (Operation *op : state.getOperations()) {
    auto constant = dyn_cast<loom::ConstantOp>(op);
    bool positional =
        isa<loom::IotaOp, loom::GetWeightOp>(op) || (constant && !constant.getValue().isSplat());
    MicrobatchObstacle whole = {op->getLoc(), getNode(op->getLoc()) + " needs all of it"};
    if (loom::isControl(op) || !isParallelOver(state, op, micro))
      return whole;
    SmallVector<Sharding> required = state.getRequired(op);
    for (auto [index, value] :
         llvm::enumerate(llvm::concat<const Value>(llvm::to_vector_of<Value>(op->getOperands()),
                                                   llvm::to_vector_of<Value>(op->getResults())))) {
      const Sharding &sharding = state.lookup(value).sharding;
      bool has = sharding.usesAxis(micro);
      if (has != required[index].usesAxis(micro) || (has && positional))
        return whole;
      if (!areCutAlikeInTime(sharding, required[index]))
        return MicrobatchObstacle{op->getLoc(),
                                  getNode(op->getLoc()) +
                                      " reads or makes values whose batch is split differently"};
    }
  }
  return findResultObstacle(state, func, micro);
}

int64_t gridloom::countRows(func::FuncOp func) {
  int64_t common = 0;
  for (BlockArgument argument : func.getArguments()) {
    if (loom::isOfTraining(argument))
      continue;
    auto type = cast<RankedTensorType>(argument.getType());
    bool isWhole = type.getRank() == 0 || func.getArgAttr(argument.getArgNumber(), loom::kState);
    common = std::gcd(common, isWhole ? 1 : type.getDimSize(0));
  }
  return common;
}

std::optional<int64_t> gridloom::getTrainedParts(ModuleOp module) {
  if (!module->hasAttr(loom::kTraining))
    return std::nullopt;
  int64_t count = 1;
  for (auto func : module.getOps<func::FuncOp>())
    if (auto parts = func->getAttrOfType<IntegerAttr>(loom::kParts))
      count = parts.getInt();
  return count;
}

void gridloom::setMicrobatches(MeshOp meshOp, int64_t count) {
  SmallVector<Attribute> axes(meshOp.getAxes().getValue());
  // Removes the axis of an earlier attempt; the user's axes have other names.
  llvm::erase_if(
      axes, [](Attribute axis) { return cast<AxisAttr>(axis).getName() == MeshOp::kMicroAxis; });
  if (count > 1)
    axes.push_back(AxisAttr::get(meshOp.getContext(), MeshOp::kMicroAxis, count));
  meshOp.setAxesAttr(ArrayAttr::get(meshOp.getContext(), axes));
}
