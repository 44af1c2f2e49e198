//===- Resharder.cpp - from one sharding to another -------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/partition/Resharder.h"

#include "dialects/loom/Loom.h"
#include "dialects/loom/Padding.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

namespace {
/// Builds the list of steps while tracking the sharding they have reached.
struct Planner {
  Layout state;
  const Layout &to;
  RankedTensorType global;
  const Mesh &mesh;
  SmallVector<ReshardStep> steps;

  ArrayRef<StringAttr> have(size_t dim) const { return state.dims[dim].axes; }
  ArrayRef<StringAttr> want(size_t dim) const { return to.dims[dim].axes; }
  bool isPending(StringAttr axis) const {
    return llvm::is_contained(state.unreduced, axis) && !llvm::is_contained(to.unreduced, axis);
  }
  /// Size of a shard of the dimension.
  int64_t shardSize(size_t dim, ArrayRef<StringAttr> axes, int64_t granule) const {
    int64_t size = global.getDimSize(dim);
    return axes.empty() ? size : getLocalSize(size, mesh.getSize(axes), granule);
  }
  /// True when shards over `longer` are equal parts of those over its prefix `shorter`. The whole
  /// can always be padded and cut, or joined and trimmed.
  bool isNested(size_t dim, ArrayRef<StringAttr> shorter, ArrayRef<StringAttr> longer,
                int64_t granule) const {
    return shorter.empty() ||
           shardSize(dim, shorter, granule) ==
               shardSize(dim, longer, granule) * mesh.getSize(longer.drop_front(shorter.size()));
  }
  bool isAligned(size_t dim) const {
    return have(dim).empty() || want(dim).empty() ||
           state.dims[dim].granule == to.dims[dim].granule;
  }
  AxisList getNextAxes(size_t dim, llvm::function_ref<bool(StringAttr)> accept) const;
  void cut(size_t dim, ReshardStep step);
  void join(size_t dim, size_t keep, ReshardStep &step);

  bool slice();
  bool reduceScatter();
  void allReduce();
  bool allToAll();
  bool allGather();
};
} // namespace

/// The next axes the dimension wants, as long as they are accepted and the cut can be made.
AxisList Planner::getNextAxes(size_t dim, llvm::function_ref<bool(StringAttr)> accept) const {
  if (!isPrefix(have(dim), want(dim)) || !isAligned(dim))
    return {};
  AxisList axes;
  for (StringAttr axis : want(dim).drop_front(have(dim).size())) {
    if (!accept(axis))
      break;
    axes.push_back(axis);
  }
  int64_t granule = to.dims[dim].granule;
  auto reached = [&] { return want(dim).take_front(have(dim).size() + axes.size()); };
  while (!axes.empty() && (!isNested(dim, have(dim), reached(), granule) ||
                           !isNested(dim, reached(), want(dim), granule)))
    axes.pop_back();
  return axes;
}

/// Records a step that cuts the dimension over the step's axes.
void Planner::cut(size_t dim, ReshardStep step) {
  int64_t granule = to.dims[dim].granule, parts = mesh.getSize(step.axes);
  SmallVector<StringAttr> after(have(dim));
  after.append(step.axes.begin(), step.axes.end());
  int64_t size = shardSize(dim, after, granule) * parts;
  if (size != shardSize(dim, have(dim), granule))
    step.padTo = size;
  state.dims[dim].axes.append(step.axes);
  state.dims[dim].granule = granule;
  steps.push_back(std::move(step));
}

/// Makes a step join the dimension down to its first `keep` axes.
void Planner::join(size_t dim, size_t keep, ReshardStep &step) {
  Layout::Dim &target = state.dims[dim];
  int64_t joined = shardSize(dim, target.axes, target.granule) * mesh.getSize(step.axes);
  int64_t size = shardSize(dim, have(dim).take_front(keep), target.granule);
  if (joined != size)
    step.trimTo = size;
  target.axes.truncate(keep);
  if (target.axes.empty())
    target.granule = 1;
}

