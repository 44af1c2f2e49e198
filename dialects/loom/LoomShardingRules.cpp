//===- LoomShardingRules.cpp - sharding rules -----------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/dist/Sharding.h"
#include "dialects/loom/Float8.h"
#include "dialects/loom/Halo.h"
#include "dialects/loom/Loom.h"
#include "dialects/loom/Padding.h"

using namespace mlir;
using namespace gridloom::dist;
using namespace gridloom::loom;
using llvm::enumerate;

static ArrayRef<int64_t> shapeOf(Value value) {
  return cast<RankedTensorType>(value.getType()).getShape();
}

//===----------------------------------------------------------------------===//
// Operations without operands
//===----------------------------------------------------------------------===//

ShardingRule IotaOp::getShardingRule() { return getElementwiseRule(*this); }
ShardingRule ConstantOp::getShardingRule() { return getElementwiseRule(*this); }
ShardingRule GetWeightOp::getShardingRule() { return getElementwiseRule(*this); }

/// Cuts this device's part out of `whole`, one dimension at a time.
static Value sliceToShard(OpBuilder &builder, Location loc, Value whole, FactorAxes axes,
                          Type localType) {
  MeshOp mesh = getMesh(whole.getDefiningOp()->getParentOfType<ModuleOp>());
  for (auto [dim, size] : enumerate(cast<RankedTensorType>(localType).getShape())) {
    int64_t parts = 1;
    for (StringAttr axis : axes[dim])
      parts *= mesh.getAxisSize(axis.getValue());
    if (parts == 1)
      continue;
    whole = padDim(builder, loc, whole, dim, size * parts);
    SmallVector<int64_t> shape(shapeOf(whole));
    shape[dim] = size;
    auto type =
        RankedTensorType::get(shape, cast<RankedTensorType>(whole.getType()).getElementType());
    SmallVector<Attribute> names(axes[dim].begin(), axes[dim].end());
    whole = ShardSliceOp::create(builder, loc, type, whole, builder.getArrayAttr(names),
                                 builder.getI64IntegerAttr(dim));
  }
  return whole;
}

SmallVector<Value> ConstantOp::partition(OpBuilder &builder, ValueRange, TypeRange types,
                                         FactorAxes axes) {
  if (auto splat = dyn_cast<SplatElementsAttr>(getValue())) {
    auto local = splat.resizeSplat(cast<ShapedType>(types[0]));
    return {ConstantOp::create(builder, getLoc(), local)};
  }
  Value whole = ConstantOp::create(builder, getLoc(), getValue());
  return {sliceToShard(builder, getLoc(), whole, axes, types[0])};
}

SmallVector<Value> IotaOp::partition(OpBuilder &builder, ValueRange, TypeRange types,
                                     FactorAxes axes) {
  auto type = cast<RankedTensorType>(types[0]);
  Value local = IotaOp::create(builder, getLoc(), type, getDim());
  const AxisList &split = axes[getDim()];
  if (split.empty())
    return {local};
  Value offset = getShardStart(builder, getLoc(), split, type.getDimSize(getDim()));
  auto converted = RankedTensorType::get({}, type.getElementType());
  if (converted != offset.getType())
    offset = ConvertOp::create(builder, getLoc(), converted, offset);
  Value spread = BroadcastOp::create(builder, getLoc(), type, offset, ArrayRef<int64_t>{});
  return {AddOp::create(builder, getLoc(), type, local, spread)};
}

SmallVector<Value> GetWeightOp::partition(OpBuilder &builder, ValueRange, TypeRange types,
                                          FactorAxes axes) {
  // The shard is cut when the weight is loaded; `sharding` says which part.
  auto local = cast<GetWeightOp>(builder.clone(**this));
  local.getOutput().setType(cast<RankedTensorType>(types[0]));
  local.setShardingAttr(gridloom::dist::getSharding(getOutput()));
  return {local.getOutput()};
}

//===----------------------------------------------------------------------===//
// Moves
//===----------------------------------------------------------------------===//

ShardingRule gridloom::loom::BroadcastOp::getShardingRule() {
  ShardingRule rule;
  TensorFactors in(shapeOf(getInput()).size()), out;
  for (int64_t size : shapeOf(getOutput()))
    out.push_back({rule.addFactor(size)});
  for (auto [i, dim] : enumerate(getDims())) {
    if (shapeOf(getInput())[i] == shapeOf(getOutput())[dim])
      in[i] = out[dim];
    else
      in[i] = {rule.addFactor(1, FactorKind::NeedReplication)};
  }
  rule.tensors = {in, out};
  return rule;
}
bool gridloom::loom::BroadcastOp::isLinear() { return true; }

