//===- Resharder.cpp - from one sharding to another -------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/partition/Resharder.h"

#include "dialects/loom/Loom.h"
#include "dialects/loom/Padding.h"
#include "passes/partition/ReshardSearch.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

FailureOr<SmallVector<ReshardStep>> gridloom::planReshard(const Sharding &from, const Sharding &to,
                                                          RankedTensorType global,
                                                          const Mesh &mesh) {
  if (from.dims == to.dims && from.unreduced == to.unreduced)
    return SmallVector<ReshardStep>();
  std::optional<SmallVector<ReshardStep>> steps =
      reshard::findSteps(reshard::Moves(from, to, global, mesh));
  if (!steps)
    return failure();
  return std::move(*steps);
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

/// The collective's result type for a padded operand.
static RankedTensorType getStepType(RankedTensorType type, const ReshardStep &step, int64_t parts) {
  switch (step.kind) {
  case ReshardStep::Slice:
  case ReshardStep::ReduceScatter:
    return scaleDim(type, step.dim, 1, parts);
  case ReshardStep::AllReduce:
  case ReshardStep::Permute:
    return type;
  case ReshardStep::AllToAll:
    return scaleDim(scaleDim(type, step.splitDim, 1, parts), step.dim, parts, 1);
  case ReshardStep::AllGather:
    return scaleDim(type, step.dim, parts, 1);
  }
  llvm_unreachable("unknown reshard step");
}

std::optional<cluster::Collective> gridloom::getCollective(ReshardStep::Kind kind) {
  switch (kind) {
  case ReshardStep::Slice:
    return std::nullopt;
  case ReshardStep::ReduceScatter:
    return cluster::Collective::ReduceScatter;
  case ReshardStep::AllReduce:
    return cluster::Collective::AllReduce;
  case ReshardStep::AllToAll:
    return cluster::Collective::AllToAll;
  case ReshardStep::AllGather:
    return cluster::Collective::AllGather;
  case ReshardStep::Permute:
    return cluster::Collective::Permute;
  }
  llvm_unreachable("a step of no kind");
}

MoveCost gridloom::getReshardCost(ArrayRef<ReshardStep> steps, RankedTensorType local,
                                  const Mesh &mesh) {
  MoveCost cost;
  for (const ReshardStep &step : steps) {
    int64_t parts = mesh.getSize(step.axes);
    local = setDim(local, getCutDim(step), step.padTo);
    if (std::optional<cluster::Collective> kind = getCollective(step.kind)) {
      auto bytes = static_cast<double>(loom::getByteSize(local));
      if (step.kind == ReshardStep::AllGather)
        bytes *= static_cast<double>(parts);
      cost.sent += cluster::getSentBytes(*kind, bytes, parts);
      cost.seconds += mesh.getSeconds(*kind, bytes, step.axes);
    }
    local = setDim(getStepType(local, step, parts), step.dim, step.trimTo);
  }
  return cost;
}

SmallVector<RankedTensorType> gridloom::getStepTypes(ArrayRef<ReshardStep> steps,
                                                     RankedTensorType local, const Mesh &mesh) {
  SmallVector<RankedTensorType> types;
  for (const ReshardStep &step : steps) {
    local = setDim(local, getCutDim(step), step.padTo);
    local = setDim(getStepType(local, step, mesh.getSize(step.axes)), step.dim, step.trimTo);
    types.push_back(local);
  }
  return types;
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
    case ReshardStep::Permute:
      value = PermuteOp::create(builder, loc, type, value, axes,
                                builder.getDenseI64ArrayAttr(step.permutation));
      break;
    }
    if (step.trimTo)
      value = loom::trimDim(builder, loc, value, step.dim, step.trimTo);
  }
  return value;
}