/// Cuts dimensions over axes the value is replicated on.
bool Planner::slice() {
  bool changed = false;
  for (size_t dim = 0; dim < state.dims.size(); ++dim) {
    AxisList axes = getNextAxes(dim, [&](StringAttr axis) { return !state.usesAxis(axis); });
    if (axes.empty())
      continue;
    cut(dim, {ReshardStep::Slice, axes, static_cast<int64_t>(dim)});
    changed = true;
  }
  return changed;
}

/// Reduces partial values straight into the dimension that wants the axes next.
bool Planner::reduceScatter() {
  for (size_t dim = 0; dim < state.dims.size(); ++dim) {
    AxisList axes = getNextAxes(dim, [&](StringAttr axis) { return isPending(axis); });
    if (axes.empty())
      continue;
    cut(dim, {ReshardStep::ReduceScatter, axes, static_cast<int64_t>(dim)});
    for (StringAttr axis : axes)
      llvm::erase(state.unreduced, axis);
    return true;
  }
  return false;
}

void Planner::allReduce() {
  AxisList axes;
  for (StringAttr axis : state.unreduced)
    if (isPending(axis))
      axes.push_back(axis);
  if (axes.empty())
    return;
  steps.push_back({ReshardStep::AllReduce, axes});
  for (StringAttr axis : axes)
    llvm::erase(state.unreduced, axis);
}

/// Moves the minor axis of one dimension to another that wants it next.
bool Planner::allToAll() {
  for (size_t source = 0; source < state.dims.size(); ++source) {
    if (have(source).empty() || (isPrefix(have(source), want(source)) && isAligned(source)))
      continue;
    StringAttr axis = have(source).back();
    if (!isNested(source, have(source).drop_back(), have(source), state.dims[source].granule))
      continue;
    for (size_t target = 0; target < state.dims.size(); ++target) {
      if (target == source)
        continue;
      AxisList axes = getNextAxes(target, [&](StringAttr next) { return next == axis; });
      if (axes.empty())
        continue;
      ReshardStep step = {ReshardStep::AllToAll, axes, static_cast<int64_t>(source),
                          static_cast<int64_t>(target)};
      join(source, have(source).size() - 1, step);
      cut(target, step);
      return true;
    }
  }
  return false;
}

/// Gathers the minor axes that are in the way; all of a dimension where shards are not nested.
bool Planner::allGather() {
  for (size_t dim = 0; dim < state.dims.size(); ++dim) {
    size_t common = 0;
    while (common < have(dim).size() && common < want(dim).size() &&
           have(dim)[common] == want(dim)[common])
      ++common;
    if (!isAligned(dim))
      common = 0;
    if (common == have(dim).size()) {
      // Right so far. If the next axis is free and yet was not taken, the shards are not nested.
      if (common == want(dim).size() || state.usesAxis(want(dim)[common]) || common == 0)
        continue;
      common = 0;
    }
    // One axis at a time when another dimension wants it: the all_to_all after it is cheaper.
    ArrayRef<StringAttr> wrong = have(dim).drop_front(common);
    bool moves =
        llvm::any_of(wrong.drop_back(), [&](StringAttr axis) { return to.usesAxis(axis); });
    size_t keep = moves ? have(dim).size() - 1 : common;
    if (!isNested(dim, have(dim).take_front(keep), have(dim), state.dims[dim].granule))
      keep = 0;
    ReshardStep step = {ReshardStep::AllGather, AxisList(have(dim).drop_front(keep)),
                        static_cast<int64_t>(dim)};
    join(dim, keep, step);
    steps.push_back(std::move(step));
    return true;
  }
  return false;
}

FailureOr<SmallVector<ReshardStep>> gridloom::planReshard(const Layout &from, const Layout &to,
                                                          RankedTensorType global,
                                                          const Mesh &mesh) {
  for (StringAttr axis : to.unreduced)
    if (!llvm::is_contained(from.unreduced, axis))
      return failure();
  Planner planner{from, to, global, mesh, {}};
  planner.slice();
  while (planner.reduceScatter())
    planner.slice();
  planner.allReduce();
  while (planner.state.dims != to.dims)
    if (!planner.slice() && !planner.allToAll() && !planner.allGather())
      return failure();
  for (const ReshardStep &step : planner.steps)
    for (StringAttr axis : step.axes)
      if (axis.getValue() == MeshOp::kMicroAxis && mesh.getSize(axis) > 1)
        return failure();
  return planner.steps;
}

