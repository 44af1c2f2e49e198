//===- VerifySharded.cpp - verify the shard phase -------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/dist/Limits.h"
#include "dialects/dist/RequireMesh.h"
#include "dialects/dist/Splits.h"
#include "dialects/loom/Control.h"
#include "dialects/loom/Training.h"
#include "passes/shard/Shard.h"
#include "passes/shard/StageCuts.h"

#include "llvm/ADT/DenseSet.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

namespace gridloom {
#define GEN_PASS_DEF_VERIFYSHARDED
#include "passes/shard/Passes.h.inc"
} // namespace gridloom

namespace {
struct VerifyShardedPass : public gridloom::impl::VerifyShardedBase<VerifyShardedPass> {
  using VerifyShardedBase::VerifyShardedBase;

  void runOnOperation() override {
    MeshOp meshOp = requireMesh(getOperation());
    if (!meshOp)
      return signalPassFailure();
    Mesh mesh(meshOp);
    auto axis = getOperation()->getAttrOfType<StringAttr>(kStageAxis);
    stageAxis = axis && mesh.getSize(axis) > 1 ? axis : StringAttr();
    for (auto func : getOperation().getOps<func::FuncOp>())
      if (failed(verifyFunction(func, mesh)) || failed(verifySplits(func, mesh)))
        return signalPassFailure();
    if (failed(verifyStates()))
      return signalPassFailure();
  }

private:
  LogicalResult verifySharding(Operation *where, Twine what, RankedTensorType type,
                               ShardingAttr sharding, OriginAttr origin, const Mesh &mesh,
                               bool mayBePartial = false);
  LogicalResult verifyAxis(Operation *where, Twine what, StringAttr axis, const Mesh &mesh);
  LogicalResult verifyFunction(func::FuncOp func, const Mesh &mesh);
  LogicalResult verifyCutInTime(func::FuncOp func, Twine what, ShardingAttr sharding);
  LogicalResult verifyStage(Operation *op);
  LogicalResult verifyStates();
  LogicalResult verifyStorage(Operation *where, Twine what, Value value, const Mesh &mesh);
  LogicalResult verifySplits(func::FuncOp func, const Mesh &mesh);

  StringAttr stageAxis; ///< null when there is one stage
};
} // namespace

LogicalResult VerifyShardedPass::verifyAxis(Operation *where, Twine what, StringAttr axis,
                                            const Mesh &mesh) {
  if (llvm::none_of(mesh.getAxes(),
                    [&](const Mesh::Axis &known) { return known.name == axis; })) // D-C2
    return where->emitOpError() << what << " uses axis " << axis << ", which is not in the mesh";
  if (axis == stageAxis)
    return where->emitOpError() << what << " is split over " << axis
                                << ", the axis of the pipeline's stages";
  return success();
}

/// S-G1, S-G2, S-G4
LogicalResult VerifyShardedPass::verifySharding(Operation *where, Twine what, RankedTensorType type,
                                                ShardingAttr sharding, OriginAttr origin,
                                                const Mesh &mesh, bool mayBePartial) {
  if (!sharding)
    return where->emitOpError() << what << " has no sharding";
  if (sharding.getMesh() != mesh.getSymbol())
    return where->emitOpError() << what << " is sharded over " << sharding.getMesh()
                                << ", the mesh is " << mesh.getSymbol();
  if (static_cast<int64_t>(sharding.getDims().size()) != type.getRank()) // D-C1
    return where->emitOpError() << what << " has a sharding of " << sharding.getDims().size()
                                << " dimensions for " << type;
  if (!sharding.getUnreduced().empty() && !mayBePartial)
    return where->emitOpError() << what
                                << " is declared unreduced; only results of operations can be";
  llvm::DenseSet<StringAttr> seen;
  for (DimShardingAttr dim : sharding.getDims()) {
    if (dim.getOpen())
      return where->emitOpError() << what << " has an open dimension";
    if (dim.getGranule() < 1 || dim.getGranule() > kMaxGranule) // D-C4
      return where->emitOpError() << what << " has a granule of " << dim.getGranule()
                                  << "; it has to be from 1 to " << kMaxGranule;
    ArrayRef<StringAttr> axes = dim.getAxes();
    for (auto [i, axis] : llvm::enumerate(axes)) {
      if (failed(verifyAxis(where, what, axis, mesh)))
        return failure();
      if (!seen.insert(axis).second) // D-C3
        return where->emitOpError() << what << " uses axis " << axis << " twice";
      if (isMicroAxis(axis) && i + 1 != axes.size())
        return where->emitOpError() << what << " is cut over " << axes[i + 1] << " within " << axis
                                    << "; micro-batches are minor to all axes of a dimension";
    }
  }
  for (StringAttr axis : sharding.getUnreduced()) {
    if (failed(verifyAxis(where, what, axis, mesh)))
      return failure();
    if (!seen.insert(axis).second) // D-C3
      return where->emitOpError() << what << " uses axis " << axis << " twice";
  }
  if (!origin || origin.isEmpty())
    return where->emitOpError() << what << " has a sharding without an origin";
  return success();
}

