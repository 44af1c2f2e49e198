//===- ApplyStrategy.cpp - seeds of data and tensor parallelism -------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/Control.h"
#include "dialects/loom/Training.h"
#include "passes/shard/Bodies.h"
#include "passes/shard/ColumnSeeds.h"
#include "passes/shard/MicroBatches.h"
#include "passes/shard/Shard.h"

#include "llvm/ADT/StringSet.h"

#include <numeric>

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

namespace gridloom {
#define GEN_PASS_DEF_APPLYSTRATEGY
#include "passes/shard/Passes.h.inc"
} // namespace gridloom

/// Embedding tables below this size are not worth a reduction.
static constexpr int64_t kMinTableBytes = 1 << 20;

namespace {
struct ApplyStrategyPass : public gridloom::impl::ApplyStrategyBase<ApplyStrategyPass> {
  using ApplyStrategyBase::ApplyStrategyBase;

  void runOnOperation() override;

private:
  SmallVector<StringAttr> toAttrs(ArrayRef<std::string> names) {
    return llvm::map_to_vector(
        names, [&](const std::string &name) { return StringAttr::get(&getContext(), name); });
  }
  LogicalResult checkAxes(const Mesh &mesh);
  void seedBatch(Propagation &state, func::FuncOp func, StringAttr axis, StringRef origin);
  void seedTables(Propagation &state, func::FuncOp func, StringAttr axis);
  void seedSequence(Propagation &state, func::FuncOp func, StringAttr axis);
  int64_t chooseMicrobatches(const Mesh &mesh, int64_t most);
};
} // namespace

LogicalResult ApplyStrategyPass::checkAxes(const Mesh &mesh) {
  llvm::StringSet<> seen;
  for (ArrayRef<std::string> list : {ArrayRef<std::string>(dp), ArrayRef<std::string>(tp)})
    for (const std::string &axis : list) {
      if (llvm::none_of(mesh.getAxes(),
                        [&](const Mesh::Axis &known) { return known.name == axis; }))
        return getOperation().emitError("the strategy uses axis '")
               << axis << "', which is not in the mesh";
      if (!seen.insert(axis).second)
        return getOperation().emitError("the strategy uses axis '") << axis << "' twice";
    }
  return success();
}

/// The dimension whose name begins with "batch", else the leading one.
static int64_t getBatchDim(func::FuncOp func, BlockArgument argument) {
  auto names = func.getArgAttrOfType<ArrayAttr>(argument.getArgNumber(), loom::kDimNames);
  if (names)
    for (auto [dim, name] : llvm::enumerate(names.getAsRange<StringAttr>()))
      if (name.getValue().starts_with_insensitive("batch"))
        return static_cast<int64_t>(dim);
  return 0;
}

void ApplyStrategyPass::seedBatch(Propagation &state, func::FuncOp func, StringAttr axis,
                                  StringRef origin) {
  for (BlockArgument argument : func.getArguments()) {
    auto type = cast<RankedTensorType>(argument.getType());
    if (type.getRank() == 0 || loom::isOfTraining(argument))
      continue;
    int64_t dim = getBatchDim(func, argument);
    const Sharding &sharding = state.lookup(argument).sharding;
    if (!state.addAxis(argument, dim, axis, origin) && !isMicroAxis(axis) &&
        sharding.dims[dim].open && !sharding.usesAxis(axis) && state.getMesh().getSize(axis) > 1)
      mlir::emitRemark(func.getLoc())
          << "input " << func.getArgAttr(argument.getArgNumber(), loom::kName)
          << " is not split over " << axis << ": its "
          << (dim == 0 ? "leading dimension of " : "batch of ") << type.getDimSize(dim)
          << " is smaller than the axis, which has " << state.getMesh().getSize(axis) << " devices";
  }
  state.run();
}

void ApplyStrategyPass::seedTables(Propagation &state, func::FuncOp func, StringAttr axis) {
  func.walk([&](loom::GatherOp gather) {
    Value table = gather.getInput();
    if (!loom::isWeight(table) || gather.getDim() != 0 ||
        loom::getByteSize(table.getType()) < kMinTableBytes)
      return;
    if (!state.addAxis(table, 0, axis, "strategy tp: rows of a table"))
      mlir::emitRemark(gather.getLoc())
          << "table '" << loom::getNodeName(table.getLoc()) << "' is not split over " << axis
          << ": its " << cast<RankedTensorType>(table.getType()).getDimSize(0)
          << " rows are less than " << state.getMesh().getSize(axis);
  });
  state.run();
}

/// Splits dimension 1 of the results of normalizations (Korthikanti et al. 2022, section 4.2.2).
void ApplyStrategyPass::seedSequence(Propagation &state, func::FuncOp func, StringAttr axis) {
  func.walk([&](Operation *op) {
    if (op->hasTrait<loom::NormalizesRows>() &&
        cast<RankedTensorType>(op->getResult(0).getType()).getRank() == 3)
      state.addAxis(op->getResult(0), 1, axis, "strategy tp: sequence between contractions");
  });
  state.run();
}

