//===- CloneConstants.cpp - a constant for each user ------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/Loom.h"
#include "dialects/loom/Uses.h"
#include "passes/shard/NamePatterns.h"
#include "passes/shard/Shard.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace gridloom;

namespace gridloom {
#define GEN_PASS_DEF_CLONECONSTANTS
#include "passes/shard/Passes.h.inc"
} // namespace gridloom

/// True for biases and scales, so small that a device may hold several shards.
static bool isSmallVector(loom::GetWeightOp weight) {
  constexpr int64_t kSmallBytes = int64_t{64} << 10;
  auto type = cast<RankedTensorType>(weight.getType());
  return loom::getByteSize(type) <= kSmallBytes &&
         llvm::count_if(type.getShape(), [](int64_t size) { return size != 1; }) <= 1;
}

/// True for values that every device can make at no cost, whatever part it needs.
static bool isFromNothing(Operation *op) {
  if (isa<loom::IotaOp>(op))
    return true;
  if (auto weight = dyn_cast<loom::GetWeightOp>(op))
    return isSmallVector(weight);
  if (auto constant = dyn_cast<loom::ConstantOp>(op))
    return isa<SplatElementsAttr>(constant.getValue());
  if (!isa<loom::BroadcastOp, loom::ReshapeOp, loom::ConvertOp>(op))
    return false;
  Operation *source = op->getOperand(0).getDefiningOp();
  return source && isFromNothing(source);
}

static bool isLookup(OpOperand *use) {
  return isa<loom::GatherOp>(use->getOwner()) && use->getOperandNumber() == 0;
}

namespace {
struct CloneConstantsPass : public gridloom::impl::CloneConstantsBase<CloneConstantsPass> {
  using CloneConstantsBase::CloneConstantsBase;

  void runOnOperation() override {
    for (auto func : getOperation().getOps<func::FuncOp>()) {
      // Backwards, so that a clone's operands get clones of their own, too.
      SmallVector<Operation *> operations;
      for (Operation &op : func.front())
        operations.push_back(&op);
      for (Operation *op : llvm::reverse(operations)) {
        if (auto weight = dyn_cast<loom::GetWeightOp>(op))
          if (isTable(weight) && separateLookups(weight))
            continue;
        if (!isFromNothing(op))
          continue;
        // The first reader keeps the operation.
        SmallVector<OpOperand *> uses = loom::listUses(op->getResult(0));
        for (OpOperand *use : ArrayRef(uses).drop_front(uses.empty() ? 0 : 1)) {
          OpBuilder builder(use->getOwner());
          use->set(cloneAll(builder, op)->getResult(0));
        }
      }
    }
  }

private:
  /// Whether `tables` has the weight, by its name or the model's, and it is not too large.
  bool isTable(loom::GetWeightOp weight) {
    return loom::getByteSize(weight.getType()) <= mostBytes &&
           llvm::any_of(tables, [&](const std::string &pattern) {
             return matchesPattern(pattern, weight.getName()) ||
                    matchesPattern(pattern, loom::getNodeName(weight.getLoc()));
           });
  }

  /// Gives all readers that do not look rows up a copy; false unless there are readers of both
  /// kinds.
  static bool separateLookups(loom::GetWeightOp table) {
    SmallVector<OpOperand *> uses = loom::listUses(table.getResult());
    auto *first = llvm::find_if_not(uses, isLookup);
    if (first == uses.end() || llvm::none_of(uses, isLookup))
      return false;
    OpBuilder builder((*first)->getOwner());
    Operation *copy = builder.clone(*table);
    for (OpOperand *use : uses)
      if (!isLookup(use))
        use->set(copy->getResult(0));
    return true;
  }

  /// Clones the operation and all that it is computed from.
  static Operation *cloneAll(OpBuilder &builder, Operation *op) {
    IRMapping map;
    for (Value operand : op->getOperands())
      map.map(operand, cloneAll(builder, operand.getDefiningOp())->getResult(0));
    return builder.clone(*op, map);
  }
};
} // namespace
