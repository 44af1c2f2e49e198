//===- Localize.cpp - the program of one device -----------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/dist/RequireMesh.h"
#include "dialects/dist/Splits.h"
#include "dialects/loom/Padding.h"
#include "passes/partition/Partition.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

namespace gridloom {
#define GEN_PASS_DEF_LOCALIZE
#include "passes/partition/Passes.h.inc"
} // namespace gridloom

namespace {
/// Makes the local function that replaces a global one.
class Localizer {
public:
  Localizer(func::FuncOp func, const Mesh &mesh)
      : func(func), mesh(mesh), builder(func.getContext()) {}
  LogicalResult run();

private:
  /// Makes the function that replaces this one; `block` is its body.
  void createLocalFunction();
  LogicalResult localize(Operation *op);
  /// Copies operations that already work on shards.
  void localize(OnShardsOp op);
  void maskOperands(Operation *op, const ShardingRule &rule, const FactorSplits &splits,
                    MutableArrayRef<Value> operands);
  RankedTensorType getLocalType(Type global, ShardingAttr sharding) const {
    return dist::getLocalType(cast<RankedTensorType>(global), Sharding(sharding), mesh);
  }

  func::FuncOp func;
  const Mesh &mesh;
  OpBuilder builder;
  Block *block = nullptr;
  IRMapping locals;
};

struct LocalizePass : public gridloom::impl::LocalizeBase<LocalizePass> {
  using LocalizeBase::LocalizeBase;

  void runOnOperation() override {
    MeshOp mesh = requireMesh(getOperation());
    if (!mesh)
      return signalPassFailure();
    for (auto func : llvm::to_vector(getOperation().getOps<func::FuncOp>()))
      if (failed(Localizer(func, Mesh(mesh)).run()))
        return signalPassFailure();
  }
};
} // namespace

void Localizer::createLocalFunction() {
  SmallVector<Type> inputs, results;
  for (BlockArgument argument : func.getArguments())
    inputs.push_back(getLocalType(argument.getType(), getSharding(argument)));
  for (unsigned i = 0; i < func.getNumResults(); ++i)
    results.push_back(getLocalType(func.getResultTypes()[i],
                                   func.getResultAttrOfType<ShardingAttr>(i, kSharding)));
  builder.setInsertionPoint(func);
  auto local = func::FuncOp::create(builder, func.getLoc(), func.getSymName(),
                                    builder.getFunctionType(inputs, results));
  local->setDiscardableAttrs(func->getDiscardableAttrDictionary());
  local.setArgAttrsAttr(func.getArgAttrsAttr());
  local.setResAttrsAttr(func.getResAttrsAttr());
  // The global type, since a padded shard does not determine it.
  for (auto [i, type] : llvm::enumerate(func.getArgumentTypes()))
    local.setArgAttr(i, loom::kGlobalType, TypeAttr::get(type));
  for (auto [i, type] : llvm::enumerate(func.getResultTypes()))
    local.setResultAttr(i, loom::kGlobalType, TypeAttr::get(type));
  block = local.addEntryBlock();
  locals.map(func.getArguments(), block->getArguments());
}

/// Describes why an operation's own partition communicates.
static std::string describePart(Operation *user, Operation *part) {
  std::string axes, node = "'" + loom::getNodeName(user->getLoc()) + "'";
  if (auto list = part->getAttrOfType<ArrayAttr>("axes"))
    axes = quoteAxes(llvm::to_vector(list.getAsRange<StringAttr>()));
  if (isa<PermuteOp>(part))
    return node + " reads the shards of its neighbours along " + axes;
  if (auto reduce = dyn_cast<AllReduceOp>(part))
    return node + " takes the " + stringifyReductionKind(reduce.getReduction()).str() +
           " over a dimension that " + axes + " splits";
  return node + " reads the shards of all devices of " + axes;
}

