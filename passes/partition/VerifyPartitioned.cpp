//===- VerifyPartitioned.cpp - verify the partition phase -----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/dist/Sharding.h"
#include "dialects/loom/Training.h"
#include "passes/partition/Partition.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

namespace gridloom {
#define GEN_PASS_DEF_VERIFYPARTITIONED
#include "passes/partition/Passes.h.inc"
} // namespace gridloom

namespace {
/// Both ends of a transfer.
struct Ends {
  SendOp send;
  RecvOp recv;
};

struct VerifyPartitionedPass : public gridloom::impl::VerifyPartitionedBase<VerifyPartitionedPass> {
  using VerifyPartitionedBase::VerifyPartitionedBase;

  void runOnOperation() override {
    for (auto func : getOperation().getOps<func::FuncOp>())
      if (failed(verifyFunction(func)))
        return signalPassFailure();
    if (failed(verifyTransfers()) || failed(verifyStates()))
      return signalPassFailure();
  }

private:
  LogicalResult verifyFunction(func::FuncOp func);
  LogicalResult verifyTransfers();
  LogicalResult verifyStates();
};
} // namespace

static int64_t getFunctionStage(Operation *op) {
  return op->getParentOfType<func::FuncOp>()->getAttrOfType<IntegerAttr>(kStage).getInt();
}

/// An axis that splits a weight, though devices along it have copies of weights; null if none.
static StringAttr findAxisOfCopies(loom::GetWeightOp weight, StringAttr stageAxis) {
  for (DimShardingAttr dim : cast<ShardingAttr>(*weight.getSharding()).getDims())
    for (StringAttr axis : dim.getAxes())
      if (axis == stageAxis || axis.getValue() == MeshOp::kMicroAxis)
        return axis;
  return {};
}

LogicalResult VerifyPartitionedPass::verifyFunction(func::FuncOp func) {
  if (!func->hasAttr(kStage) || !func->hasAttr(kMicrobatches)) // P-G1
    return func.emitOpError("is not a stage: it lacks ") << kStage << " or " << kMicrobatches;
  MeshOp mesh = getMesh(func->getParentOfType<ModuleOp>());
  int64_t count = func->getAttrOfType<IntegerAttr>(kMicrobatches).getInt(),
          expected = mesh ? mesh.getAxisSize(MeshOp::kMicroAxis) : 1;
  if (count != expected) // P-G4
    return func.emitOpError("runs ") << count << " micro-batches; the mesh has " << expected;
  for (unsigned i = 0; i < func.getNumArguments(); ++i) // P-G3
    if (!func.getArgAttr(i, loom::kName) || !func.getArgAttrOfType<ShardingAttr>(i, kSharding))
      return func.emitOpError("argument ") << i << " lacks a name or a sharding";
  for (unsigned i = 0; i < func.getNumResults(); ++i)
    if (!func.getResultAttr(i, loom::kName) ||
        !func.getResultAttrOfType<ShardingAttr>(i, kSharding))
      return func.emitOpError("result ") << i << " lacks a name or a sharding";
  auto stageAxis = func->getParentOfType<ModuleOp>()->getAttrOfType<StringAttr>(kStageAxis);
  bool named = func.walk([&](Operation *op) {
                     bool known = op != func && !loom::getNodeName(op->getLoc()).empty();
                     return known ? WalkResult::interrupt() : WalkResult::advance();
                   })
                   .wasInterrupted();
  WalkResult walk = func.walk([&](Operation *op) -> WalkResult {
    if (named && isCommunication(op) && !getCause(op).contains('\'')) // P-G7
      return op->emitOpError("has no cause that names a node; the pass that made it must say in ")
             << kBecause << " who needs it";
    if (auto weight = dyn_cast<loom::GetWeightOp>(op)) {
      if (!weight.getSharding()) // P-G3
        return op->emitOpError("has no sharding");
      if (StringAttr axis = findAxisOfCopies(weight, stageAxis)) // P-G8
        return op->emitOpError("splits '")
               << weight.getName() << "' over " << axis
               << "; each stage that reads a weight has a copy of its own";
    }
    auto axes = isCommunication(op) ? op->getAttrOfType<ArrayAttr>("axes") : ArrayAttr();
    if (axes && stageAxis && llvm::is_contained(axes, stageAxis)) // P-G5
      return op->emitOpError("communicates over ")
             << stageAxis << ", the axis of the pipeline's stages";
    return WalkResult::advance();
  });
  return failure(walk.wasInterrupted());
}

