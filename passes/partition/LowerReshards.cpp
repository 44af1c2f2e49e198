//===- LowerReshards.cpp - reshards to collectives --------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/dist/Sharding.h"
#include "passes/partition/Partition.h"
#include "passes/partition/Resharder.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

namespace gridloom {
#define GEN_PASS_DEF_LOWERRESHARDS
#include "passes/partition/Passes.h.inc"
} // namespace gridloom

namespace {
struct LowerReshardsPass : public gridloom::impl::LowerReshardsBase<LowerReshardsPass> {
  using LowerReshardsBase::LowerReshardsBase;

  void runOnOperation() override {
    Mesh mesh = Mesh::get(getOperation());
    WalkResult walk = getOperation().walk([&](ReshardOp reshard) -> WalkResult {
      if (ShardingAttr have = getSharding(reshard.getInput()); have && have != reshard.getFrom())
        return reshard.emitOpError("starts from ")
               << reshard.getFrom() << ", but its input is " << have;
      return lower(reshard, mesh);
    });
    if (walk.wasInterrupted())
      signalPassFailure();
  }

private:
  static LogicalResult lower(ReshardOp reshard, const Mesh &mesh);
};
} // namespace

LogicalResult LowerReshardsPass::lower(ReshardOp reshard, const Mesh &mesh) {
  auto type = cast<RankedTensorType>(reshard.getInput().getType());
  Sharding from(reshard.getFrom()), to(reshard.getTo());
  FailureOr<SmallVector<ReshardStep>> steps = planReshard(from, to, type, mesh);
  if (failed(steps))
    return reshard.emitOpError("cannot go from ") << reshard.getFrom() << " to " << reshard.getTo()
                                                  << "; micro-batches do not communicate";
  OpBuilder builder(reshard);
  Location loc = reshard.getLoc();
  auto shards = OnShardsOp::create(builder, loc, type, reshard.getInput(), reshard.getFrom(),
                                   reshard.getTo());
  Value shard = shards.getBody().emplaceBlock().addArgument(getLocalType(type, from, mesh), loc);
  builder.setInsertionPointToEnd(&shards.getBody().front());
  // Nothing is sent of a value without elements.
  Value moved = type.getNumElements() == 0
                    ? loom::ConstantOp::create(builder, loc,
                                               DenseElementsAttr::get(getLocalType(type, to, mesh),
                                                                      ArrayRef<Attribute>()))
                    : emitReshard(builder, loc, shard, *steps, from.reduction, mesh);
  for (Operation &op : shards.getBody().front()) {
    op.setAttr(kStage, getStageAttr(reshard));
    if (isCommunication(&op))
      addCause(&op, getCause(reshard));
  }
  if (moved != shard)
    setSharding(moved, reshard.getTo(), getOrigin(reshard.getOutput()));
  YieldOp::create(builder, loc, moved);
  shards->setDiscardableAttrs(reshard->getDiscardableAttrDictionary());
  reshard.replaceAllUsesWith(shards.getOutput());
  reshard.erase();
  return success();
}
