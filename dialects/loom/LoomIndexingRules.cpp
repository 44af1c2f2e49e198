//===- LoomIndexingRules.cpp - sharding rules of indexing operations ------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// All dimensions except the indexed one are parallel. If that one is split, each device computes
// what it can from its own part; the rest is a collective over values that are smaller by the
// dimension's size. A factor that only operands have leaves the result whole on every device.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/Float8.h"
#include "dialects/loom/Halo.h"
#include "dialects/loom/Loom.h"
#include "dialects/loom/Padding.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::loom;
using dist::AxisList;
using dist::FactorAxes;
using dist::FactorKind;
using dist::ShardingRule;
using dist::TensorFactors;

static RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }
static ArrayRef<int64_t> shapeOf(Value value) { return typeOf(value).getShape(); }

/// One factor per dimension.
static TensorFactors addFactors(ShardingRule &rule, ArrayRef<int64_t> shape) {
  TensorFactors factors;
  for (int64_t size : shape)
    factors.push_back({rule.addFactor(size)});
  return factors;
}

namespace {
/// Builds expressions on local tensors.
struct Local {
  OpBuilder &builder;
  Location loc;

  template <typename OpT, typename... Args> Value make(Type type, Args &&...args) {
    return OpT::create(builder, loc, type, std::forward<Args>(args)...)->getResult(0);
  }
  Value splat(RankedTensorType type, Attribute element) {
    return ConstantOp::create(builder, loc, DenseElementsAttr::get(type, element));
  }
  Value splat(RankedTensorType type, int64_t number) {
    return splat(type, IntegerAttr::get(type.getElementType(), number));
  }
  Value zero(RankedTensorType type) {
    return splat(type, getNeutralElement(type.getElementType(), dist::ReductionKind::Sum));
  }
  Value compare(Direction direction, Value x, Value y) {
    return make<CompareOp>(typeOf(x).clone(builder.getI1Type()), x, y, direction);
  }
  Value repeat(Value value, RankedTensorType type, ArrayRef<int64_t> dims) {
    return make<gridloom::loom::BroadcastOp>(type.clone(typeOf(value).getElementType()), value,
                                             dims);
  }
  Value reduce(Value x, dist::ReductionKind kind, int64_t dim) {
    SmallVector<int64_t> shape(shapeOf(x));
    shape.erase(shape.begin() + dim);
    return make<ReduceOp>(typeOf(x).clone(shape), x, kind, ArrayRef<int64_t>{dim});
  }
  Value allReduce(Value x, ArrayRef<StringAttr> axes, dist::ReductionKind kind) {
    return axes.empty() ? x : dist::AllReduceOp::create(builder, loc, x, axes, kind).getResult(0);
  }
  Value allGather(Value x, ArrayRef<StringAttr> axes, int64_t dim) {
    SmallVector<int64_t> shape(shapeOf(x));
    shape[dim] *= getNumParts(builder, axes);
    SmallVector<Attribute> names(axes.begin(), axes.end());
    return make<dist::AllGatherOp>(typeOf(x).clone(shape), x, builder.getArrayAttr(names), dim);
  }
  /// `indices` minus the first index of this device's shard.
  Value makeLocal(Value indices, ArrayRef<StringAttr> axes, int64_t step) {
    Value start = getShardStart(builder, loc, axes, step);
    RankedTensorType type = typeOf(indices);
    auto scalar = RankedTensorType::get({}, type.getElementType());
    if (start.getType() != scalar)
      start = make<ConvertOp>(scalar, start);
    return make<SubtractOp>(type, indices, repeat(start, type, {}));
  }
};

/// The dimensions of a tensor of `rank` except `dim`.
SmallVector<int64_t> otherDims(int64_t rank, int64_t dim) {
  SmallVector<int64_t> dims = llvm::to_vector(llvm::seq<int64_t>(0, rank));
  dims.erase(dims.begin() + dim);
  return dims;
}
} // namespace

//===----------------------------------------------------------------------===//
// Reverse
//===----------------------------------------------------------------------===//

ShardingRule ReverseOp::getShardingRule() {
  ShardingRule rule = dist::getElementwiseRule(*this);
  for (int64_t dim : getDims())
    rule.windows.push_back({0, dim, /*step=*/-1, /*begin=*/shapeOf(getInput())[dim] - 1});
  return rule;
}
bool ReverseOp::isLinear() { return true; }

