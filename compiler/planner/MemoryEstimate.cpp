//===- MemoryEstimate.cpp - memory of a plan before it is made ------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/planner/MemoryEstimate.h"

#include "compiler/planner/StageEstimate.h"
#include "dialects/dist/Splits.h"
#include "dialects/loom/Control.h"

#include "llvm/ADT/MapVector.h"

#include <map>
#include <set>

using namespace mlir;
using namespace gridloom;

namespace {

/// Estimates all stages of a module.
class ModuleEstimate {
public:
  ModuleEstimate(ModuleOp module, const MemoryOptions &options)
      : module(module), mesh(dist::Mesh::get(module)), options(options) {}
  std::vector<StageMemory> run();

private:
  struct WeightUse {
    int64_t bytes = 0, row = 0;
    bool onlyRight = true;
  };

  void addFunction(func::FuncOp func);
  void addWeights(DeviceSketch &sketch, int64_t stage);
  void addBindings(DeviceSketch &sketch);
  Activations estimateBody(func::FuncOp body, int64_t stage);
  int64_t getBound(RankedTensorType local, dist::ShardingAttr sharding) const;
  StageMemory &getStage(int64_t stage) {
    stages[stage].stage = stage;
    return stages[stage];
  }

  ModuleOp module;
  dist::Mesh mesh;
  const MemoryOptions &options;
  std::map<int64_t, StageMemory> stages;
  std::map<int64_t, llvm::MapVector<std::pair<Attribute, Attribute>, WeightUse>> weights;
  std::map<int64_t, llvm::DenseSet<Attribute>> states;
};

} // namespace

void ModuleEstimate::addWeights(DeviceSketch &sketch, int64_t stage) {
  for (auto weight : sketch.getFunction().front().getOps<loom::GetWeightOp>()) {
    if (!loom::isBody(sketch.getFunction()) && sketch.getStage(weight) != stage)
      continue;
    Value value = weight.getOutput();
    WeightUse &use = weights[stage][{weight.getNameAttr(), sketch.getSharding(value)}];
    RankedTensorType local = sketch.getLocalType(value);
    use.bytes = sketch.getBytes(value);
    use.row = local.getRank() ? local.getShape().back() : 0;
    use.onlyRight &= sketch.isRightOperand(value);
  }
}

/// Bytes of an input or output, for all micro-batches.
int64_t ModuleEstimate::getBound(RankedTensorType local, dist::ShardingAttr sharding) const {
  int64_t bytes = loom::getByteSize(local);
  if (sharding && dist::Sharding(sharding).getMicroDim() == 0)
    bytes *= mesh.getSize(StringAttr::get(mesh.getContext(), dist::MeshOp::kMicroAxis));
  return bytes;
}

void ModuleEstimate::addBindings(DeviceSketch &sketch) {
  func::FuncOp func = sketch.getFunction();
  Operation *terminator = func.front().getTerminator();
  int64_t last = stages.empty() ? 0 : stages.rbegin()->first;
  auto stageOfResult = [&](Value value) {
    if (Operation *op = value.getDefiningOp())
      return sketch.getStage(op);
    auto owner =
        func.getArgAttrOfType<IntegerAttr>(cast<BlockArgument>(value).getArgNumber(), dist::kStage);
    return owner ? owner.getInt() : last;
  };
  auto add = [&](int64_t stage, StringAttr state, RankedTensorType local,
                 dist::ShardingAttr sharding) {
    rt::MemoryNeeds &needs = getStage(stage).needs;
    if (!state)
      needs.bindings += getBound(local, sharding);
    else if (states[stage].insert(state).second)
      needs.states += loom::getByteSize(local);
  };
  for (BlockArgument argument : func.getArguments()) {
    llvm::SmallDenseSet<int64_t> readers;
    for (Operation *user : argument.getUsers())
      readers.insert(user == terminator ? stageOfResult(argument) : sketch.getStage(user));
    for (int64_t stage : readers)
      add(stage, func.getArgAttrOfType<StringAttr>(argument.getArgNumber(), loom::kState),
          sketch.getLocalType(argument), dist::getGivenSharding(argument));
  }
  for (auto [i, result] : llvm::enumerate(terminator->getOperands()))
    add(stageOfResult(result), func.getResultAttrOfType<StringAttr>(i, loom::kState),
        sketch.getLocalType(result),
        func.getResultAttrOfType<dist::ShardingAttr>(i, dist::kSharding));
}

Activations ModuleEstimate::estimateBody(func::FuncOp body, int64_t stage) {
  DeviceSketch sketch(body, mesh, options);
  addWeights(sketch, stage);
  int64_t own = 0;
  for (Operation &op : sketch.getFunction().front())
    own = sketch.getStage(&op);
  return estimateActivations(sketch, own, mesh,
                             [&](func::FuncOp inner) { return estimateBody(inner, stage); });
}

void ModuleEstimate::addFunction(func::FuncOp func) {
  DeviceSketch sketch(func, mesh, options);
  std::set<int64_t> present;
  for (Operation &op : sketch.getFunction().front().without_terminator())
    present.insert(sketch.getStage(&op));
  if (present.empty())
    present.insert(0);
  for (int64_t stage : present) {
    rt::MemoryNeeds &needs = getStage(stage).needs;
    addWeights(sketch, stage);
    Activations activations = estimateActivations(
        sketch, stage, mesh, [&](func::FuncOp body) { return estimateBody(body, stage); });
    needs.arena = std::max<uint64_t>(needs.arena, activations.arena);
    needs.registered = std::max<uint64_t>(needs.registered, activations.registered);
  }
  addBindings(sketch);
}

std::vector<StageMemory> ModuleEstimate::run() {
  for (auto func : module.getOps<func::FuncOp>())
    if (!loom::isBody(func) && !func.isDeclaration())
      addFunction(func);
  for (auto &[stage, uses] : weights)
    for (auto &[key, use] : uses) {
      int64_t bytes = use.bytes;
      if (use.onlyRight && options.layout.padMultiple > 0 && use.row > 0 &&
          use.row % options.layout.padMultiple == 0)
        bytes = bytes / use.row * (use.row + options.layout.padElements);
      getStage(stage).needs.weights += static_cast<uint64_t>(bytes);
    }
  std::vector<StageMemory> list;
  for (auto &[stage, memory] : stages)
    list.push_back(memory);
  return list;
}

std::vector<StageMemory> gridloom::estimateMemory(ModuleOp module, const MemoryOptions &options) {
  return ModuleEstimate(module, options).run();
}
