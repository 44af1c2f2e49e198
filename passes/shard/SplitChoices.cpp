//===- SplitChoices.cpp - the ways to split an operation ------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/shard/SplitChoices.h"

#include "dialects/dist/Splits.h"
#include "dialects/loom/Halo.h"
#include "dialects/loom/Work.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

Sharding gridloom::getWholeInTime(Value value) {
  Sharding whole = Sharding::replicated(cast<RankedTensorType>(value.getType()).getRank());
  if (ShardingAttr given = dist::getSharding(value))
    for (auto [dim, have] : llvm::zip_equal(whole.dims, given.getDims()))
      llvm::copy_if(have.getAxes(), std::back_inserter(dim.axes), isMicroAxis);
  return whole;
}

ShardingAttr gridloom::getReduced(ShardingAttr sharding, const Mesh &mesh) {
  if (sharding.getUnreduced().empty())
    return sharding;
  Sharding whole(sharding);
  whole.unreduced.clear();
  return whole.getAttr(mesh);
}

/// The factors that micro-batches cut, as the tensors' shardings say.
static FactorSplits findCutsInTime(Operation *op, const ShardingRule &rule, const Mesh &mesh) {
  SmallVector<Sharding> shardings;
  bool isCut = false;
  for (Value value : llvm::concat<const Value>(llvm::to_vector_of<Value>(op->getOperands()),
                                               llvm::to_vector_of<Value>(op->getResults()))) {
    shardings.push_back(getWholeInTime(value));
    isCut |= shardings.back().getMicroDim() >= 0;
  }
  return isCut ? mergeFactors(rule, shardings, getTensorTypes(op), mesh)
               : FactorSplits(rule.sizes.size());
}

/// Every assignment of axes to factors that are large enough. A factor cut into micro-batches must
/// divide evenly, since it cannot be padded, and the cuts are minor to all axes.
static std::vector<FactorSplits> assignAxes(const ShardingRule &rule, ArrayRef<StringAttr> axes,
                                            const FactorSplits &cuts, const Mesh &mesh) {
  std::vector<FactorSplits> all = {FactorSplits(rule.sizes.size())};
  for (StringAttr axis : axes) {
    std::vector<FactorSplits> next = all;
    for (const FactorSplits &splits : all)
      for (size_t factor = 0; factor < rule.sizes.size(); ++factor) {
        int64_t parts = mesh.getSize(splits.axes[factor]) * mesh.getSize(axis);
        if (rule.kinds[factor] == FactorKind::NeedReplication || rule.sizes[factor] < parts)
          continue;
        if (!cuts.axes[factor].empty() &&
            rule.sizes[factor] % (parts * mesh.getSize(cuts.axes[factor])) != 0)
          continue;
        next.push_back(splits);
        next.back().axes[factor].push_back(axis);
      }
    all = std::move(next);
  }
  for (FactorSplits &splits : all)
    for (auto [list, cut] : llvm::zip_equal(splits.axes, cuts.axes))
      list.append(cut);
  return all;
}

/// Whether micro-batches are minor to all axes of their dimension.
static bool isMinorInTime(const Sharding &sharding) {
  int64_t dim = sharding.getMicroDim();
  return dim < 0 || isMicroAxis(sharding.dims[dim].axes.back());
}

/// The time to fetch what a device's part of the factor needs of a windowed dimension.
static double getWindowSeconds(Operation *op, const ShardingRule &rule, const FactorSplits &splits,
                               const WindowDim &window, RankedTensorType local, const Mesh &mesh) {
  int64_t factor = rule.tensors[window.tensor][window.dim].front();
  const AxisList &axes = splits.axes[factor];
  int64_t parts = mesh.getSize(axes), have = local.getDimSize(window.dim);
  if (parts == 1 || have == 0)
    return 0;
  loom::WindowMoves moves = loom::planWindowMoves(
      window, getTensorTypes(op)[window.tensor].getDimSize(window.dim), have, parts,
      getLocalSize(rule.sizes[factor], parts, splits.granules[factor]));
  auto bytes = double(loom::getByteSize(local));
  if (moves.gathers)
    return mesh.getSeconds(cluster::Collective::AllGather, double(parts) * bytes, axes);
  double seconds = 0;
  for (int64_t moved : moves.moved)
    seconds +=
        mesh.getSeconds(cluster::Collective::Permute, bytes * double(moved) / double(have), axes);
  return seconds;
}