LogicalResult VerifyPartitionedPass::verifyTransfers() { // P-G2
  // By entry and bound dimensions, which the stages of a specialisation share, and by channel.
  using Key = std::pair<std::pair<Attribute, Attribute>, int64_t>;
  llvm::MapVector<Key, Ends> channels;
  auto keyOf = [](Operation *op, uint64_t channel) -> Key {
    auto func = op->getParentOfType<func::FuncOp>();
    return {{func->getAttr(loom::kEntry), func->getAttr(loom::kDims)},
            static_cast<int64_t>(channel)};
  };
  WalkResult walk = getOperation().walk([&](Operation *op) -> WalkResult {
    if (auto send = dyn_cast<SendOp>(op)) {
      if (std::exchange(channels[keyOf(op, send.getChannel())].send, send))
        return op->emitOpError("is a second send on channel ") << send.getChannel();
    } else if (auto recv = dyn_cast<RecvOp>(op)) {
      if (std::exchange(channels[keyOf(op, recv.getChannel())].recv, recv))
        return op->emitOpError("is a second receive on channel ") << recv.getChannel();
    }
    return WalkResult::advance();
  });
  if (walk.wasInterrupted())
    return failure();
  for (auto &[key, ends] : channels) {
    auto [send, recv] = ends;
    if (!send)
      return recv.emitOpError("has no send on channel ") << key.second;
    if (!recv)
      return send.emitOpError("has no receive on channel ") << key.second;
    if (send.getInput().getType() != recv.getOutput().getType())
      return recv.emitOpError("receives ")
             << recv.getOutput().getType() << ", the send has " << send.getInput().getType();
    if (static_cast<int64_t>(send.getStage()) != getFunctionStage(recv) ||
        static_cast<int64_t>(recv.getStage()) != getFunctionStage(send))
      return recv.emitOpError("and its send do not name each other's stages");
    if (getFunctionStage(send) == getFunctionStage(recv) ||
        (getFunctionStage(send) > getFunctionStage(recv) &&
         !loom::isTrainStep(recv->getParentOfType<func::FuncOp>())))
      return recv.emitOpError("of stage ")
             << getFunctionStage(recv) << " waits for stage " << getFunctionStage(send)
             << "; values flow to later stages only";
  }
  return success();
}

/// P-G6: each state is in one stage, whose session keeps it.
LogicalResult VerifyPartitionedPass::verifyStates() {
  llvm::DenseMap<StringAttr, func::FuncOp> owners;
  for (auto func : getOperation().getOps<func::FuncOp>()) {
    SmallVector<StringAttr> states;
    for (unsigned i = 0; i < func.getNumArguments(); ++i)
      states.push_back(func.getArgAttrOfType<StringAttr>(i, loom::kState));
    for (unsigned i = 0; i < func.getNumResults(); ++i)
      states.push_back(func.getResultAttrOfType<StringAttr>(i, loom::kState));
    for (StringAttr state : states) {
      if (!state)
        continue;
      func::FuncOp owner = owners.try_emplace(state, func).first->second;
      int64_t stage = func->getAttrOfType<IntegerAttr>(kStage).getInt(),
              other = owner->getAttrOfType<IntegerAttr>(kStage).getInt();
      if (stage != other)
        return func.emitOpError("of stage ")
               << stage << " has state '" << state.getValue() << "', which @" << owner.getSymName()
               << " has in stage " << other << "; a state lies in one stage";
    }
  }
  return success();
}