/// S-G4
LogicalResult VerifyShardedPass::verifyCutInTime(func::FuncOp func, Twine what,
                                                 ShardingAttr sharding) {
  if (Sharding(sharding).getMicroDim() == 0)
    return success();
  return func.emitOpError() << what << " is not cut into micro-batches";
}

/// S-G3
LogicalResult VerifyShardedPass::verifyStage(Operation *op) {
  auto stage = op->getAttrOfType<IntegerAttr>(kStage);
  if (!stage)
    return op->emitOpError("has no stage");
  if (loom::isTrainStep(op->getParentOfType<func::FuncOp>()))
    return success(); // the backward part goes back through the stages
  for (Value operand : op->getOperands())
    if (Operation *producer = operand.getDefiningOp())
      if (auto earlier = producer->getAttrOfType<IntegerAttr>(kStage);
          earlier && earlier.getInt() > stage.getInt())
        return op->emitOpError("of stage ")
               << stage.getInt() << " reads a value of stage " << earlier.getInt();
  return success();
}

/// S-G6
LogicalResult VerifyShardedPass::verifyStates() {
  llvm::DenseMap<StringAttr, Operation *> known;
  llvm::DenseMap<StringAttr, std::pair<ShardingAttr, func::FuncOp>> stored;
  auto nameOf = [](Operation *op) { return op->getParentOfType<func::FuncOp>().getSymName(); };
  auto stageOf = [](Operation *op) { return op->getAttrOfType<IntegerAttr>(kStage).getInt(); };
  for (auto func : getOperation().getOps<func::FuncOp>()) {
    for (const StateUse &use : getStateUses(func)) {
      Operation *first = known.try_emplace(use.state, use.op).first->second;
      if (stageOf(first) != stageOf(use.op))
        return use.op->emitOpError("of @")
               << nameOf(use.op) << " uses state '" << use.state.getValue() << "' in stage "
               << stageOf(use.op) << ", but '" << loom::getNodeName(first->getLoc()) << "' of @"
               << nameOf(first) << " uses it in stage " << stageOf(first)
               << "; a state lies in one stage";
    }
    for (BlockArgument argument : func.getArguments()) {
      unsigned i = argument.getArgNumber();
      auto state = func.getArgAttrOfType<StringAttr>(i, loom::kState);
      if (!state)
        continue;
      if (failed(verifyStorage(func, "state '" + state.getValue() + "'", argument,
                               Mesh::get(getOperation()))))
        return failure();
      ShardingAttr storage = getStorage(argument);
      auto [first, other] = stored.try_emplace(state, storage, func).first->second;
      if (first != storage)
        return func.emitOpError("stores state '") << state.getValue() << "' as " << storage << ", @"
                                                  << other.getSymName() << " as " << first;
      auto owner = func.getArgAttrOfType<IntegerAttr>(i, kStage);
      auto use = known.find(func.getArgAttrOfType<StringAttr>(i, loom::kState));
      if (owner && use != known.end() && owner.getInt() != stageOf(use->second))
        return func.emitOpError("keeps state '")
               << use->first.getValue() << "' in stage " << owner.getInt() << ", but '"
               << loom::getNodeName(use->second->getLoc()) << "' uses it in stage "
               << stageOf(use->second);
    }
  }
  return success();
}