/// Communication within the operation's own partition: for factors whose positions depend on each
/// other, all_reduces of a number per row, such as a softmax's maximum and sum; for windows,
/// fetching what other devices hold. Scatters need none: each takes what falls into its part.
static double getInnerSeconds(Operation *op, const ShardingRule &rule, const FactorSplits &splits,
                              ArrayRef<RankedTensorType> local, const Mesh &mesh) {
  double seconds = 0;
  auto bytesOf = [&](size_t tensor) { return double(loom::getByteSize(local[tensor])); };
  for (int64_t factor : rule.coupled) {
    int64_t parts = mesh.getSize(splits.axes[factor]);
    if (parts == 1 || isa<loom::ScatterOp>(op))
      continue;
    double rows = double(getLocalSize(rule.sizes[factor], parts, splits.granules[factor]));
    seconds += double(rule.messages) * mesh.getSeconds(cluster::Collective::AllReduce,
                                                       bytesOf(local.size() - 1) / rows,
                                                       splits.axes[factor]);
  }
  for (const WindowDim &window : rule.windows)
    seconds += getWindowSeconds(op, rule, splits, window, local[window.tensor], mesh);
  return seconds;
}

/// The largest part's share of the iteration space.
static double getShare(const ShardingRule &rule, const FactorSplits &splits, const Mesh &mesh) {
  double share = 1;
  for (auto [size, axes, granule] : llvm::zip_equal(rule.sizes, splits.axes, splits.granules))
    if (int64_t parts = mesh.getSize(axes); parts > 1)
      share *= double(getLocalSize(size, parts, granule)) / double(size);
  return share;
}

/// Whether shardings of the operation's tensors can express these splits.
static bool isImplied(Operation *op, const ShardingRule &rule, const FactorSplits &splits,
                      const Mesh &mesh) {
  SmallVector<RankedTensorType> types = getTensorTypes(op);
  SmallVector<Sharding> shardings;
  for (size_t i = 0; i < types.size(); ++i)
    shardings.push_back(project(rule, i, splits, mesh));
  return llvm::all_of(shardings, isMinorInTime) &&
         mergeFactors(rule, shardings, types, mesh).axes == splits.axes;
}

static SplitChoice makeChoice(Operation *op, const ShardingRule &rule, const OpSplits &splits,
                              const loom::SharedWork &work, const Mesh &mesh) {
  SplitChoice choice;
  choice.splits = splits.getAttr(op->getContext());
  SmallVector<RankedTensorType> local;
  for (auto [type, sharding] :
       llvm::zip_equal(getTensorTypes(op), getSplitShardings(op, rule, splits, mesh))) {
    local.push_back(getLocalType(type, sharding, mesh));
    choice.shardings.push_back(sharding.getAttr(mesh));
  }
  choice.seconds = getInnerSeconds(op, rule, splits.factors, local, mesh);
  choice.seconds += work.getSeconds(getShare(rule, splits.factors, mesh), local);
  return choice;
}

/// Every set of axes that split nothing, over which sums may stay partial.
static std::vector<AxisList> listUnreduced(const FactorSplits &splits, ArrayRef<StringAttr> axes) {
  std::vector<AxisList> all = {{}};
  for (StringAttr axis : axes) {
    if (llvm::any_of(splits.axes,
                     [&](const AxisList &list) { return llvm::is_contained(list, axis); }))
      continue;
    for (size_t i = 0, count = all.size(); i < count; ++i) {
      all.push_back(all[i]);
      all.back().push_back(axis);
    }
  }
  return all;
}

std::vector<SplitChoice> gridloom::listSplitChoices(Operation *op, ArrayRef<StringAttr> axes,
                                                    const Mesh &mesh, bool mayPassSums,
                                                    bool isBound) {
  ShardingRule rule = cast<ShardingRuleInterface>(op).getShardingRule();
  loom::SharedWork work(op, mesh.getMachine(), isBound);
  std::vector<SplitChoice> choices, passing;
  if (op->hasAttr(kSplits)) {
    choices.push_back(makeChoice(op, rule, *readSplits(op, rule, mesh), work, mesh));
    return choices;
  }
  FactorSplits cuts = findCutsInTime(op, rule, mesh);
  for (FactorSplits &factors : assignAxes(rule, axes, cuts, mesh)) {
    if (!isImplied(op, rule, factors, mesh))
      continue;
    OpSplits splits;
    splits.factors = std::move(factors);
    choices.push_back(makeChoice(op, rule, splits, work, mesh));
    if (!mayPassSums)
      continue;
    std::vector<AxisList> sums = listUnreduced(splits.factors, axes);
    for (AxisList &unreduced : llvm::drop_begin(sums)) {
      splits.unreduced = std::move(unreduced);
      passing.push_back(makeChoice(op, rule, splits, work, mesh));
    }
  }
  choices.insert(choices.end(), passing.begin(), passing.end());
  return choices;
}
