//===- TrainStages.cpp - pipeline stages of training steps ----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/shard/TrainStages.h"

#include "dialects/dist/Dist.h"
#include "dialects/loom/Training.h"
#include "passes/shard/StageCuts.h"

using namespace mlir;
using namespace gridloom;

TrainStages::TrainStages(ArrayRef<func::FuncOp> model, int64_t stages) : stages(stages) {
  auto stageOf = [](Operation *op) {
    return op->getAttrOfType<IntegerAttr>(dist::kStage).getInt();
  };
  for (func::FuncOp func : model) {
    for (Operation &op : func.front().without_terminator())
      if (std::string node = loom::getNodeName(op.getLoc()); !isFloating(&op) && !node.empty()) {
        int64_t stage = stageOf(&op);
        Range &range = nodes.try_emplace(node, Range{stage, stage}).first->second;
        range = {std::min(range.first, stage), std::max(range.last, stage)};
      }
    for (const StateUse &use : getStateUses(func))
      owners.try_emplace(use.state, stageOf(use.op));
  }
}

namespace gridloom {

/// Places one step.
class StepPlacer {
public:
  StepPlacer(TrainStages &of, func::FuncOp step, const TrainStages::Given &given)
      : of(of), step(step), given(given) {
    for (auto [i, value] : llvm::enumerate(step.front().getTerminator()->getOperands()))
      if (auto state = step.getResultAttrOfType<StringAttr>(i, loom::kState))
        written[value].push_back(state);
  }
  void run();

private:
  using Range = TrainStages::Range;

  SmallVector<Value> getSources(Operation *op) const;
  StringAttr getState(Value value);
  std::optional<int64_t> getOwner(Operation *op);
  std::optional<int64_t> choose(Operation *op);
  int64_t followReaders(Operation *op);
  void set(Operation *op, int64_t stage);

  TrainStages &of;
  func::FuncOp step;
  const TrainStages::Given &given;
  llvm::DenseMap<Value, SmallVector<StringAttr, 1>> written; ///< states, by their next value
  llvm::DenseMap<Operation *, int64_t> placed;
};

} // namespace gridloom

/// The values an operation reads, also through floating operations, which stages repeat.
SmallVector<Value> StepPlacer::getSources(Operation *op) const {
  SmallVector<Value> sources;
  SmallVector<Value> open(op->getOperands());
  while (!open.empty()) {
    Value value = open.pop_back_val();
    Operation *producer = value.getDefiningOp();
    if (producer && isFloating(producer))
      llvm::append_range(open, producer->getOperands());
    else
      sources.push_back(value);
  }
  return sources;
}

StringAttr StepPlacer::getState(Value value) {
  auto argument = dyn_cast<BlockArgument>(value);
  return argument ? step.getArgAttrOfType<StringAttr>(argument.getArgNumber(), loom::kState)
                  : StringAttr();
}

/// The stage of a state that the operation reads or writes, if that is known.
std::optional<int64_t> StepPlacer::getOwner(Operation *op) {
  SmallVector<StringAttr> states;
  for (Value result : op->getResults())
    llvm::append_range(states, written.lookup(result));
  for (Value source : getSources(op))
    if (StringAttr state = getState(source); state && !loom::isSentState(source))
      states.push_back(state);
  for (StringAttr state : states)
    if (auto owner = of.owners.find(state); owner != of.owners.end())
      return owner->second;
  return std::nullopt;
}

/// The stage of an operation by its states, its node or what it reads, in this order; nullopt if
/// none of them says anything yet.
std::optional<int64_t> StepPlacer::choose(Operation *op) {
  if (std::optional<int64_t> owner = getOwner(op))
    return owner;
  std::optional<int64_t> first, last, lastNumber;
  for (Value source : getSources(op)) {
    auto at = source.getDefiningOp() ? placed.find(source.getDefiningOp()) : placed.end();
    if (at == placed.end())
      continue;
    if (cast<RankedTensorType>(source.getType()).getNumElements() == 1) {
      lastNumber = std::max(lastNumber.value_or(0), at->second);
      continue;
    }
    first = std::min(first.value_or(of.stages), at->second);
    last = std::max(last.value_or(0), at->second);
  }
  auto clamp = [](std::optional<int64_t> stage, int64_t otherwise, Range range) {
    return std::clamp(stage.value_or(otherwise), range.first, range.last);
  };
  if (auto node = of.nodes.find(loom::getNodeName(op->getLoc())); node != of.nodes.end())
    return clamp(last ? last : lastNumber, 0, node->second);
  if (std::optional<Location> forward = loom::getDifferentiated(op->getLoc()))
    if (auto node = of.nodes.find(loom::getNodeName(*forward)); node != of.nodes.end())
      return clamp(first ? first : lastNumber, of.stages - 1, node->second);
  // Sums of scalars go through the stages in order, so that each sends one.
  return first ? first : lastNumber;
}

/// The stage of what nothing else places: its states', else its first reader's, else the last one.
int64_t StepPlacer::followReaders(Operation *op) {
  if (std::optional<int64_t> owner = getOwner(op))
    return *owner;
  int64_t stage = of.stages - 1;
  SmallVector<Operation *> open{op};
  while (!open.empty())
    for (Operation *user : open.pop_back_val()->getUsers())
      if (isFloating(user))
        open.push_back(user);
      else if (auto at = placed.find(user); at != placed.end())
        stage = std::min(stage, at->second);
  return stage;
}

/// Places the operation, and with it those of its states that are not placed yet.
void StepPlacer::set(Operation *op, int64_t stage) {
  placed[op] = stage;
  op->setAttr(dist::kStage, Builder(op->getContext()).getI64IntegerAttr(stage));
  for (Value source : getSources(op))
    if (StringAttr state = getState(source))
      of.owners.try_emplace(state, stage);
  for (Value result : op->getResults())
    for (StringAttr state : written.lookup(result))
      of.owners.try_emplace(state, stage);
}

void StepPlacer::run() {
  SmallVector<Operation *> anchored;
  for (Operation &op : step.front().without_terminator())
    if (!isFloating(&op))
      anchored.push_back(&op);
  for (Operation *op : anchored)
    if (auto stage = given.find(op); stage != given.end())
      set(op, stage->second);
    else if (std::optional<int64_t> chosen = choose(op))
      set(op, *chosen);
  for (Operation *op : llvm::reverse(anchored))
    if (!placed.contains(op))
      set(op, followReaders(op));
}

void TrainStages::place(func::FuncOp step, const Given &given) {
  StepPlacer(*this, step, given).run();
}