LogicalResult VerifyShardedPass::verifyFunction(func::FuncOp func, const Mesh &mesh) {
  auto micro = StringAttr::get(&getContext(), MeshOp::kMicroAxis);
  bool cut = mesh.getSize(micro) > 1;
  for (BlockArgument argument : func.getArguments()) {
    ShardingAttr sharding = getSharding(argument);
    if (failed(verifySharding(func, "argument " + Twine(argument.getArgNumber()),
                              cast<RankedTensorType>(argument.getType()), sharding,
                              getOrigin(argument), mesh)))
      return failure();
    if (cut &&
        failed(verifyCutInTime(func, "argument " + Twine(argument.getArgNumber()), sharding)))
      return failure();
  }
  for (unsigned i = 0; i < func.getNumResults(); ++i) {
    auto sharding = func.getResultAttrOfType<ShardingAttr>(i, kSharding);
    if (failed(verifySharding(func, "result " + Twine(i),
                              cast<RankedTensorType>(func.getResultTypes()[i]), sharding,
                              func.getResultAttrOfType<OriginAttr>(i, kOrigin), mesh)))
      return failure();
    if (cut && failed(verifyCutInTime(func, "result " + Twine(i), sharding)))
      return failure();
  }
  for (Operation &op : func.front().without_terminator()) {
    for (auto [i, result] : llvm::enumerate(op.getResults()))
      if (failed(verifySharding(&op, "result " + Twine(i), cast<RankedTensorType>(result.getType()),
                                getSharding(result), getOrigin(result), mesh,
                                /*mayBePartial=*/true)))
        return failure();
    if (failed(verifyStage(&op)))
      return failure();
  }
  return success();
}

/// S-G8: a value made as `made` can be brought to `need`, in which `user` reads it.
static LogicalResult verifyReach(Operation *user, Twine what, Sharding made, Sharding need,
                                 const Mesh &mesh) {
  for (StringAttr axis : need.unreduced)
    if (!llvm::is_contained(made.unreduced, axis) || made.reduction != ReductionKind::Sum)
      return user->emitOpError("leaves ") << what << " unreduced over '" << axis.getValue()
                                          << "', over which it is no partial sum";
  for (Sharding *sharding : {&made, &need}) // axes of one device cut nothing
    for (Sharding::Dim &dim : sharding->dims)
      llvm::erase_if(dim.axes, [&](StringAttr axis) { return mesh.getSize(axis) == 1; });
  if (areCutAlikeInTime(made, need))
    return success();
  return user->emitOpError("needs ")
         << what << " as " << need.getAttr(mesh) << ", but it is made as " << made.getAttr(mesh)
         << "; micro-batches do not communicate";
}

/// "'/mlp/down/MatMul'"
static std::string quoteNode(Value value) { return "'" + loom::getNodeName(value.getLoc()) + "'"; }

/// S-G11: `user` takes the value as partial sums over the axes over which it is declared unreduced.
static LogicalResult verifyReader(Operation *user, Value value, ArrayRef<StringAttr> taken) {
  ShardingAttr sharding = value.getDefiningOp() ? getSharding(value) : ShardingAttr();
  ArrayRef<StringAttr> declared = sharding ? sharding.getUnreduced() : ArrayRef<StringAttr>();
  auto ruled = dyn_cast<ShardingRuleInterface>(user);
  for (StringAttr axis : declared)
    if (!llvm::is_contained(taken, axis))
      return user->emitOpError("needs all of ")
             << quoteNode(value) << ", which is declared unreduced over '" << axis.getValue()
             << "'; "
             << (ruled && ruled.isLinear()
                     ? "have all its readers take it so, or declare it whole"
                     : "only linear operations can take it so: declare it whole");
  for (StringAttr axis : taken)
    if (!llvm::is_contained(declared, axis))
      return user->emitOpError("takes ")
             << quoteNode(value) << " unreduced over '" << axis.getValue()
             << "', but it is declared whole; declare it unreduced, and have all its readers "
                "take it so";
  return success();
}

/// S-G11: a value is declared unreduced only over axes over which it is made in partial sums.
static LogicalResult verifyDeclared(OpResult result, const Sharding &made) {
  ShardingAttr declared = getSharding(result);
  for (StringAttr axis : declared.getUnreduced())
    if (!llvm::is_contained(made.unreduced, axis) || made.reduction != ReductionKind::Sum ||
        declared.getReduction() != ReductionKind::Sum)
      return result.getOwner()->emitOpError("makes no partial sums over '")
             << axis.getValue() << "', but is declared unreduced over it; split what it sums over "
             << "that axis, or declare it whole";
  return success();
}