/// A device fetches the stretch that is as far from the end as its own is from the beginning.
SmallVector<Value> ReverseOp::partition(OpBuilder &builder, ValueRange operands, TypeRange types,
                                        FactorAxes axes) {
  Value input = operands[0];
  for (int64_t dim : getDims()) {
    if (axes[dim].empty())
      continue;
    int64_t size = shapeOf(getInput())[dim];
    int64_t part = cast<RankedTensorType>(types[0]).getDimSize(dim);
    input = fetchWindow(builder, getLoc(), input, {dim, size, axes[dim]},
                        Window::regular(getNumParts(builder, axes[dim]), -part, size - part, part),
                        std::nullopt);
  }
  return {ReverseOp::create(builder, getLoc(), types[0], input, getDims())};
}

//===----------------------------------------------------------------------===//
// Gather and scatter
//===----------------------------------------------------------------------===//

ShardingRule GatherElementsOp::getShardingRule() {
  ShardingRule rule;
  rule.readsPadding = false; // indices are global and below the size
  TensorFactors in = addFactors(rule, shapeOf(getInput())), indices = in;
  rule.kinds[in[getDim()][0]] = getLookupKind(getInput().getType().getElementType());
  indices[getDim()] = {rule.addFactor(shapeOf(getIndices())[getDim()])};
  rule.tensors = {in, indices, indices};
  return rule;
}

/// If the indexed dimension is split, each device takes the elements that it has and getAbsent for
/// the rest; the sum over the devices is the result.
SmallVector<Value> GatherElementsOp::partition(OpBuilder &builder, ValueRange operands,
                                               TypeRange types, FactorAxes axes) {
  const AxisList &split = axes[getDim()];
  if (split.empty())
    return dist::cloneWithLocalTypes(builder, *this, operands, types);
  Local l{builder, getLoc()};
  auto type = cast<RankedTensorType>(types[0]), indexType = typeOf(operands[1]);
  int64_t rows = shapeOf(operands[0])[getDim()];
  Value local = l.makeLocal(operands[1], split, rows);
  Value clamped = l.make<MaximumOp>(indexType, local, l.splat(indexType, 0));
  clamped = l.make<MinimumOp>(indexType, clamped, l.splat(indexType, rows - 1));
  Value gathered = l.make<GatherElementsOp>(type, operands[0], clamped, getDim());
  Value mine = l.compare(Direction::EQ, local, clamped);
  // Padding is no element; that of weights is zero.
  int64_t size = shapeOf(getInput())[getDim()];
  if (rows * getNumParts(builder, split) != size && !operands[0].getDefiningOp<GetWeightOp>())
    mine = l.make<AndOp>(mine.getType(), mine,
                         l.compare(Direction::LT, operands[1], l.splat(indexType, size)));
  return {l.make<SelectOp>(type, mine, gathered, l.splat(type, getAbsent(type.getElementType())))};
}

ShardingRule ScatterOp::getShardingRule() {
  ShardingRule rule;
  TensorFactors in = addFactors(rule, shapeOf(getInput())), updates = in;
  updates[getDim()] = {
      rule.addFactor(shapeOf(getUpdates())[getDim()], FactorKind::NeedReplication)};
  TensorFactors indices = updates;
  if (takesSlices())
    indices = {updates[getDim()]};
  rule.coupled = in[getDim()];
  rule.tensors = {in, indices, updates, in};
  return rule;
}

/// If the indexed dimension is split, each device applies the updates that fall into its part.
SmallVector<Value> ScatterOp::partition(OpBuilder &builder, ValueRange operands, TypeRange types,
                                        FactorAxes axes) {
  const AxisList &split = axes[getDim()];
  if (split.empty())
    return dist::cloneWithLocalTypes(builder, *this, operands, types);
  Local l{builder, getLoc()};
  Value local = l.makeLocal(operands[1], split, shapeOf(operands[0])[getDim()]);
  return {
      l.make<ScatterOp>(types[0], operands[0], local, operands[2], getDim(), getReductionAttr())};
}

//===----------------------------------------------------------------------===//
// Running values
//===----------------------------------------------------------------------===//

ShardingRule CumulativeOp::getShardingRule() {
  ShardingRule rule = dist::getElementwiseRule(*this);
  rule.coupled = {static_cast<int64_t>(getDim())};
  rule.messages = 1; // the totals
  return rule;
}