/// Splits both shapes into common factors: walks them from major to minor and cuts where the
/// running products meet. Where they meet in no common refinement, the stretch is one factor that
/// cannot be split.
ShardingRule ReshapeOp::getShardingRule() {
  ShardingRule rule;
  ArrayRef<int64_t> from = shapeOf(getInput()), to = shapeOf(getOutput());
  TensorFactors in(from.size()), out(to.size());
  size_t i = 0, j = 0;
  int64_t left = from.empty() ? 1 : from[0], right = to.empty() ? 1 : to[0];
  auto nextIn = [&] { left = ++i < from.size() ? from[i] : 1; };
  auto nextOut = [&] { right = ++j < to.size() ? to[j] : 1; };
  while (i < from.size() && j < to.size()) {
    if (left == right) {
      int64_t factor = rule.addFactor(left);
      in[i].push_back(factor);
      out[j].push_back(factor);
      nextIn();
      nextOut();
    } else if (left < right && right % left == 0) {
      if (left > 1 || in[i].empty()) {
        int64_t factor = rule.addFactor(left);
        in[i].push_back(factor);
        if (left > 1)
          out[j].push_back(factor);
      }
      right /= left;
      nextIn();
    } else if (right < left && left % right == 0) {
      if (right > 1 || out[j].empty()) {
        int64_t factor = rule.addFactor(right);
        out[j].push_back(factor);
        if (right > 1)
          in[i].push_back(factor);
      }
      left /= right;
      nextOut();
    } else {
      // No common refinement here: take dimensions on both sides until the products agree.
      int64_t leftProduct = left, rightProduct = right;
      in[i].push_back(rule.addFactor(left, FactorKind::NeedReplication));
      out[j].push_back(rule.addFactor(right, FactorKind::NeedReplication));
      while (leftProduct != rightProduct) {
        if (leftProduct < rightProduct) {
          nextIn();
          leftProduct *= left;
          in[i].push_back(rule.addFactor(left, FactorKind::NeedReplication));
        } else {
          nextOut();
          rightProduct *= right;
          out[j].push_back(rule.addFactor(right, FactorKind::NeedReplication));
        }
      }
      nextIn();
      nextOut();
    }
  }
  for (; i < from.size(); nextIn())
    in[i].push_back(rule.addFactor(left));
  for (; j < to.size(); nextOut())
    out[j].push_back(rule.addFactor(right));
  rule.tensors = {in, out};
  return rule;
}
bool ReshapeOp::isLinear() { return true; }

ShardingRule TransposeOp::getShardingRule() {
  ShardingRule rule;
  TensorFactors in, out;
  for (int64_t size : shapeOf(getInput()))
    in.push_back({rule.addFactor(size)});
  for (int64_t dim : getPermutation())
    out.push_back(in[dim]);
  rule.tensors = {in, out};
  return rule;
}
bool TransposeOp::isLinear() { return true; }

ShardingRule SliceOp::getShardingRule() {
  ShardingRule rule;
  TensorFactors in, out;
  for (auto [from, to, start, stride] :
       llvm::zip_equal(shapeOf(getInput()), shapeOf(getOutput()), getStarts(), getStrides()))
    addWindowDim(rule, in, out, to, from == to, {.step = stride, .begin = start});
  rule.tensors = {in, out};
  return rule;
}
bool SliceOp::isLinear() { return true; }

/// Dimensions taken whole keep their shards. Of others a device fetches the stretch that its part
/// of the output is taken from.
SmallVector<Value> SliceOp::partition(OpBuilder &builder, ValueRange operands, TypeRange types,
                                      FactorAxes axes) {
  Value input = operands[0];
  auto local = cast<RankedTensorType>(types[0]);
  SmallVector<int64_t> starts(getStarts()), limits(getLimits());
  for (auto [dim, size] : enumerate(shapeOf(getInput()))) {
    int64_t part = local.getDimSize(dim), stride = getStrides()[dim];
    if (axes[dim].empty())
      continue;
    int64_t reach = (part - 1) * stride + 1;
    if (shapeOf(getOutput())[dim] != size)
      input = fetchWindow(
          builder, getLoc(), input, {static_cast<int64_t>(dim), size, axes[dim]},
          Window::regular(getNumParts(builder, axes[dim]), part * stride, starts[dim], reach),
          std::nullopt);
    starts[dim] = 0;
    limits[dim] = reach;
  }
  return {SliceOp::create(builder, getLoc(), local, input, starts, limits, getStrides())};
}

