//===- VerifySharded.cpp - what the shard phase guarantees ------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/dist/Sharding.h"
#include "passes/shard/Shard.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
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
    MeshOp meshOp = getMesh(getOperation());
    if (!meshOp) {
      getOperation().emitError("no mesh is declared");
      return signalPassFailure();
    }
    Mesh mesh(meshOp);
    for (auto func : getOperation().getOps<func::FuncOp>())
      if (failed(verifyFunction(func, mesh)))
        return signalPassFailure();
  }

private:
  LogicalResult verifySharding(Operation *where, Twine what, RankedTensorType type,
                               ShardingAttr sharding, StringRef origin, const Mesh &mesh);
  LogicalResult verifyFunction(func::FuncOp func, const Mesh &mesh);
  LogicalResult verifyStage(Operation *op);
};
} // namespace

/// S-G1, S-G2
LogicalResult VerifyShardedPass::verifySharding(Operation *where, Twine what, RankedTensorType type,
                                                ShardingAttr sharding, StringRef origin,
                                                const Mesh &mesh) {
  if (!sharding)
    return where->emitOpError() << what << " has no sharding";
  if (sharding.getMesh() != mesh.getSymbol())
    return where->emitOpError() << what << " is sharded over " << sharding.getMesh()
                                << ", the mesh is " << mesh.getSymbol();
  if (static_cast<int64_t>(sharding.getDims().size()) != type.getRank()) // D-C1
    return where->emitOpError() << what << " has a sharding of " << sharding.getDims().size()
                                << " dimensions for " << type;
  if (!sharding.getUnreduced().empty())
    return where->emitOpError() << what
                                << " is declared unreduced; only partitioning makes partial values";
  llvm::DenseSet<StringAttr> seen;
  for (DimShardingAttr dim : sharding.getDims()) {
    if (dim.getOpen())
      return where->emitOpError() << what << " has an open dimension";
    if (dim.getGranule() < 1) // D-C4
      return where->emitOpError() << what << " has a granule of " << dim.getGranule();
    for (StringAttr axis : dim.getAxes()) {
      if (llvm::none_of(mesh.getAxes(),
                        [&](const Mesh::Axis &known) { return known.name == axis; })) // D-C2
        return where->emitOpError() << what << " uses axis " << axis << ", which the mesh has not";
      if (!seen.insert(axis).second) // D-C3
        return where->emitOpError() << what << " uses axis " << axis << " twice";
    }
  }
  if (origin.empty())
    return where->emitOpError() << what << " has a sharding without an origin";
  return success();
}

/// S-G3
LogicalResult VerifyShardedPass::verifyStage(Operation *op) {
  auto stage = op->getAttrOfType<IntegerAttr>(kStage);
  if (!stage)
    return op->emitOpError("has no stage");
  for (Value operand : op->getOperands())
    if (Operation *producer = operand.getDefiningOp())
      if (auto earlier = producer->getAttrOfType<IntegerAttr>(kStage);
          earlier && earlier.getInt() > stage.getInt())
        return op->emitOpError("of stage ")
               << stage.getInt() << " reads a value of stage " << earlier.getInt();
  return success();
}

LogicalResult VerifyShardedPass::verifyFunction(func::FuncOp func, const Mesh &mesh) {
  auto micro = StringAttr::get(&getContext(), MeshOp::kMicroAxis);
  bool cut = mesh.getSize(micro) > 1;
  auto hasMicro = [&](ShardingAttr sharding) {
    return !sharding.getDims().empty() &&
           llvm::is_contained(sharding.getDims()[0].getAxes(), micro);
  };
  for (BlockArgument argument : func.getArguments()) {
    ShardingAttr sharding = getSharding(argument);
    if (failed(verifySharding(func, "argument " + Twine(argument.getArgNumber()),
                              cast<RankedTensorType>(argument.getType()), sharding,
                              getOrigin(argument), mesh)))
      return failure();
    if (cut && !hasMicro(sharding)) // S-G4
      return func.emitOpError("argument ")
             << argument.getArgNumber() << " is not cut into micro-batches";
  }
  for (unsigned i = 0; i < func.getNumResults(); ++i) {
    auto sharding = func.getResultAttrOfType<ShardingAttr>(i, kSharding);
    auto origin = func.getResultAttrOfType<StringAttr>(i, kOrigin);
    if (failed(verifySharding(func, "result " + Twine(i),
                              cast<RankedTensorType>(func.getResultTypes()[i]), sharding,
                              origin ? origin.getValue() : StringRef(), mesh)))
      return failure();
    if (cut && !hasMicro(sharding)) // S-G4
      return func.emitOpError("result ") << i << " is not cut into micro-batches";
  }
  for (Operation &op : func.front().without_terminator()) {
    for (auto [i, result] : llvm::enumerate(op.getResults()))
      if (failed(verifySharding(&op, "result " + Twine(i), cast<RankedTensorType>(result.getType()),
                                getSharding(result), getOrigin(result), mesh)))
        return failure();
    if (failed(verifyStage(&op)))
      return failure();
  }
  return success();
}