/// If the dimension is split: the running values of the own part, combined with the totals of the
/// parts before it.
SmallVector<Value> CumulativeOp::partition(OpBuilder &builder, ValueRange operands, TypeRange types,
                                           FactorAxes axes) {
  int64_t dim = getDim();
  const AxisList &split = axes[dim];
  if (split.empty())
    return dist::cloneWithLocalTypes(builder, *this, operands, types);
  Local l{builder, getLoc()};
  Value input = operands[0];
  RankedTensorType type = typeOf(input);
  Type element = type.getElementType();
  // A part's total may be beyond 16-bit floats where what follows brings the results back.
  bool isNarrow = element.isF16() || element.isBF16();
  if (isNarrow) {
    type = type.clone(builder.getF32Type());
    input = l.make<ConvertOp>(type, input);
  }
  int64_t parts = getNumParts(builder, split), size = shapeOf(getInput())[dim];
  // Forwards, only padding comes after the padding.
  if (getReverse() && type.getDimSize(dim) * parts != size)
    input = maskPadding(builder, getLoc(), input, dim, size, split, getKind());
  Value running = l.make<CumulativeOp>(type, input, getKind(), dim, getExclusive(), getReverse());

  SmallVector<int64_t> unit(type.getShape());
  unit[dim] = 1;
  Value total = l.make<ReshapeOp>(type.clone(unit), l.reduce(input, getKind(), dim));
  Value totals = l.allGather(total, split, dim);
  Value here = getShardStart(builder, getLoc(), split, 1);
  auto row = RankedTensorType::get({parts}, builder.getI64Type());
  Value before = l.compare(getReverse() ? Direction::GT : Direction::LT,
                           l.make<IotaOp>(row, int64_t(0)), l.repeat(here, row, {}));
  totals = selectAlong(builder, getLoc(), dim, before, totals,
                       getNeutralElement(type.getElementType(), getKind()));
  Value offset = l.repeat(l.reduce(totals, getKind(), dim), type, otherDims(type.getRank(), dim));
  Value joined;
  switch (getKind()) {
  case dist::ReductionKind::Sum:
    joined = l.make<AddOp>(type, running, offset);
    break;
  case dist::ReductionKind::Prod:
    joined = l.make<MultiplyOp>(type, running, offset);
    break;
  case dist::ReductionKind::Max:
    joined = l.make<MaximumOp>(type, running, offset);
    break;
  case dist::ReductionKind::Min:
    joined = l.make<MinimumOp>(type, running, offset);
    break;
  }
  return {isNarrow ? l.make<ConvertOp>(types[0], joined) : joined};
}

//===----------------------------------------------------------------------===//
// Places of peaks
//===----------------------------------------------------------------------===//

ShardingRule ArgReduceOp::getShardingRule() {
  ShardingRule rule;
  TensorFactors in = addFactors(rule, shapeOf(getInput())), out = in;
  out.erase(out.begin() + getDim());
  rule.coupled = in[getDim()];
  rule.tensors = {in, out};
  return rule;
}

/// The first or, with `last`, the last index of an element that equals the peak. A NaN is the peak
/// of its lane but equals nothing, hence the second comparison. `axes` cut the dimension.
static Value findExtreme(OpBuilder &builder, ArgReduceOp op, Value x, ArrayRef<StringAttr> axes) {
  Local l{builder, op.getLoc()};
  RankedTensorType type = typeOf(x);
  int64_t dim = op.getDim(), size = shapeOf(op.getInput())[dim];
  bool isPadded = !axes.empty() && type.getDimSize(dim) * getNumParts(builder, axes) != size;
  Value counted =
      isPadded ? maskPadding(builder, op.getLoc(), x, dim, size, axes, op.getKind()) : x;
  Value peak = l.allReduce(l.reduce(counted, op.getKind(), dim), axes, op.getKind());
  Value isPeak =
      l.compare(Direction::EQ, counted, l.repeat(peak, type, otherDims(type.getRank(), dim)));
  if (isa<FloatType>(type.getElementType()))
    isPeak = l.make<OrOp>(isPeak.getType(), isPeak, l.compare(Direction::NE, counted, counted));

  auto placeType = type.clone(builder.getI64Type());
  auto row = RankedTensorType::get({type.getDimSize(dim)}, builder.getI64Type());
  Value place = l.make<IotaOp>(placeType, dim);
  if (!axes.empty()) {
    Value start = getShardStart(builder, op.getLoc(), axes, type.getDimSize(dim));
    Value positions = getPositions(builder, op.getLoc(), start, type.getDimSize(dim));
    place = l.repeat(positions, placeType, {dim});
    if (isPadded) {
      Value inside = l.compare(Direction::LT, positions, l.splat(row, size));
      isPeak = l.make<AndOp>(isPeak.getType(), isPeak,
                             l.repeat(inside, typeOf(isPeak), ArrayRef<int64_t>{dim}));
    }
  }
  Value none = l.splat(placeType, op.getLast() ? -1 : size);
  auto kind = op.getLast() ? dist::ReductionKind::Max : dist::ReductionKind::Min;
  Value candidates = l.make<SelectOp>(placeType, isPeak, place, none);
  return l.allReduce(l.reduce(candidates, kind, dim), axes, kind);
}

