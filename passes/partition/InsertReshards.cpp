//===- InsertReshards.cpp - reshard values where needed ---------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/dist/RequireMesh.h"
#include "dialects/dist/Splits.h"
#include "passes/partition/KeptSharding.h"
#include "passes/partition/Partition.h"
#include "passes/partition/Resharder.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

namespace gridloom {
#define GEN_PASS_DEF_INSERTRESHARDS
#include "passes/partition/Passes.h.inc"
} // namespace gridloom

namespace {
/// Inserts reshards into one function, in program order.
class Inserter {
public:
  Inserter(func::FuncOp func, const Mesh &mesh)
      : func(func), mesh(mesh), builder(func.getContext()) {}
  LogicalResult run();

private:
  /// A sharding in which a value exists.
  struct Version {
    Sharding sharding;
    Value value;
    int64_t stage; ///< the first that may read it
  };

  LogicalResult insert(Operation *op);
  LogicalResult insert(func::ReturnOp op);
  void takeStorage(BlockArgument argument);
  FailureOr<Value> request(Value value, const Sharding &sharding, Operation *user, Twine why);
  Value addReshard(Value value, const Version &source, const Sharding &to, Location loc,
                   Operation *before, IntegerAttr stage, const std::string &cause);
  void keep(OpResult value, const Sharding &kept);

  func::FuncOp func;
  const Mesh &mesh;
  OpBuilder builder;
  llvm::DenseMap<Value, SmallVector<Version, 2>> versions;
};

struct InsertReshardsPass : public gridloom::impl::InsertReshardsBase<InsertReshardsPass> {
  using InsertReshardsBase::InsertReshardsBase;

  void runOnOperation() override {
    MeshOp mesh = requireMesh(getOperation());
    if (!mesh)
      return signalPassFailure();
    for (auto func : getOperation().getOps<func::FuncOp>())
      if (failed(Inserter(func, Mesh(mesh)).run()))
        return signalPassFailure();
  }
};
} // namespace

/// Describes why `user` needs a value resharded.
static std::string describeNeed(const std::string &user, const Sharding &from, const Sharding &to,
                                const Mesh &mesh) {
  if (!from.unreduced.empty() && to.unreduced.empty()) {
    bool isSum = from.reduction == ReductionKind::Sum;
    return "each device of " + quoteAxes(from.unreduced) + " has a partial " +
           (isSum ? "sum" : stringifyReductionKind(from.reduction).str()) + "; " + user +
           " needs the whole";
  }
  AxisList gone;
  for (const Sharding::Dim &dim : from.dims)
    for (StringAttr axis : dim.axes)
      if (!to.usesAxis(axis))
        gone.push_back(axis);
  if (!gone.empty())
    return user + " needs all of a value that " + quoteAxes(gone) + " splits";
  std::string text = user + " needs it as ";
  llvm::raw_string_ostream(text) << to.getAttr(mesh);
  return text;
}

/// Adds a version of the value, resharded from an existing one.
Value Inserter::addReshard(Value value, const Version &source, const Sharding &to, Location loc,
                           Operation *before, IntegerAttr stage, const std::string &cause) {
  builder.setInsertionPoint(before);
  auto reshard = ReshardOp::create(builder, loc, source.value, source.sharding.getAttr(mesh),
                                   to.getAttr(mesh));
  addCause(reshard, cause);
  reshard->setAttr(kStage, stage);
  setSharding(reshard.getOutput(), reshard.getTo(), getOrigin(value));
  versions[value].push_back({to, reshard.getOutput(), stage.getInt()});
  return reshard.getOutput();
}

/// Reshards a result once, for all its readers.
void Inserter::keep(OpResult value, const Sharding &kept) {
  Operation *op = value.getOwner();
  Version made = versions[value].front();
  addReshard(value, made, kept, op->getLoc(), op->getNextNode(), getStageAttr(op),
             "readers of '" + loom::getNodeName(op->getLoc()) +
                 "' need it in different ways, and all take it from here");
}

