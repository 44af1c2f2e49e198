//===- Partition.cpp - the program of one device ----------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/partition/Partition.h"
#include "dialects/dist/Splits.h"
#include "dialects/loom/Padding.h"
#include "passes/partition/Resharder.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

namespace gridloom {
#define GEN_PASS_DEF_PARTITION
#include "passes/partition/Passes.h.inc"
} // namespace gridloom

namespace {
/// Partitions one function into a new one.
class Partitioner {
public:
  Partitioner(func::FuncOp func, const Mesh &mesh)
      : func(func), mesh(mesh), builder(func.getContext()) {}
  LogicalResult run();

private:
  /// A local value and the sharding it has. A global value may be there in several.
  struct Version {
    Sharding sharding;
    Value local;
    int64_t stage; ///< the first that may read it
  };

  /// Makes the function that replaces this one; `block` is its body.
  void createLocalFunction();
  LogicalResult partition(Operation *op);
  void maskOperands(Operation *op, const ShardingRule &rule, const FactorSplits &splits,
                    MutableArrayRef<Value> operands);
  FailureOr<Value> request(Value global, const Sharding &sharding, Operation *user, Twine why);
  LogicalResult partitionReturn(func::ReturnOp op);
  /// Puts stage, sharding and origin on what was built after `mark`.
  void annotate(Operation *mark, IntegerAttr stage);
  /// Says why the communication that was built after `mark` is there.
  void explain(Operation *mark, llvm::function_ref<std::string(Operation *)> describe);

  func::FuncOp func;
  const Mesh &mesh;
  OpBuilder builder;
  Block *block = nullptr;
  llvm::DenseMap<Value, SmallVector<Version, 2>> versions;
};

struct PartitionPass : public gridloom::impl::PartitionBase<PartitionPass> {
  using PartitionBase::PartitionBase;

  void runOnOperation() override {
    MeshOp mesh = getMesh(getOperation());
    if (!mesh) {
      getOperation().emitError("no mesh is declared");
      return signalPassFailure();
    }
    for (auto func : llvm::to_vector(getOperation().getOps<func::FuncOp>()))
      if (failed(Partitioner(func, Mesh(mesh)).run()))
        return signalPassFailure();
  }
};
} // namespace

static IntegerAttr getStage(Operation *op) {
  auto stage = op->getAttrOfType<IntegerAttr>(kStage);
  return stage ? stage : IntegerAttr::get(IntegerType::get(op->getContext(), 64), 0);
}

void Partitioner::createLocalFunction() {
  SmallVector<Type> inputs, results;
  for (BlockArgument argument : func.getArguments())
    inputs.push_back(getLocalType(cast<RankedTensorType>(argument.getType()),
                                  Sharding(getSharding(argument)), mesh));
  for (unsigned i = 0; i < func.getNumResults(); ++i)
    results.push_back(getLocalType(cast<RankedTensorType>(func.getResultTypes()[i]),
                                   Sharding(func.getResultAttrOfType<ShardingAttr>(i, kSharding)),
                                   mesh));
  builder.setInsertionPoint(func);
  auto local = func::FuncOp::create(builder, func.getLoc(), func.getSymName(),
                                    builder.getFunctionType(inputs, results));
  local->setDiscardableAttrs(func->getDiscardableAttrDictionary());
  local.setArgAttrsAttr(func.getArgAttrsAttr());
  local.setResAttrsAttr(func.getResAttrsAttr());
  // The global type, which cannot be derived from a padded shard.
  for (auto [i, type] : llvm::enumerate(func.getArgumentTypes()))
    local.setArgAttr(i, loom::kGlobalType, TypeAttr::get(type));
  for (auto [i, type] : llvm::enumerate(func.getResultTypes()))
    local.setResultAttr(i, loom::kGlobalType, TypeAttr::get(type));
  block = local.addEntryBlock();
  for (auto [global, argument] : llvm::zip_equal(func.getArguments(), block->getArguments()))
    versions[global].push_back({Sharding(getSharding(global)), argument, 0});
}