/// Padding must not enter a reduction: replaces it by the reduction's neutral element. Weights are
/// padded with zeros when they are loaded, which a contraction can read as they are.
void Localizer::maskOperands(Operation *op, const ShardingRule &rule, const FactorSplits &splits,
                             MutableArrayRef<Value> operands) {
  if (!rule.readsPadding)
    return;
  for (auto [index, operand] : llvm::enumerate(operands))
    for (auto [dim, factors] : llvm::enumerate(rule.tensors[index]))
      for (int64_t factor : factors) {
        if (rule.kinds[factor] != FactorKind::Reduction || !splits.isPadded(rule, factor, mesh))
          continue;
        if (operand.getDefiningOp<loom::GetWeightOp>() && isa<loom::DotGeneralOp>(op))
          continue;
        int64_t size = cast<RankedTensorType>(op->getOperand(index).getType()).getDimSize(dim);
        operand = loom::maskPadding(builder, op->getLoc(), operand, dim, size, splits.axes[factor],
                                    rule.reduction);
      }
}

void Localizer::localize(OnShardsOp op) {
  Block &body = op.getBody().front();
  locals.map(body.getArgument(0), locals.lookup(op.getInput()));
  for (Operation &part : body.without_terminator())
    builder.clone(part, locals);
  locals.map(op.getOutput(), locals.lookup(body.getTerminator()->getOperand(0)));
}

LogicalResult Localizer::localize(Operation *op) {
  if (auto shards = dyn_cast<OnShardsOp>(op)) {
    localize(shards);
    return success();
  }
  auto ruled = dyn_cast<ShardingRuleInterface>(op);
  if (!ruled)
    return op->emitOpError("has no sharding rule; reshards are lowered before");
  ShardingRule rule = ruled.getShardingRule();
  FailureOr<OpSplits> splits = readSplits(op, rule, mesh);
  if (failed(splits))
    return failure();
  SmallVector<Sharding> shardings = getSplitShardings(op, rule, *splits, mesh);
  SmallVector<Value> operands;
  for (auto [i, operand] : llvm::enumerate(op->getOperands())) {
    Sharding have(getSharding(operand));
    if (!areSamePlacement(have, shardings[i], cast<RankedTensorType>(operand.getType()), mesh))
      return op->emitOpError("reads operand ")
             << i << " as " << shardings[i].getAttr(mesh) << ", but it is " << have.getAttr(mesh)
             << "; a reshard is missing";
    operands.push_back(locals.lookup(operand));
  }
  Operation *mark = block->empty() ? nullptr : &block->back();
  maskOperands(op, rule, splits->factors, operands);
  SmallVector<Type> types;
  for (OpResult result : op->getResults())
    types.push_back(getLocalType(result.getType(), getSharding(result)));
  op->removeAttr(kSplits); // local operations are not split
  SmallVector<Value> results = ruled.partition(builder, operands, types, splits->factors.axes);
  for (Operation &part :
       llvm::make_range(mark ? std::next(Block::iterator(mark)) : block->begin(), block->end())) {
    part.setAttr(kStage, getStageAttr(op));
    if (isCommunication(&part))
      addCause(&part, describePart(op, &part));
  }
  for (auto [result, local] : llvm::zip_equal(op->getResults(), results)) {
    setSharding(local, getSharding(result), getOrigin(result));
    if (auto weight = local.getDefiningOp<loom::GetWeightOp>())
      weight.setShardingAttr(getSharding(result));
    locals.map(result, local);
  }
  return success();
}

LogicalResult Localizer::run() {
  createLocalFunction();
  builder.setInsertionPointToEnd(block);
  for (Operation &op : func.front().without_terminator())
    if (failed(localize(&op)))
      return failure();
  Operation *terminator = func.front().getTerminator();
  SmallVector<Value> results = llvm::map_to_vector(
      terminator->getOperands(), [&](Value value) { return locals.lookup(value); });
  func::ReturnOp::create(builder, terminator->getLoc(), results)
      ->setAttr(kStage, getStageAttr(terminator));
  func.erase();
  return success();
}
