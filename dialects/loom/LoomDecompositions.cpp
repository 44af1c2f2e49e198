//===- LoomDecompositions.cpp - composites as simpler operations ----------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/Loom.h"
#include "dialects/loom/Padding.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::loom;

namespace {
/// Builds elementwise expressions on tensors of one type.
struct Expression {
  OpBuilder &builder;
  Location loc;
  /// Mesh axes that cut the reduced dimension, of `global` elements; none when it is whole.
  ArrayRef<StringAttr> axes = {};
  int64_t global = 0;

  template <typename Op> Value unary(Value x) { return Op::create(builder, loc, x.getType(), x); }
  template <typename Op> Value binary(Value x, Value y) {
    return Op::create(builder, loc, x.getType(), x, y);
  }
  Value splat(Value like, double value) {
    auto type = cast<RankedTensorType>(like.getType());
    auto element = FloatAttr::get(type.getElementType(), value);
    return ConstantOp::create(builder, loc, DenseElementsAttr::get(type, element));
  }
  /// Reduces `dim` and repeats the result along it.
  Value reduceAndRepeat(Value x, dist::ReductionKind kind, int64_t dim) {
    auto type = cast<RankedTensorType>(x.getType());
    SmallVector<int64_t> shape(type.getShape()), kept;
    shape.erase(shape.begin() + dim);
    for (int64_t i = 0; i < type.getRank(); ++i)
      if (i != dim)
        kept.push_back(i);
    auto reducedType = RankedTensorType::get(shape, type.getElementType());
    if (!axes.empty())
      x = maskPadding(builder, loc, x, dim, global, axes, kind);
    Value reduced = ReduceOp::create(builder, loc, reducedType, x, kind, ArrayRef<int64_t>{dim});
    if (!axes.empty())
      reduced = dist::AllReduceOp::create(builder, loc, reduced, axes, kind).getResult(0);
    return BroadcastOp::create(builder, loc, type, reduced, kept);
  }
};
} // namespace

SmallVector<Value> GeluOp::decompose(OpBuilder &builder) {
  Expression e{builder, getLoc()};
  Value x = getInput(), half = e.splat(x, 0.5), one = e.splat(x, 1.0), inner;
  if (getForm() == GeluForm::Erf) {
    inner = e.unary<ErfOp>(e.binary<MultiplyOp>(x, e.splat(x, 0.70710678118654752440)));
  } else {
    Value cube = e.binary<MultiplyOp>(e.binary<MultiplyOp>(x, x), x);
    Value sum = e.binary<AddOp>(x, e.binary<MultiplyOp>(cube, e.splat(x, 0.044715)));
    inner = e.unary<TanhOp>(e.binary<MultiplyOp>(sum, e.splat(x, 0.79788456080286535588)));
  }
  return {e.binary<MultiplyOp>(e.binary<MultiplyOp>(x, half), e.binary<AddOp>(inner, one))};
}

static Value convert(Expression e, Value value, Type element) {
  auto type = cast<RankedTensorType>(value.getType());
  if (type.getElementType() == element)
    return value;
  return ConvertOp::create(e.builder, e.loc, type.clone(element), value);
}

/// f32 of 16-bit floats: sums over many elements need it.
static Value widen(Expression e, Value value) {
  Type element = cast<RankedTensorType>(value.getType()).getElementType();
  bool isNarrow = element.isF16() || element.isBF16();
  return isNarrow ? convert(e, value, e.builder.getF32Type()) : value;
}

static Value buildSoftmax(Expression e, Value given, int64_t dim) {
  Value input = widen(e, given);
  Value peak = e.reduceAndRepeat(input, dist::ReductionKind::Max, dim);
  Value exponential = e.unary<ExpOp>(e.binary<SubtractOp>(input, peak));
  Value sum = e.reduceAndRepeat(exponential, dist::ReductionKind::Sum, dim);
  return convert(e, e.binary<DivideOp>(exponential, sum),
                 cast<RankedTensorType>(given.getType()).getElementType());
}

SmallVector<Value> SoftmaxOp::decompose(OpBuilder &builder) {
  return {buildSoftmax({builder, getLoc()}, getInput(), getDim())};
}

/// Along a cut dimension, maximum and sum are reduced over the devices.
SmallVector<Value> SoftmaxOp::partition(OpBuilder &builder, ValueRange operands, TypeRange types,
                                        dist::FactorAxes axes) {
  int64_t dim = getDim();
  if (axes[dim].empty())
    return dist::cloneWithLocalTypes(builder, *this, operands, types);
  int64_t size = getInput().getType().getDimSize(dim);
  return {buildSoftmax({builder, getLoc(), axes[dim], size}, operands[0], dim)};
}

/// `operands`: input, scale and, where there is one, bias.
static Value buildLayerNorm(Expression e, ValueRange operands, int64_t size, double epsilon) {
  Value input = widen(e, operands[0]);
  auto type = cast<RankedTensorType>(input.getType());
  int64_t last = type.getRank() - 1;
  Value count = e.splat(input, static_cast<double>(size));
  auto mean = [&](Value x) {
    return e.binary<DivideOp>(e.reduceAndRepeat(x, dist::ReductionKind::Sum, last), count);
  };
  auto repeat = [&](Value row) {
    return BroadcastOp::create(e.builder, e.loc, type, convert(e, row, type.getElementType()),
                               ArrayRef<int64_t>{last})
        .getResult();
  };
  Value centred = e.binary<SubtractOp>(input, mean(input));
  Value variance = mean(e.binary<MultiplyOp>(centred, centred));
  Value deviation = e.unary<SqrtOp>(e.binary<AddOp>(variance, e.splat(input, epsilon)));
  Value result = e.binary<MultiplyOp>(e.binary<DivideOp>(centred, deviation), repeat(operands[1]));
  if (operands.size() == 3)
    result = e.binary<AddOp>(result, repeat(operands[2]));
  return convert(e, result, cast<RankedTensorType>(operands[0].getType()).getElementType());
}

SmallVector<Value> LayerNormOp::decompose(OpBuilder &builder) {
  return {buildLayerNorm({builder, getLoc()}, getOperands(), getInput().getType().getShape().back(),
                         getEpsilon().convertToDouble())};
}

/// Along a cut dimension, mean and variance are reduced over the devices.
SmallVector<Value> LayerNormOp::partition(OpBuilder &builder, ValueRange operands, TypeRange types,
                                          dist::FactorAxes axes) {
  int64_t last = getInput().getType().getRank() - 1;
  if (axes[last].empty())
    return dist::cloneWithLocalTypes(builder, *this, operands, types);
  int64_t size = getInput().getType().getDimSize(last);
  return {buildLayerNorm({builder, getLoc(), axes[last], size}, operands, size,
                         getEpsilon().convertToDouble())};
}