ShardingRule ConcatenateOp::getShardingRule() {
  ShardingRule rule;
  TensorFactors out;
  for (int64_t size : shapeOf(getOutput()))
    out.push_back({rule.addFactor(size)});
  int64_t before = 0;
  for (auto [i, input] : enumerate(getInputs())) {
    rule.tensors.push_back(out);
    int64_t size = shapeOf(input)[getDim()];
    if (size != shapeOf(getOutput())[getDim()])
      rule.windows.push_back(
          {static_cast<int64_t>(i), static_cast<int64_t>(getDim()), /*step=*/1, -before});
    before += size;
  }
  rule.tensors.push_back(out);
  return rule;
}
bool ConcatenateOp::isLinear() { return true; }

/// If the joined dimension is split, a device fetches from every input what falls into its part of
/// the output, and takes each position from its input.
SmallVector<Value> ConcatenateOp::partition(OpBuilder &builder, ValueRange operands,
                                            TypeRange types, FactorAxes axes) {
  int64_t dim = getDim();
  const AxisList &split = axes[dim];
  if (split.empty() || getInputs().size() == 1)
    return cloneWithLocalTypes(builder, *this, operands, types);
  int64_t part = cast<RankedTensorType>(types[0]).getDimSize(dim);
  int64_t parts = getNumParts(builder, split);
  Value positions =
      getPositions(builder, getLoc(), getShardStart(builder, getLoc(), split, part), part);
  Value joined;
  int64_t end = shapeOf(getOutput())[dim];
  for (auto [global, local] : llvm::reverse(llvm::zip_equal(getInputs(), operands))) {
    int64_t size = shapeOf(global)[dim];
    if (size == 0)
      continue;
    Value fetched = fetchWindow(builder, getLoc(), local, {dim, size, split},
                                Window::regular(parts, part, size - end, part), std::nullopt);
    if (joined) {
      auto row = cast<RankedTensorType>(positions.getType());
      auto limit = DenseElementsAttr::get(row, builder.getI64IntegerAttr(end));
      Value before = CompareOp::create(builder, getLoc(), row.clone(builder.getI1Type()), positions,
                                       ConstantOp::create(builder, getLoc(), limit).getResult(),
                                       Direction::LT);
      fetched = selectAlong(builder, getLoc(), dim, before, fetched, joined);
    }
    joined = fetched;
    end -= size;
  }
  return {joined};
}

ShardingRule GatherOp::getShardingRule() {
  ShardingRule rule;
  rule.readsPadding = false; // indices are global and below the size
  TensorFactors in, indices, out;
  int64_t dim = getDim();
  FactorKind looked = getLookupKind(getInput().getType().getElementType());
  for (auto [i, size] : enumerate(shapeOf(getInput())))
    in.push_back(
        {rule.addFactor(size, static_cast<int64_t>(i) == dim ? looked : FactorKind::Parallel)});
  for (int64_t size : shapeOf(getIndices()))
    indices.push_back({rule.addFactor(size)});
  out.append(in.begin(), in.begin() + dim);
  out.append(indices.begin(), indices.end());
  out.append(in.begin() + dim + 1, in.end());
  rule.tensors = {in, indices, out};
  return rule;
}