static RankedTensorType scaleDim(RankedTensorType type, int64_t dim, int64_t multiply,
                                 int64_t divide) {
  SmallVector<int64_t> shape(type.getShape());
  shape[dim] = shape[dim] * multiply / divide;
  return RankedTensorType::get(shape, type.getElementType());
}

static RankedTensorType setDim(RankedTensorType type, int64_t dim, int64_t size) {
  return size ? scaleDim(type, dim, size, type.getDimSize(dim)) : type;
}

static int64_t getCutDim(const ReshardStep &step) {
  return step.kind == ReshardStep::AllToAll ? step.splitDim : step.dim;
}

/// The type the collective itself makes of a padded operand.
static RankedTensorType getStepType(RankedTensorType type, const ReshardStep &step, int64_t parts) {
  switch (step.kind) {
  case ReshardStep::Slice:
  case ReshardStep::ReduceScatter:
    return scaleDim(type, step.dim, 1, parts);
  case ReshardStep::AllReduce:
    return type;
  case ReshardStep::AllToAll:
    return scaleDim(scaleDim(type, step.splitDim, 1, parts), step.dim, parts, 1);
  case ReshardStep::AllGather:
    return scaleDim(type, step.dim, parts, 1);
  }
  llvm_unreachable("unknown reshard step");
}

double gridloom::getReshardBytes(ArrayRef<ReshardStep> steps, RankedTensorType local,
                                 const Mesh &mesh) {
  double total = 0;
  for (const ReshardStep &step : steps) {
    int64_t parts = mesh.getSize(step.axes);
    local = setDim(local, getCutDim(step), step.padTo);
    auto bytes = static_cast<double>(loom::getByteSize(local));
    double share = static_cast<double>(parts - 1) / parts;
    switch (step.kind) {
    case ReshardStep::Slice:
      break;
    case ReshardStep::ReduceScatter:
    case ReshardStep::AllToAll:
      total += share * bytes;
      break;
    case ReshardStep::AllReduce:
      total += 2 * share * bytes;
      break;
    case ReshardStep::AllGather:
      total += (parts - 1) * bytes;
      break;
    }
    local = setDim(getStepType(local, step, parts), step.dim, step.trimTo);
  }
  return total;
}

Value gridloom::emitReshard(OpBuilder &builder, Location loc, Value value,
                            ArrayRef<ReshardStep> steps, ReductionKind reduction,
                            const Mesh &mesh) {
  for (const ReshardStep &step : steps) {
    if (step.padTo)
      value = loom::padDim(builder, loc, value, getCutDim(step), step.padTo);
    auto type = getStepType(cast<RankedTensorType>(value.getType()), step, mesh.getSize(step.axes));
    ArrayAttr axes =
        builder.getArrayAttr(SmallVector<Attribute>(step.axes.begin(), step.axes.end()));
    IntegerAttr dim = builder.getI64IntegerAttr(step.dim);
    auto kind = ReductionKindAttr::get(builder.getContext(), reduction);
    switch (step.kind) {
    case ReshardStep::Slice:
      value = ShardSliceOp::create(builder, loc, type, value, axes, dim);
      break;
    case ReshardStep::ReduceScatter:
      value = ReduceScatterOp::create(builder, loc, type, value, axes, dim, kind);
      break;
    case ReshardStep::AllReduce:
      value =
          AllReduceOp::create(builder, loc, ValueRange(value), step.axes, reduction).getResult(0);
      break;
    case ReshardStep::AllToAll:
      value = AllToAllOp::create(builder, loc, type, value, axes,
                                 builder.getI64IntegerAttr(step.splitDim), dim);
      break;
    case ReshardStep::AllGather:
      value = AllGatherOp::create(builder, loc, type, value, axes, dim);
      break;
    }
    if (step.trimTo)
      value = loom::trimDim(builder, loc, value, step.dim, step.trimTo);
  }
  return value;
}