void Partitioner::annotate(Operation *mark, IntegerAttr stage) {
  auto begin = mark ? std::next(Block::iterator(mark)) : block->begin();
  for (Operation &op : llvm::make_range(begin, block->end()))
    op.setAttr(kStage, stage);
}

void Partitioner::explain(Operation *mark, llvm::function_ref<std::string(Operation *)> describe) {
  auto begin = mark ? std::next(Block::iterator(mark)) : block->begin();
  for (Operation &op : llvm::make_range(begin, block->end()))
    if (isCommunication(&op))
      addCause(&op, describe(&op));
}

/// "'model'", "'data' and 'model'"
static std::string quote(ArrayRef<StringAttr> axes) {
  return llvm::join(llvm::map_range(axes, [](StringAttr a) { return "'" + a.str() + "'"; }),
                    " and ");
}

/// Why `user` needs a value resharded.
static std::string describeNeed(const std::string &user, const Sharding &from, const Sharding &to,
                                const Mesh &mesh) {
  if (!from.unreduced.empty() && to.unreduced.empty()) {
    bool isSum = from.reduction == ReductionKind::Sum;
    return "each device of " + quote(from.unreduced) + " has a partial " +
           (isSum ? "sum" : stringifyReductionKind(from.reduction).str()) + "; " + user +
           " needs the whole";
  }
  AxisList gone;
  for (const Sharding::Dim &dim : from.dims)
    for (StringAttr axis : dim.axes)
      if (!to.usesAxis(axis))
        gone.push_back(axis);
  if (!gone.empty())
    return user + " needs all of a value that " + quote(gone) + " splits";
  std::string text = user + " needs it as ";
  llvm::raw_string_ostream(text) << to.getAttr(mesh);
  return text;
}

/// Why an operation's own partition communicates.
static std::string describePart(Operation *user, Operation *part) {
  std::string axes, node = "'" + loom::getNodeName(user->getLoc()) + "'";
  if (auto list = part->getAttrOfType<ArrayAttr>("axes"))
    axes = quote(llvm::to_vector(list.getAsRange<StringAttr>()));
  if (isa<PermuteOp>(part))
    return node + " reads the shards of its neighbours along " + axes;
  if (auto reduce = dyn_cast<AllReduceOp>(part))
    return node + " takes the " + stringifyReductionKind(reduce.getReduction()).str() +
           " over a dimension that " + axes + " splits";
  return node + " reads the shards of all devices of " + axes;
}

FailureOr<Value> Partitioner::request(Value global, const Sharding &sharding, Operation *user,
                                      Twine why) {
  SmallVector<Version, 2> &available = versions[global];
  // A reshard belongs to the producer's stage: its group is one stage's devices. Inputs are there
  // in all stages.
  Operation *producer = global.getDefiningOp();
  IntegerAttr stage = producer ? getStage(producer) : getStage(user);
  // The cheapest version to start from; one that is right costs nothing. Values flow to later
  // stages only.
  const Version *source = nullptr;
  SmallVector<ReshardStep> steps;
  double least = std::numeric_limits<double>::infinity();
  for (const Version &version : available) {
    if (version.stage > stage.getInt())
      continue;
    FailureOr<SmallVector<ReshardStep>> plan =
        planReshard(version.sharding, sharding, cast<RankedTensorType>(global.getType()), mesh);
    if (failed(plan))
      continue;
    double seconds =
        getReshardCost(*plan, cast<RankedTensorType>(version.local.getType()), mesh).seconds;
    if (seconds < least) {
      least = seconds;
      source = &version;
      steps = std::move(*plan);
    }
  }
  if (!source)
    return user->emitOpError("cannot reshard ")
           << why << " from " << available.front().sharding.getAttr(mesh) << " to "
           << sharding.getAttr(mesh);
  if (steps.empty())
    return source->local;
  Operation *mark = block->empty() ? nullptr : &block->back();
  Location loc = producer ? producer->getLoc() : user->getLoc();
  // A value that goes from an input straight to an output has no node; it takes the input's name.
  if (auto argument = dyn_cast<BlockArgument>(global); argument && isa<func::ReturnOp>(user))
    if (auto name = func.getArgAttrOfType<StringAttr>(argument.getArgNumber(), loom::kName))
      loc = NameLoc::get(name);
  Value local = emitReshard(builder, loc, source->local, steps, source->sharding.reduction, mesh);
  annotate(mark, stage);
  std::string name = isa<func::ReturnOp>(user)
                         ? why.str() + ", made by '" + loom::getNodeName(loc) + "',"
                         : "'" + loom::getNodeName(user->getLoc()) + "'";
  std::string because = describeNeed(name, source->sharding, sharding, mesh);
  explain(mark, [&](Operation *) { return because; });
  setSharding(local, sharding.getAttr(mesh), getOrigin(global));
  available.push_back({sharding, local, stage.getInt()});
  return local;
}