int64_t ApplyStrategyPass::chooseMicrobatches(const Mesh &mesh, int64_t most) {
  // The largest divisor of every specialisation's local batch that is at most `most`.
  for (auto func : getOperation().getOps<func::FuncOp>())
    for (BlockArgument argument : func.getArguments())
      if (getBatchDim(func, argument) != 0)
        return 1; // micro-batches are cut along the leading dimension
  // The strategy does not change the user's shardings of inputs.
  auto countParts = [&](BlockArgument argument) {
    ShardingAttr sharding = getSharding(argument);
    if (!sharding || sharding.getDims()[0].getOpen())
      return mesh.getSize(toAttrs(dp));
    DimShardingAttr dim = sharding.getDims()[0];
    return mesh.getSize(dim.getAxes()) * dim.getGranule();
  };
  int64_t rows = 0; // gcd of the local batches
  for (auto func : getOperation().getOps<func::FuncOp>())
    for (BlockArgument argument : func.getArguments()) {
      auto tensor = cast<RankedTensorType>(argument.getType());
      int64_t parts = tensor.getRank() > 0 ? countParts(argument) : 1;
      if (tensor.getRank() == 0 || tensor.getDimSize(0) % parts != 0)
        return 1;
      rows = std::gcd(rows, tensor.getDimSize(0) / parts);
    }
  int64_t best = std::max<int64_t>(1, most);
  while (rows % best != 0)
    --best;
  return best;
}

/// Writes only the micro-batch cuts onto a function: shardings that merely propagated are left for
/// a search to decide.
static void commitCuts(const Propagation &state) {
  state.forEachValue([&](Value value) {
    Propagation::Entry entry = state.lookup(value);
    ShardingAttr given = getSharding(value);
    Sharding kept = given ? Sharding(given)
                          : Sharding::replicated(static_cast<int64_t>(entry.sharding.dims.size()),
                                                 /*open=*/true);
    for (auto [dim, spread] : llvm::zip_equal(kept.dims, entry.sharding.dims)) {
      if (spread.axes.empty() || !isMicroAxis(spread.axes.back()) ||
          llvm::is_contained(dim.axes, spread.axes.back()))
        continue;
      dim.granule = spread.granule;
      dim.axes.push_back(spread.axes.back());
    }
    llvm::erase_if(entry.origins, [&](const auto &origin) { return !kept.usesAxis(origin.first); });
    setSharding(value, kept.getAttr(state.getMesh()), entry.getOrigin(value.getContext()));
  });
}

/// Cuts into micro-batches the results whose shardings a user pinned.
static void cutPinnedResults(func::FuncOp func, const Mesh &mesh, StringAttr micro) {
  for (unsigned i = 0; i < func.getNumResults(); ++i)
    if (auto pinned = func.getResultAttrOfType<ShardingAttr>(i, kSharding))
      func.setResultAttr(i, kSharding, cutInTime(pinned, micro).getAttr(mesh));
}

void ApplyStrategyPass::runOnOperation() {
  MeshOp meshOp = getMesh(getOperation());
  if (!meshOp)
    return;
  if (failed(checkAxes(Mesh(meshOp))))
    return signalPassFailure();
  int64_t count = chooseMicrobatches(Mesh(meshOp), microbatches);
  auto micro = StringAttr::get(&getContext(), MeshOp::kMicroAxis);
  while (true) {
    setMicrobatches(meshOp, count);
    Mesh mesh(meshOp);
    std::vector<Propagation> states;
    std::optional<MicrobatchObstacle> obstacle;
    for (auto func : getOperation().getOps<func::FuncOp>()) {
      if (loom::isBody(func))
        continue;
      Propagation state(func, mesh);
      state.run();
      for (StringAttr axis : toAttrs(dp))
        seedBatch(state, func, axis, "strategy dp: batch");
      if (count > 1)
        seedBatch(state, func, micro, "micro-batches");
      for (StringAttr axis : toAttrs(tp)) {
        seedColumns(state, func, axis, explain);
        if (vocab)
          seedTables(state, func, axis);
        if (sequence)
          seedSequence(state, func, axis);
      }
      if (count > 1 && !obstacle)
        obstacle = findMicrobatchObstacle(state, func, micro);
      std::vector<BodyState> bodies = growThroughBodies(state, func);
      states.push_back(std::move(state));
      for (BodyState &body : bodies) {
        for (StringAttr axis : toAttrs(tp))
          seedColumns(body.state, body.body, axis, explain);
        states.push_back(std::move(body.state));
      }
    }
    if (!obstacle) {
      for (const Propagation &state : states)
        onlyGiven ? commitCuts(state) : state.commit(/*close=*/false);
      if (count > 1)
        for (auto func : getOperation().getOps<func::FuncOp>())
          cutPinnedResults(func, mesh, micro);
      return;
    }
    count = obstacle->isSize ? chooseMicrobatches(Mesh(meshOp), count - 1) : 1;
    if (count == 1)
      mlir::emitRemark(obstacle->loc)
          << "the batch is not cut into micro-batches: " << obstacle->reason;
  }
}
