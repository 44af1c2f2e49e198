//===- ChooseSplits.cpp - how every operation is split ----------------------===//
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
#define GEN_PASS_DEF_CHOOSESPLITS
#include "passes/shard/Passes.h.inc"
} // namespace gridloom

namespace {
/// Chooses for one function, in program order.
class Chooser {
public:
  Chooser(func::FuncOp func, const Mesh &mesh) : func(func), mesh(mesh) {}
  LogicalResult run();

private:
  /// What an operation makes of a value, and whether an earlier user needs it otherwise.
  struct Product {
    Sharding sharding;
    bool isResharded = false;
  };

  LogicalResult choose(Operation *op);
  FailureOr<OpSplits> makeSplits(Operation *op, const ShardingRule &rule) const;
  AxisList chooseUnreduced(Operation *op, const FactorSplits &splits,
                           ArrayRef<Sharding> required) const;
  RankedTensorType getLocalType(Value value, const Sharding &sharding) const {
    return dist::getLocalType(cast<RankedTensorType>(value.getType()), sharding, mesh);
  }

  func::FuncOp func;
  const Mesh &mesh;
  llvm::DenseMap<Value, Product> products;
};

struct ChooseSplitsPass : public gridloom::impl::ChooseSplitsBase<ChooseSplitsPass> {
  using ChooseSplitsBase::ChooseSplitsBase;

  void runOnOperation() override {
    MeshOp mesh = getMesh(getOperation());
    if (!mesh) {
      getOperation().emitError("no mesh is declared");
      return signalPassFailure();
    }
    for (auto func : getOperation().getOps<func::FuncOp>())
      if (failed(Chooser(func, Mesh(mesh)).run()))
        return signalPassFailure();
  }
};
} // namespace

/// Axes over which all operands are partial sums that may stay so through a linear operation: only
/// when it makes nothing bigger, since what is reduced later is then no more than what came in. Of
/// what several read, slices would be reduced one by one.
AxisList Chooser::chooseUnreduced(Operation *op, const FactorSplits &splits,
                                  ArrayRef<Sharding> required) const {
  if (!cast<ShardingRuleInterface>(op).isLinear() || op->getNumOperands() == 0 ||
      op->getNumResults() != 1 || (isa<loom::SliceOp>(op) && !op->getOperand(0).hasOneUse()))
    return {};
  const Sharding &first = products.find(op->getOperand(0))->second.sharding;
  if (first.unreduced.empty() || first.reduction != ReductionKind::Sum)
    return {};
  int64_t incoming = 0;
  for (auto [operand, need] : llvm::zip_first(op->getOperands(), required)) {
    const Product &product = products.find(operand)->second;
    if (product.isResharded || product.sharding.unreduced != first.unreduced ||
        product.sharding.reduction != first.reduction || product.sharding.dims != need.dims)
      return {};
    incoming += loom::getByteSize(getLocalType(operand, product.sharding));
  }
  for (const AxisList &list : splits.axes)
    for (StringAttr axis : list)
      if (llvm::is_contained(first.unreduced, axis))
        return {};
  RankedTensorType result = getLocalType(op->getResult(0), required.back());
  return loom::getByteSize(result) <= incoming ? first.unreduced : AxisList{};
}

FailureOr<OpSplits> Chooser::makeSplits(Operation *op, const ShardingRule &rule) const {
  SmallVector<Sharding> declared;
  for (Value value : llvm::concat<const Value>(llvm::to_vector_of<Value>(op->getOperands()),
                                               llvm::to_vector_of<Value>(op->getResults()))) {
    bool isResult = value.getDefiningOp() == op;
    ShardingAttr sharding = isResult ? getGivenSharding(value) : getSharding(value);
    if (!sharding)
      return op->emitOpError(
          "has an operand or result without a sharding; run dist-propagate first");
    declared.push_back(Sharding(sharding));
  }
  OpSplits splits;
  splits.factors = mergeFactors(rule, declared, getTensorTypes(op), mesh);
  splits.unreduced = chooseUnreduced(op, splits.factors, getSplitShardings(op, rule, splits, mesh));
  return splits;
}

LogicalResult Chooser::choose(Operation *op) {
  auto ruled = dyn_cast<ShardingRuleInterface>(op);
  if (!ruled)
    return op->emitOpError("has no sharding rule and cannot be split");
  ShardingRule rule = ruled.getShardingRule();
  FailureOr<OpSplits> splits =
      op->hasAttr(kSplits) ? readSplits(op, rule, mesh) : makeSplits(op, rule);
  if (failed(splits))
    return failure();
  op->setAttr(kSplits, splits->getAttr(op->getContext()));

  SmallVector<Sharding> shardings = getSplitShardings(op, rule, *splits, mesh);
  for (auto [operand, need] : llvm::zip_first(op->getOperands(), shardings)) {
    Product &product = products.find(operand)->second;
    product.isResharded |=
        !areSamePlacement(product.sharding, need, cast<RankedTensorType>(operand.getType()), mesh);
  }
  for (auto [result, made] :
       llvm::zip_equal(op->getResults(), ArrayRef(shardings).take_back(op->getNumResults())))
    products[result].sharding = made;
  return success();
}

LogicalResult Chooser::run() {
  for (BlockArgument argument : func.getArguments()) {
    ShardingAttr sharding = getGivenSharding(argument);
    if (!sharding)
      return func.emitOpError("argument ")
             << argument.getArgNumber() << " has no sharding; run dist-propagate first";
    products[argument].sharding = Sharding(sharding);
  }
  for (Operation &op : func.front().without_terminator())
    if (failed(choose(&op)))
      return failure();
  return success();
}