/// Padding is poison to a reduction: replaces it by what does not count. Weights are padded with
/// zeros when they are loaded, which a contraction may read as they are.
void Partitioner::maskOperands(Operation *op, const ShardingRule &rule, const FactorSplits &splits,
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

LogicalResult Partitioner::partition(Operation *op) {
  auto ruled = dyn_cast<ShardingRuleInterface>(op);
  if (!ruled)
    return op->emitOpError("has no sharding rule and cannot be partitioned");
  ShardingRule rule = ruled.getShardingRule();
  FailureOr<OpSplits> splits = readSplits(op, rule, mesh);
  if (failed(splits))
    return failure();
  op->removeAttr(kSplits); // local operations are not split
  SmallVector<Sharding> shardings = getSplitShardings(op, rule, *splits, mesh);
  SmallVector<Value> operands;
  for (auto [i, operand] : llvm::enumerate(op->getOperands())) {
    FailureOr<Value> local = request(operand, shardings[i], op, "operand " + Twine(i));
    if (failed(local))
      return failure();
    operands.push_back(*local);
  }
  Operation *mark = block->empty() ? nullptr : &block->back();
  maskOperands(op, rule, splits->factors, operands);

  ArrayRef<Sharding> produced = ArrayRef(shardings).take_back(op->getNumResults());
  SmallVector<Type> types;
  for (auto [result, sharding] : llvm::zip_equal(op->getResults(), produced))
    types.push_back(getLocalType(cast<RankedTensorType>(result.getType()), sharding, mesh));
  SmallVector<Value> locals = ruled.partition(builder, operands, types, splits->factors.axes);
  annotate(mark, getStage(op));
  explain(mark, [&](Operation *part) { return describePart(op, part); });
  for (auto [result, local, sharding] : llvm::zip_equal(op->getResults(), locals, produced)) {
    setSharding(local, sharding.getAttr(mesh), getOrigin(result));
    if (auto weight = local.getDefiningOp<loom::GetWeightOp>())
      weight.setShardingAttr(sharding.getAttr(mesh));
    versions[result].push_back({sharding, local, getStage(op).getInt()});
  }
  return success();
}

LogicalResult Partitioner::partitionReturn(func::ReturnOp op) {
  SmallVector<Value> locals;
  for (auto [i, operand] : llvm::enumerate(op.getOperands())) {
    auto name = func.getResultAttrOfType<StringAttr>(i, loom::kName);
    std::string what = name ? "output '" + name.str() + "'" : "result " + std::to_string(i);
    FailureOr<Value> local =
        request(operand, Sharding(func.getResultAttrOfType<ShardingAttr>(i, kSharding)), op, what);
    if (failed(local))
      return failure();
    locals.push_back(*local);
  }
  auto terminator = func::ReturnOp::create(builder, op.getLoc(), locals);
  terminator->setAttr(kStage, getStage(op));
  return success();
}

LogicalResult Partitioner::run() {
  createLocalFunction();
  builder.setInsertionPointToEnd(block);
  for (Operation &op : func.front().without_terminator())
    if (failed(partition(&op)))
      return failure();
  if (failed(partitionReturn(cast<func::ReturnOp>(func.front().getTerminator()))))
    return failure();
  func.erase();
  return success();
}
