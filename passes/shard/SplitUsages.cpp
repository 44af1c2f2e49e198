//===- SplitUsages.cpp - the memory of the nodes of a split problem -------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/shard/SplitProblem.h"

#include "dialects/loom/Control.h"
#include "dialects/loom/Work.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

/// Inputs, outputs and states occupy memory all the time, for the whole batch; an input that
/// several stages read, on the first stage's devices.
void SplitProblem::setBoundUsage(Value value) {
  auto type = cast<RankedTensorType>(value.getType());
  Node &node = nodes[valueNodes.lookup(value)];
  Operation *producer = value.getDefiningOp();
  int64_t stage = producer ? getStage(producer) : stages - 1;
  for (Operation *user : value.getUsers())
    stage = std::min(stage, getStage(user));
  node.interval = stageTimes[stage];
  node.usages.clear();
  for (unsigned choice : node.tensors.front().of) {
    ShardingAttr sharding = node.tensors.front().shardings[choice];
    int64_t pieces = getValue(sharding).getMicroDim() >= 0 ? microbatches : 1;
    node.usages.push_back(pieces * getLocalBytes(type, sharding));
  }
}

/// Whether the function returns the value, which is then computed where the caller or a state has
/// it.
static bool isReturned(Value value) {
  return llvm::any_of(value.getUsers(), llvm::IsaPred<func::ReturnOp>);
}

/// Whether an operation can overwrite an operand that nobody reads after it.
static bool isInPlace(Operation *op) {
  return isa<loom::KernelBodyInterface>(op) && op->getNumResults() == 1 &&
         llvm::any_of(op->getOperands(), [&](Value operand) {
           return operand.getType() == op->getResult(0).getType() && operand.getDefiningOp() &&
                  !operand.getDefiningOp<loom::GetWeightOp>() && operand.hasOneUse();
         });
}

/// A weight is kept all the time; a result until it is last read, or, if another stage or the
/// caller reads it, until its stage is done.
void SplitProblem::setUsage(Operation *op, int64_t begin) {
  Node &node = nodes[opNodes.lookup(op)];
  bool isWeight = isa<loom::GetWeightOp>(op);
  if (isInPlace(op) && begin + 1 < partTimes[getPart(op)].end)
    ++begin;
  int64_t end = begin + 1;
  for (Operation *reader : op->getUsers())
    if (auto position = times.find(reader);
        position != times.end() && getPart(reader) == getPart(op))
      end = std::max(end, position->second + 1);
    else
      end = std::max(end, partTimes[getPart(op)].end);
  node.interval = isWeight ? stageTimes[getStage(op)] : solver::Interval{begin, end};
  node.usages.assign(node.costs.size(), 0);
  for (auto [i, result] : llvm::enumerate(op->getResults())) {
    if (!isWeight && (loom::staysInRegisters(result, libraries) || isReturned(result)))
      continue;
    auto type = cast<RankedTensorType>(result.getType());
    const Column &column = node.tensors[op->getNumOperands() + i];
    auto bytes = llvm::map_to_vector(
        column.shardings, [&](ShardingAttr sharding) { return getLocalBytes(type, sharding); });
    for (auto [usage, sharding] : llvm::zip_equal(node.usages, column.of))
      usage += bytes[sharding];
  }
}
