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
/// memory size. The GPUs' rates are about 80 % of their published ones; NVLink's is per direction.
static const Machine machines[] = {
    {"cpu", 35e9, 0, 0, 8e9, 80e-6, 2e9, 2e-6, 0},
    {"A100-80GB", 15.6e12, 125e12, 250e12, 1.6e12, 12e-6, 240e9, 4e-6, 80LL << 30},
    {"H100-80GB", 53e12, 395e12, 790e12, 2.7e12, 10e-6, 360e9, 3e-6, 80LL << 30},
    {"H200-141GB", 53e12, 395e12, 790e12, 3.9e12, 10e-6, 360e9, 3e-6, 141LL << 30},
    {"B200-180GB", 60e12, 900e12, 1800e12, 6.4e12, 10e-6, 720e9, 3e-6, 180LL << 30},
};

std::optional<Machine> Machine::find(StringRef name) {
  for (const Machine &machine : machines)
    if (name.equals_insensitive(machine.name))
      return machine;
  return std::nullopt;
}

Machine Machine::of(StringRef target) {
  unsigned architecture = 0;
  if (!target.consume_front("cuda:sm_") || target.consumeInteger(10, architecture))
    return *find("cpu");
  return *find(architecture < 90 ? "A100-80GB" : architecture < 100 ? "H100-80GB" : "B200-180GB");
}

std::string Machine::listNames() {
  return llvm::join(llvm::map_range(machines, [](const Machine &machine) { return machine.name; }),
                    ", ");
}

/// Steps and bytes a device sends, by ring algorithms, for `bytes` of the larger of operand and
/// result.
static std::pair<double, double> getRingCost(Operation *op, int64_t bytes, int64_t group) {
  double share = static_cast<double>(group - 1) / static_cast<double>(group);
  if (isa<AllReduceOp>(op))
    return {2.0 * (group - 1), 2 * share * bytes};
  if (isa<SendOp, RecvOp>(op))
    return {1, static_cast<double>(bytes)};
  return {static_cast<double>(group - 1), share * bytes};
}

static CollectiveCost costCollective(Operation *op, const Mesh &mesh, const Machine &machine,
                                     int64_t stage) {
  CollectiveCost cost;
  cost.kind = op->getName().stripDialect();
  cost.stage = stage;
  cost.origin = loom::getNodeName(op->getLoc());
  if (auto because = op->getAttrOfType<StringAttr>("dist.because"))
    cost.because = because.str();
  if (auto axes = op->getAttrOfType<ArrayAttr>("axes"))
    for (auto axis : axes.getAsRange<StringAttr>()) {
      cost.axes.push_back(axis.str());
      cost.group *= mesh.getSize(axis);
    }
  int64_t in = 0, out = 0;
  for (Type type : op->getOperandTypes())
    in += loom::getByteSize(type);
  for (Type type : op->getResultTypes())
    out += loom::getByteSize(type);
  auto [steps, bytes] = getRingCost(op, std::max(in, out), cost.group);
  cost.bytes = static_cast<int64_t>(bytes);
  cost.seconds = steps * machine.linkSeconds + bytes / machine.linkBytesPerSecond;
  return cost;
}

/// Of a contraction or anything else, as its operands' type allows.
static double getFlopsPerSecond(Operation *op, const Machine &machine) {
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
static double costOperation(Operation *op, const Machine &machine) {
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
  int64_t weightBytes = 0, activationBytes = 0;
};
} // namespace

static StageCost costStage(func::FuncOp func, const Mesh &mesh, const Machine &machine,
                           Estimate &estimate) {
  StageCost cost;
  auto stageAttr = func->getAttrOfType<IntegerAttr>(kStage);
  int64_t stage = stageAttr ? stageAttr.getInt() : 0;
  llvm::DenseSet<std::pair<Attribute, Attribute>> weights;
  // How often a function runs: a loop's body once per iteration.
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
      CollectiveCost collective = costCollective(op, mesh, machine, stage);
      collective.seconds *= times;
      cost.communication += collective.seconds;
      collective.entry = estimate.entry;
      if (!isa<RecvOp>(op)) // its send is listed
        estimate.collectives.push_back(std::move(collective));
      return;
    }
    if (auto weight = dyn_cast<loom::GetWeightOp>(op)) {
      Attribute sharding = weight.getSharding() ? *weight.getSharding() : Attribute();
      if (weights.insert({weight.getNameAttr(), sharding}).second)
        cost.weightBytes += loom::getByteSize(weight.getType());
      return;
    }
    double seconds = times * costOperation(op, machine);
    cost.compute += seconds;
    for (Type type : op->getResultTypes())
      if (isa<RankedTensorType>(type))
        cost.activationBytes = std::max(cost.activationBytes, 3 * loom::getByteSize(type));
    if (seconds > 0)
      estimate.operations.push_back(
          {loom::getNodeName(op->getLoc()), op->getName().stripDialect().str(), seconds});
  };
  for (func::FuncOp function : functions)
    function.walk([&](Operation *op) { visit(op, runs.lookup(function)); });
  return cost;
}

std::vector<Estimate> gridloom::estimate(ModuleOp module, const Machine &machine) {
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
    result.entry = stages.front().getSymName().rsplit("_stage").first;
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
      result.weightBytes = std::max(result.weightBytes, cost.weightBytes);
      result.activationBytes = std::max(result.activationBytes, cost.activationBytes);
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