/// S-G9
static LogicalResult verifyBodies(Operation *op, ArrayRef<Sharding> shardings, const Mesh &mesh) {
  for (loom::BodyLink &link : loom::getBodies(op)) {
    auto verify = [&](Twine what, const Sharding &outer, ShardingAttr inner) -> LogicalResult {
      if (inner && Sharding(inner) == outer)
        return success();
      return op->emitOpError("is split as ")
             << outer.getAttr(mesh) << " where " << what << " of its body @"
             << link.body.getSymName() << " is " << inner;
    };
    for (auto [i, operand] : llvm::enumerate(link.operands))
      if (failed(verify("argument " + Twine(i), shardings[operand],
                        getSharding(link.body.getArgument(i)))))
        return failure();
    for (auto [i, result] : llvm::enumerate(link.results)) {
      // A loop's condition is one element.
      const Sharding &outer = shardings[result ? op->getNumOperands() + *result : 0];
      if (failed(verify("result " + Twine(i), outer,
                        link.body.getResultAttrOfType<ShardingAttr>(i, kSharding))))
        return failure();
    }
  }
  return success();
}

/// S-G10
LogicalResult VerifyShardedPass::verifyStorage(Operation *where, Twine what, Value value,
                                               const Mesh &mesh) {
  ShardingAttr storage = getStorage(value);
  if (!storage)
    return where->emitOpError() << what << " has no dist.storage; run dist-declare-storage first";
  if (failed(verifySharding(where, "storage of " + what, cast<RankedTensorType>(value.getType()),
                            storage, OriginAttr::get(&getContext(), "storage"), mesh)))
    return failure();
  if (Sharding(storage).getMicroDim() >= 0)
    return where->emitOpError() << "storage of " << what
                                << " is cut into micro-batches; it is there for all of them";
  return success();
}

/// S-G7, S-G8, S-G9, S-G11
LogicalResult VerifyShardedPass::verifySplits(func::FuncOp func, const Mesh &mesh) {
  llvm::DenseMap<Value, Sharding> made;
  for (BlockArgument argument : func.getArguments())
    made[argument] = Sharding(getGivenSharding(argument));
  for (Operation &op : func.front().without_terminator()) {
    auto ruled = dyn_cast<ShardingRuleInterface>(op);
    if (!ruled)
      return op.emitOpError("has no sharding rule and cannot be partitioned");
    ShardingRule rule = ruled.getShardingRule();
    FailureOr<OpSplits> splits = readSplits(&op, rule, mesh);
    if (failed(splits))
      return failure();
    for (auto [factor, axes] : llvm::enumerate(splits->factors.axes))
      if (stageAxis && llvm::is_contained(axes, stageAxis)) // D-SP2
        return op.emitOpError("splits factor ")
               << factor << " over " << stageAxis << ", the axis of the pipeline's stages";
    SmallVector<Sharding> shardings = getSplitShardings(&op, rule, *splits, mesh);
    for (auto [i, operand] : llvm::enumerate(op.getOperands()))
      if (failed(verifyReach(&op, "operand " + Twine(i), made[operand], shardings[i], mesh)) ||
          failed(verifyReader(&op, operand, shardings[i].unreduced)))
        return failure();
    if (failed(verifyBodies(&op, shardings, mesh)))
      return failure();
    if (auto weight = dyn_cast<loom::GetWeightOp>(op)) {
      if (failed(verifyStorage(&op, "weight '" + weight.getName() + "'", weight.getOutput(), mesh)))
        return failure();
      if (Sharding stored(getStorage(weight.getOutput())); stored.dims != shardings.front().dims)
        return op.emitOpError("reads ")
               << shardings.front().getAttr(mesh) << " of a weight that is stored as "
               << stored.getAttr(mesh);
    }
    for (OpResult result : op.getResults()) {
      made[result] = shardings[op.getNumOperands() + result.getResultNumber()];
      if (failed(verifyDeclared(result, made[result])))
        return failure();
    }
  }
  Operation *terminator = func.front().getTerminator();
  for (auto [i, value] : llvm::enumerate(terminator->getOperands()))
    if (failed(verifyReach(terminator, "result " + Twine(i), made[value],
                           Sharding(func.getResultAttrOfType<ShardingAttr>(i, kSharding)), mesh)) ||
        failed(verifyReader(terminator, value, {})))
      return failure();
  return success();
}