SmallVector<Value> ArgReduceOp::decompose(OpBuilder &builder) {
  return {findExtreme(builder, *this, getInput(), {})};
}

/// If the dimension is split: the peak of all parts, then its first or last place.
SmallVector<Value> ArgReduceOp::partition(OpBuilder &builder, ValueRange operands, TypeRange types,
                                          FactorAxes axes) {
  const AxisList &split = axes[getDim()];
  if (split.empty())
    return dist::cloneWithLocalTypes(builder, *this, operands, types);
  return {findExtreme(builder, *this, operands[0], split)};
}

//===----------------------------------------------------------------------===//
// Order
//===----------------------------------------------------------------------===//

/// Selecting a few elements works part by part; sorting does not.
ShardingRule ArgsortOp::getShardingRule() {
  ShardingRule rule;
  TensorFactors in = addFactors(rule, shapeOf(getInput())), out = in;
  int64_t size = shapeOf(getInput())[getDim()], taken = shapeOf(getOutput())[getDim()];
  if (taken == size)
    rule.kinds[in[getDim()][0]] = FactorKind::NeedReplication;
  else
    out[getDim()] = {rule.addFactor(taken, FactorKind::NeedReplication)};
  rule.coupled = in[getDim()];
  rule.tensors = {in, out};
  return rule;
}

/// The element that sorts after all others, so that padding is taken last.
static Attribute getLastElement(Type element, bool descending) {
  auto type = dyn_cast<FloatType>(element);
  if (type && !descending)
    return FloatAttr::get(type, APFloat::getNaN(type.getFloatSemantics()));
  return getNeutralElement(element,
                           descending ? dist::ReductionKind::Max : dist::ReductionKind::Min);
}

/// If the dimension is split: the first elements of every part, then the first of those. Parts are
/// joined in order with padding at the end, so that equal elements keep their order.
SmallVector<Value> ArgsortOp::partition(OpBuilder &builder, ValueRange operands, TypeRange types,
                                        FactorAxes axes) {
  int64_t dim = getDim(), size = shapeOf(getInput())[dim];
  const AxisList &split = axes[dim];
  if (split.empty())
    return dist::cloneWithLocalTypes(builder, *this, operands, types);
  Local l{builder, getLoc()};
  Value input = operands[0];
  RankedTensorType type = typeOf(input);
  int64_t part = type.getDimSize(dim);
  Value start = getShardStart(builder, getLoc(), split, part);
  if (part * getNumParts(builder, split) != size) {
    Value positions = getPositions(builder, getLoc(), start, part);
    Value inside = l.compare(Direction::LT, positions, l.splat(typeOf(positions), size));
    input = selectAlong(builder, getLoc(), dim, inside, input,
                        getLastElement(type.getElementType(), getDescending()));
  }
  SmallVector<int64_t> shape(type.getShape());
  shape[dim] = std::min(part, cast<RankedTensorType>(types[0]).getDimSize(dim));
  auto placeType = type.clone(shape).clone(builder.getI64Type());
  Value places = l.make<ArgsortOp>(placeType, input, dim, getDescending());
  Value values = l.make<GatherElementsOp>(type.clone(shape), input, places, dim);
  places = l.make<AddOp>(placeType, places, l.repeat(start, placeType, {}));
  values = l.allGather(values, split, dim);
  places = l.allGather(places, split, dim);
  Value order = l.make<ArgsortOp>(types[0], values, dim, getDescending());
  return {l.make<GatherElementsOp>(types[0], places, order, dim)};
}
