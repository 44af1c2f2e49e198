//===- Splits.cpp - the splits of operations in a program -----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/dist/Splits.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;
using namespace gridloom::dist;

SplitsAttr OpSplits::getAttr(MLIRContext *context) const {
  SmallVector<DimShardingAttr> attrs;
  for (auto [axes, granule] : llvm::zip_equal(factors.axes, factors.granules))
    attrs.push_back(
        DimShardingAttr::get(context, axes, /*open=*/false, axes.empty() ? 1 : granule));
  return SplitsAttr::get(context, attrs, unreduced);
}

/// Why the operands cannot stay partial sums; empty if they can, or if no axes are unreduced.
static std::string findUnreducedFault(Operation *op, const OpSplits &splits, const Mesh &mesh) {
  if (splits.unreduced.empty())
    return "";
  if (!cast<ShardingRuleInterface>(op).isLinear())
    return "is not linear, so its operands cannot stay unreduced";
  for (auto [i, axis] : llvm::enumerate(splits.unreduced)) {
    if (llvm::none_of(mesh.getAxes(), [&](const Mesh::Axis &known) { return known.name == axis; }))
      return "leaves unreduced axis '" + axis.str() + "', which is not in the mesh";
    if (llvm::is_contained(ArrayRef(splits.unreduced).take_front(i), axis) ||
        llvm::any_of(splits.factors.axes,
                     [&](const AxisList &list) { return llvm::is_contained(list, axis); }))
      return "splits over axis '" + axis.str() + "' twice";
  }
  return "";
}

FailureOr<OpSplits> gridloom::dist::readSplits(Operation *op, const ShardingRule &rule,
                                               const Mesh &mesh) {
  auto attr = op->getAttrOfType<SplitsAttr>(kSplits);
  size_t count = rule.sizes.size();
  if (!attr)
    return op->emitOpError(
               "has no dist.splits; dist-choose-splits writes an entry for each of its ")
           << count << " factors";
  if (attr.getFactors().size() != count) // D-SP1
    return op->emitOpError("has dist.splits of ")
           << attr.getFactors().size() << " factors; its sharding rule has " << count;
  OpSplits splits;
  splits.factors = FactorSplits(count);
  splits.unreduced.assign(attr.getUnreduced().begin(), attr.getUnreduced().end());
  for (auto [i, factor] : llvm::enumerate(attr.getFactors())) {
    splits.factors.axes[i].assign(factor.getAxes().begin(), factor.getAxes().end());
    splits.factors.granules[i] = factor.getGranule();
  }
  std::string fault = findFault(rule, splits.factors, mesh);
  if (fault.empty())
    fault = findUnreducedFault(op, splits, mesh);
  if (!fault.empty())
    return op->emitOpError(fault);
  return splits;
}

SmallVector<Sharding> gridloom::dist::getSplitShardings(Operation *op, const ShardingRule &rule,
                                                        const OpSplits &splits, const Mesh &mesh) {
  AxisList partial = splits.unreduced;
  for (auto [kind, axes] : llvm::zip_equal(rule.kinds, splits.factors.axes))
    if (kind == FactorKind::Reduction)
      partial.append(axes);
  SmallVector<Sharding> shardings;
  for (size_t i = 0; i < rule.tensors.size(); ++i) {
    Sharding &sharding = shardings.emplace_back(project(rule, i, splits.factors, mesh));
    bool isResult = i >= op->getNumOperands();
    sharding.unreduced = isResult ? partial : splits.unreduced;
    if (isResult && splits.unreduced.empty())
      sharding.reduction = rule.reduction;
  }
  return shardings;
}

FailureOr<FactorSplits> gridloom::dist::getImpliedSplits(Operation *op, const ShardingRule &rule,
                                                         const Mesh &mesh) {
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
  return mergeFactors(rule, declared, getTensorTypes(op), mesh);
}

ShardingAttr gridloom::dist::getStorage(Value value) {
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    auto func = dyn_cast<func::FuncOp>(argument.getOwner()->getParentOp());
    return func ? func.getArgAttrOfType<ShardingAttr>(argument.getArgNumber(), kStorage)
                : ShardingAttr();
  }
  return value.getDefiningOp()->getAttrOfType<ShardingAttr>(kStorage);
}

void gridloom::dist::setStorage(Value value, ShardingAttr storage) {
  if (auto argument = dyn_cast<BlockArgument>(value))
    cast<func::FuncOp>(argument.getOwner()->getParentOp())
        .setArgAttr(argument.getArgNumber(), kStorage, storage);
  else
    value.getDefiningOp()->setAttr(kStorage, storage);
}

ShardingAttr gridloom::dist::getGivenSharding(Value value) {
  ShardingAttr storage = getStorage(value);
  return storage ? storage : getSharding(value);
}

bool gridloom::dist::areSamePlacement(const Sharding &a, const Sharding &b, RankedTensorType type,
                                      const Mesh &mesh) {
  auto isReal = [&](StringAttr axis) { return mesh.getSize(axis) > 1; };
  auto keepReal = [&](ArrayRef<StringAttr> axes) { return llvm::filter_to_vector(axes, isReal); };
  auto includes = [&](ArrayRef<StringAttr> list, ArrayRef<StringAttr> axes) {
    return llvm::all_of(keepReal(axes),
                        [&](StringAttr axis) { return llvm::is_contained(list, axis); });
  };
  if (getLocalType(type, a, mesh) != getLocalType(type, b, mesh) ||
      !includes(a.unreduced, b.unreduced) || !includes(b.unreduced, a.unreduced))
    return false;
  return llvm::all_of(llvm::zip_equal(a.dims, b.dims), [&](auto dims) {
    return keepReal(std::get<0>(dims).axes) == keepReal(std::get<1>(dims).axes);
  });
}
