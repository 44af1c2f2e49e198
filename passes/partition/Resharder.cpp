//===- Resharder.cpp - from one sharding to another -------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/partition/Resharder.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

static bool isPrefix(ArrayRef<StringAttr> shorter, ArrayRef<StringAttr> longer) {
  return shorter.size() <= longer.size() && shorter == longer.take_front(shorter.size());
}

namespace {
/// Builds the list of steps while tracking the sharding they have reached.
struct Planner {
  Layout state;
  const Layout &to;
  const Mesh &mesh;
  SmallVector<ReshardStep> steps;

  ArrayRef<StringAttr> have(size_t dim) const { return state.dims[dim].axes; }
  ArrayRef<StringAttr> want(size_t dim) const { return to.dims[dim].axes; }
  bool isPending(StringAttr axis) const {
    return llvm::is_contained(state.unreduced, axis) && !llvm::is_contained(to.unreduced, axis);
  }

  bool slice();
  bool reduceScatter();
  void allReduce();
  bool allToAll();
  bool allGather();
};
} // namespace

/// Cuts dimensions over axes the value is replicated on.
bool Planner::slice() {
  bool changed = false;
  for (size_t dim = 0; dim < state.dims.size(); ++dim) {
    if (!isPrefix(have(dim), want(dim)))
      continue;
    AxisList axes;
    for (StringAttr axis : want(dim).drop_front(have(dim).size())) {
      if (state.usesAxis(axis))
        break;
      axes.push_back(axis);
    }
    if (axes.empty())
      continue;
    steps.push_back({ReshardStep::Slice, axes, static_cast<int64_t>(dim)});
    state.dims[dim].axes.append(axes);
    changed = true;
  }
  return changed;
}

/// Reduces partial values straight into the dimension that wants the axes next.
bool Planner::reduceScatter() {
  for (size_t dim = 0; dim < state.dims.size(); ++dim) {
    if (!isPrefix(have(dim), want(dim)))
      continue;
    AxisList axes;
    for (StringAttr axis : want(dim).drop_front(have(dim).size())) {
      if (!isPending(axis))
        break;
      axes.push_back(axis);
    }
    if (axes.empty())
      continue;
    steps.push_back({ReshardStep::ReduceScatter, axes, static_cast<int64_t>(dim)});
    state.dims[dim].axes.append(axes);
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
    if (have(source).empty() || isPrefix(have(source), want(source)))
      continue;
    StringAttr axis = have(source).back();
    for (size_t target = 0; target < state.dims.size(); ++target) {
      if (target == source || !isPrefix(have(target), want(target)) || have(target).size() == want(target).size() ||
          want(target)[have(target).size()] != axis)
        continue;
      steps.push_back({ReshardStep::AllToAll, {axis}, static_cast<int64_t>(source), static_cast<int64_t>(target)});
      state.dims[source].axes.pop_back();
      state.dims[target].axes.push_back(axis);
      return true;
    }
  }
  return false;
}

/// Gathers the minor axes that are in the way.
bool Planner::allGather() {
  for (size_t dim = 0; dim < state.dims.size(); ++dim) {
    size_t common = 0;
    while (common < have(dim).size() && common < want(dim).size() && have(dim)[common] == want(dim)[common])
      ++common;
    if (common == have(dim).size())
      continue;
    // One axis at a time when another dimension wants it: the all_to_all after it is cheaper.
    ArrayRef<StringAttr> wrong = have(dim).drop_front(common);
    bool moves = llvm::any_of(wrong.drop_back(), [&](StringAttr axis) { return to.usesAxis(axis); });
    AxisList axes(moves ? wrong.take_back() : wrong);
    steps.push_back({ReshardStep::AllGather, axes, static_cast<int64_t>(dim)});
    state.dims[dim].axes.truncate(state.dims[dim].axes.size() - axes.size());
    return true;
  }
  return false;
}

FailureOr<SmallVector<ReshardStep>> gridloom::planReshard(Layout from, const Layout &to, const Mesh &mesh) {
  for (StringAttr axis : to.unreduced)
    if (!llvm::is_contained(from.unreduced, axis))
      return failure();
  Planner planner{std::move(from), to, mesh, {}};
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

static RankedTensorType withDim(RankedTensorType type, int64_t dim, int64_t multiply, int64_t divide) {
  SmallVector<int64_t> shape(type.getShape());
  shape[dim] = shape[dim] * multiply / divide;
  return RankedTensorType::get(shape, type.getElementType());
}

static RankedTensorType getStepType(RankedTensorType type, const ReshardStep &step, int64_t parts) {
  switch (step.kind) {
  case ReshardStep::Slice:
  case ReshardStep::ReduceScatter:
    return withDim(type, step.dim, 1, parts);
  case ReshardStep::AllReduce:
    return type;
  case ReshardStep::AllToAll:
    return withDim(withDim(type, step.splitDim, 1, parts), step.dim, parts, 1);
  case ReshardStep::AllGather:
    return withDim(type, step.dim, parts, 1);
  }
  llvm_unreachable("unknown reshard step");
}

double gridloom::getReshardBytes(ArrayRef<ReshardStep> steps, RankedTensorType local, const Mesh &mesh) {
  double total = 0;
  for (const ReshardStep &step : steps) {
    int64_t parts = mesh.getSize(step.axes);
    double bytes = static_cast<double>(local.getNumElements()) * ((local.getElementTypeBitWidth() + 7) / 8);
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
    local = getStepType(local, step, parts);
  }
  return total;
}

Value gridloom::emitReshard(OpBuilder &builder, Location loc, Value value, ArrayRef<ReshardStep> steps,
                            ReductionKind reduction, const Mesh &mesh) {
  for (const ReshardStep &step : steps) {
    auto type = getStepType(cast<RankedTensorType>(value.getType()), step, mesh.getSize(step.axes));
    ArrayAttr axes = builder.getArrayAttr(SmallVector<Attribute>(step.axes.begin(), step.axes.end()));
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
      value = AllReduceOp::create(builder, loc, ValueRange(value), step.axes, reduction).getResult(0);
      break;
    case ReshardStep::AllToAll:
      value = AllToAllOp::create(builder, loc, type, value, axes, builder.getI64IntegerAttr(step.splitDim), dim);
      break;
    case ReshardStep::AllGather:
      value = AllGatherOp::create(builder, loc, type, value, axes, dim);
      break;
    }
  }
  return value;
}