/// If the gathered dimension is split, each device gathers the elements that it has and contributes
/// getAbsent for the rest; the sum over the devices is the result.
SmallVector<Value> GatherOp::partition(OpBuilder &builder, ValueRange operands, TypeRange types,
                                       FactorAxes axes) {
  const AxisList &split = axes[getDim()]; // factors of the input come first, one per dimension
  if (split.empty())
    return cloneWithLocalTypes(builder, *this, operands, types);
  Location loc = getLoc();
  auto indexType = cast<RankedTensorType>(operands[1].getType());
  auto resultType = cast<RankedTensorType>(types[0]);
  auto splat = [&](RankedTensorType type, int64_t value) -> Value {
    return ConstantOp::create(
        builder, loc, DenseElementsAttr::get(type, IntegerAttr::get(type.getElementType(), value)));
  };
  int64_t rows = shapeOf(operands[0])[getDim()];
  Value offset = getShardStart(builder, loc, split, rows);
  auto element = RankedTensorType::get({}, indexType.getElementType());
  if (element != offset.getType())
    offset = ConvertOp::create(builder, loc, element, offset);
  Value spread =
      gridloom::loom::BroadcastOp::create(builder, loc, indexType, offset, ArrayRef<int64_t>{});
  Value local = SubtractOp::create(builder, loc, indexType, operands[1], spread);
  Value zero = splat(indexType, 0), last = splat(indexType, rows - 1);
  Value clamped =
      MinimumOp::create(builder, loc, indexType,
                        MaximumOp::create(builder, loc, indexType, local, zero).getResult(), last);
  Value gathered = GatherOp::create(builder, loc, resultType, operands[0], clamped, getDim());
  auto maskType = RankedTensorType::get(indexType.getShape(), builder.getI1Type());
  Value mine = CompareOp::create(builder, loc, maskType, local, clamped, Direction::EQ);
  // Padding is no row; that of weights is zero.
  int64_t size = shapeOf(getInput())[getDim()];
  if (rows * getNumParts(builder, split) != size && !operands[0].getDefiningOp<GetWeightOp>()) {
    Value inside = CompareOp::create(builder, loc, maskType, operands[1], splat(indexType, size),
                                     Direction::LT);
    mine = AndOp::create(builder, loc, maskType, mine, inside);
  }
  SmallVector<int64_t> dims =
      llvm::to_vector(llvm::seq<int64_t>(getDim(), getDim() + indexType.getRank()));
  Value mask = gridloom::loom::BroadcastOp::create(
      builder, loc, RankedTensorType::get(resultType.getShape(), builder.getI1Type()), mine, dims);
  Value nothing = ConstantOp::create(
      builder, loc, DenseElementsAttr::get(resultType, getAbsent(resultType.getElementType())));
  return {SelectOp::create(builder, loc, resultType, mask, gathered, nothing)};
}

//===----------------------------------------------------------------------===//
// Contractions and reductions
//===----------------------------------------------------------------------===//

ShardingRule DotGeneralOp::getShardingRule() {
  ShardingRule rule;
  ArrayRef<int64_t> left = shapeOf(getLhs()), right = shapeOf(getRhs());
  TensorFactors lhs(left.size()), rhs(right.size()), out;
  for (auto [a, b] : llvm::zip_equal(getLhsBatch(), getRhsBatch())) {
    lhs[a] = rhs[b] = {rule.addFactor(left[a])};
    out.push_back(lhs[a]);
  }
  for (int64_t dim : getLhsFreeDims()) {
    lhs[dim] = {rule.addFactor(left[dim])};
    out.push_back(lhs[dim]);
  }
  for (int64_t dim : getRhsFreeDims()) {
    rhs[dim] = {rule.addFactor(right[dim])};
    out.push_back(rhs[dim]);
  }
  for (auto [a, b] : llvm::zip_equal(getLhsContract(), getRhsContract()))
    lhs[a] = rhs[b] = {rule.addFactor(left[a], FactorKind::Reduction)};
  rule.tensors = {lhs, rhs, out};
  return rule;
}

ShardingRule ReduceOp::getShardingRule() {
  ShardingRule rule;
  rule.reduction = getKind();
  TensorFactors in, out;
  for (auto [i, size] : enumerate(shapeOf(getInput()))) {
    bool reduced = llvm::is_contained(getDims(), static_cast<int64_t>(i));
    in.push_back({rule.addFactor(size, reduced ? FactorKind::Reduction : FactorKind::Parallel)});
    if (!reduced)
      out.push_back(in.back());
  }
  rule.tensors = {in, out};
  return rule;
}

ShardingRule SoftmaxOp::getShardingRule() {
  ShardingRule rule = getElementwiseRule(*this);
  rule.coupled = {static_cast<int64_t>(getDim())};
  return rule;
}

static ShardingRule getRowNormRule(Operation *op) {
  ShardingRule rule;
  TensorFactors rows;
  for (int64_t size : shapeOf(op->getOperand(0)))
    rows.push_back({rule.addFactor(size)});
  rule.coupled = {rows.back().front()};
  rule.messages = isa<LayerNormOp>(op) ? 2 : 1; // the mean, and the mean of squares
  rule.tensors = {rows};
  rule.tensors.append(op->getNumOperands() - 1, TensorFactors{rows.back()});
  rule.tensors.push_back(rows);
  return rule;
}

ShardingRule LayerNormOp::getShardingRule() { return getRowNormRule(*this); }
ShardingRule RmsNormOp::getShardingRule() { return getRowNormRule(*this); }