FailureOr<Value> Inserter::request(Value value, const Sharding &sharding, Operation *user,
                                   Twine why) {
  SmallVector<Version, 2> &available = versions[value];
  auto type = cast<RankedTensorType>(value.getType());
  // A reshard belongs to the producer's stage: its group consists of one stage's devices. Inputs
  // exist in all stages.
  Operation *producer = value.getDefiningOp();
  IntegerAttr stage = getStageAttr(producer ? producer : user);
  // The cheapest version to start from; one that is right costs nothing. Values flow to later
  // stages only.
  const Version *source = nullptr;
  bool isThere = false;
  double least = std::numeric_limits<double>::infinity();
  for (const Version &version : available) {
    if (version.stage > stage.getInt())
      continue;
    FailureOr<SmallVector<ReshardStep>> plan = planReshard(version.sharding, sharding, type, mesh);
    if (failed(plan))
      continue;
    double seconds =
        getReshardCost(*plan, getLocalType(type, version.sharding, mesh), mesh).seconds;
    if (seconds < least) {
      least = seconds;
      source = &version;
      isThere = plan->empty();
    }
  }
  if (!source)
    return user->emitOpError("cannot reshard ")
           << why << " from " << available.front().sharding.getAttr(mesh) << " to "
           << sharding.getAttr(mesh);
  if (isThere)
    return source->value;
  Location loc = producer ? producer->getLoc() : user->getLoc();
  // A value passed from an input straight to an output has no node; it takes the input's name.
  if (auto argument = dyn_cast<BlockArgument>(value); argument && isa<func::ReturnOp>(user))
    if (auto name = func.getArgAttrOfType<StringAttr>(argument.getArgNumber(), loom::kName))
      loc = NameLoc::get(name);
  std::string name = isa<func::ReturnOp>(user)
                         ? why.str() + ", made by '" + loom::getNodeName(loc) + "',"
                         : "'" + loom::getNodeName(user->getLoc()) + "'";
  Version from = *source; // adding a version moves them
  return addReshard(value, from, sharding, loc, user, stage,
                    describeNeed(name, from.sharding, sharding, mesh));
}

LogicalResult Inserter::insert(Operation *op) {
  auto ruled = dyn_cast<ShardingRuleInterface>(op);
  if (!ruled)
    return op->emitOpError("has no sharding rule and cannot be partitioned");
  ShardingRule rule = ruled.getShardingRule();
  FailureOr<OpSplits> splits = readSplits(op, rule, mesh);
  if (failed(splits))
    return failure();
  SmallVector<Sharding> shardings = getSplitShardings(op, rule, *splits, mesh);
  for (OpOperand &operand : op->getOpOperands()) {
    unsigned i = operand.getOperandNumber();
    FailureOr<Value> value = request(operand.get(), shardings[i], op, "operand " + Twine(i));
    if (failed(value))
      return failure();
    operand.set(*value);
  }
  op->removeAttr(kStorage); // a weight is read as it is stored
  for (OpResult result : op->getResults()) {
    const Sharding &made = shardings[op->getNumOperands() + result.getResultNumber()];
    std::optional<Sharding> kept = findKept(result, made, mesh);
    setSharding(result, made.getAttr(mesh), getOrigin(result));
    versions[result].push_back({made, result, getStageAttr(op).getInt()});
    if (kept)
      keep(result, *kept);
  }
  return success();
}

LogicalResult Inserter::insert(func::ReturnOp op) {
  for (OpOperand &operand : op->getOpOperands()) {
    unsigned i = operand.getOperandNumber();
    auto name = func.getResultAttrOfType<StringAttr>(i, loom::kName);
    std::string what = name ? "output '" + name.str() + "'" : "result " + std::to_string(i);
    Sharding sharding(func.getResultAttrOfType<ShardingAttr>(i, kSharding));
    FailureOr<Value> value = request(operand.get(), sharding, op, what);
    if (failed(value))
      return failure();
    operand.set(*value);
  }
  return success();
}

/// A state comes and goes as it is stored.
void Inserter::takeStorage(BlockArgument argument) {
  ShardingAttr storage = getStorage(argument);
  if (!storage)
    return;
  unsigned number = argument.getArgNumber();
  func.removeArgAttr(number, kStorage);
  func.setArgAttr(number, kSharding, storage);
  Attribute state = func.getArgAttr(number, loom::kState);
  for (unsigned i = 0; i < func.getNumResults(); ++i)
    if (state && func.getResultAttr(i, loom::kState) == state)
      func.setResultAttr(i, kSharding, storage);
}

LogicalResult Inserter::run() {
  for (BlockArgument argument : func.getArguments()) {
    takeStorage(argument);
    versions[argument].push_back({Sharding(getSharding(argument)), argument, 0});
  }
  for (Operation &op : llvm::make_early_inc_range(func.front().without_terminator()))
    if (failed(insert(&op)))
      return failure();
  return insert(cast<func::ReturnOp>(func.front().getTerminator()));
}
