//===- CostModel.cpp - predicted time and memory ----------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/planner/CostModel.h"

#include "dialects/loom/Control.h"

#include "dialects/loom/Loom.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

/// Per name: contractions in f32, TF32 and 16 bits, memory, link latency, link bandwidth, launch,
/// memory size, target. The GPUs' rates are about 80 % of their published ones; NVLink's is
/// per direction.
static const MachineModel machines[] = {
    {"cpu", 35e9, 0, 0, 8e9, 80e-6, 2e9, 2e-6, 0, "cpu"},
    {"A100-80GB", 15.6e12, 125e12, 250e12, 1.6e12, 12e-6, 240e9, 4e-6, 80LL << 30, "cuda:sm_80"},
    {"H100-80GB", 53e12, 395e12, 790e12, 2.7e12, 10e-6, 360e9, 3e-6, 80LL << 30, "cuda:sm_90"},
    {"H200-141GB", 53e12, 395e12, 790e12, 3.9e12, 10e-6, 360e9, 3e-6, 141LL << 30, "cuda:sm_90"},
    {"B200-180GB", 60e12, 900e12, 1800e12, 6.4e12, 10e-6, 720e9, 3e-6, 180LL << 30, "cuda:sm_100"},
};

std::optional<MachineModel> MachineModel::find(StringRef name) {
  for (const MachineModel &machine : machines)
    if (name.equals_insensitive(machine.name))
      return machine;
  return std::nullopt;
}

std::string MachineModel::listNames() {
  return llvm::join(
      llvm::map_range(machines, [](const MachineModel &machine) { return machine.name; }), ", ");
}

CollectiveCost gridloom::costCollective(StringRef kind, int64_t bytes, int64_t group,
                                        const MachineModel &machine) {
  bool isTransfer = kind == "send" || kind == "recv";
  double times = kind == "all_reduce" ? 2 : 1; // a reduce_scatter and an all_gather
  double steps = isTransfer ? 1 : times * static_cast<double>(group - 1);
  double sent = static_cast<double>(bytes);
  if (!isTransfer)
    sent *= times * static_cast<double>(group - 1) / static_cast<double>(group);
  return {kind == "recv" ? 0 : static_cast<int64_t>(sent),
          steps * machine.linkSeconds + sent / machine.linkBytesPerSecond};
}

static double costCollective(Operation *op, const Mesh &mesh, const MachineModel &machine) {
  int64_t group = 1;
  if (auto axes = op->getAttrOfType<ArrayAttr>("axes"))
    for (auto axis : axes.getAsRange<StringAttr>())
      group *= mesh.getSize(axis);
  int64_t in = 0, out = 0;
  for (Type type : op->getOperandTypes())
    in += loom::getByteSize(type);
  for (Type type : op->getResultTypes())
    out += loom::getByteSize(type);
  return costCollective(op->getName().stripDialect(), std::max(in, out), group, machine).seconds;
}

/// The machine's rate for the operation and its operands' type.
static double getFlopsPerSecond(Operation *op, const MachineModel &machine) {
  double rate = 0;
  Type element = getElementTypeOrSelf(op->getOperand(0).getType());
  if (isa<loom::DotGeneralOp, loom::ConvolutionOp>(op)) {
    if (element.isF16() || element.isBF16())
      rate = machine.halfFlopsPerSecond;
    else if (op->hasAttr("tf32"))
      rate = machine.tf32FlopsPerSecond;
  }
  return rate > 0 ? rate : machine.flopsPerSecond;
}

/// Time of an operation alone. What fusion removes is left out: an elementwise operation or a move
/// costs the bytes it writes, once.
static double costOperation(Operation *op, const MachineModel &machine) {
  auto costed = dyn_cast<loom::CostInterface>(op);
  if (!costed || op->getNumOperands() == 0 || isa<loom::ReshapeOp, loom::BroadcastOp>(op))
    return 0;
  double bytes = 0;
  if (isa<loom::DotGeneralOp>(op))
    bytes = costed.getMemoryBytes();
  else
    for (Type type : op->getResultTypes())
      bytes += loom::getByteSize(type);
  return machine.launchSeconds + std::max(costed.getFlops() / getFlopsPerSecond(op, machine),
                                          bytes / machine.bytesPerSecond);
}

namespace {
struct StageCost {
  double compute = 0, communication = 0;
  int64_t leastBytes = 0;
};
} // namespace

/// Bytes of inputs and outputs, for all micro-batches together, and of states.
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

static StageCost costStage(func::FuncOp func, const Mesh &mesh, const MachineModel &machine,
                           Estimate &estimate) {
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
    if (isCommunication(op)) {
      cost.communication += times * costCollective(op, mesh, machine);
      return;
    }
    if (auto weight = dyn_cast<loom::GetWeightOp>(op)) {
      Attribute sharding = weight.getSharding() ? *weight.getSharding() : Attribute();
      if (weights.insert({weight.getNameAttr(), sharding}).second)
        cost.leastBytes += loom::getByteSize(weight.getType());
      return;
    }
    double seconds = times * costOperation(op, machine);
    cost.compute += seconds;
    if (seconds > 0)
      estimate.operations.push_back(
          {loom::getNodeName(op->getLoc()), op->getName().stripDialect().str(), seconds});
  };
  for (func::FuncOp function : functions)
    function.walk([&](Operation *op) { visit(op, runs.lookup(function)); });
  return cost;
}

std::vector<Estimate> gridloom::estimate(ModuleOp module, const MachineModel &machine) {
  MeshOp meshOp = getMesh(module);
  Mesh mesh(meshOp);
  // Stages of one specialisation share entry and bound dimensions.
  llvm::MapVector<std::pair<Attribute, Attribute>, SmallVector<func::FuncOp>> specialisations;
  for (auto func : module.getOps<func::FuncOp>())
    if (!loom::isBody(func))
      specialisations[{func->getAttr(loom::kEntry), func->getAttr(loom::kDims)}].push_back(func);
  std::vector<Estimate> estimates;
  for (auto &[key, stages] : specialisations) {
    Estimate result;
    if (auto entry = dyn_cast_or_null<StringAttr>(key.first))
      result.entry = entry.str();
    if (auto dims = dyn_cast_or_null<DictionaryAttr>(key.second))
      for (NamedAttribute dim : dims)
        result.dims += (result.dims.empty() ? "" : ",") + dim.getName().str() + "=" +
                       std::to_string(cast<IntegerAttr>(dim.getValue()).getInt());
    double sum = 0, slowest = 0, micro = 1;
    for (func::FuncOp func : stages) {
      StageCost cost = costStage(func, mesh, machine, result);
      if (auto count = func->getAttrOfType<IntegerAttr>(kMicrobatches))
        micro = count.getInt();
      double time = cost.compute + cost.communication;
      sum += time;
      slowest = std::max(slowest, time);
      result.compute = std::max(result.compute, micro * cost.compute);
      result.communication = std::max(result.communication, micro * cost.communication);
      result.leastBytes = std::max(result.leastBytes, cost.leastBytes);
    }
    result.step = sum + (micro - 1) * slowest;
    result.exposed = result.communication;
    result.bubble = result.step > 0 ? (result.step - micro * slowest) / result.step : 0;
    llvm::stable_sort(result.operations, [](const OperationCost &a, const OperationCost &b) {
      return a.seconds > b.seconds;
    });
    estimates.push_back(std::move(result));
  }
  return estimates;
}
