//===- LoomDecompositions.cpp - composites as simpler operations ----------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/Normalizations.h"
#include "dialects/loom/Padding.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::loom;

namespace {
/// Builds elementwise expressions on tensors of one type.
struct Expression {
  OpBuilder &builder;
  Location loc;

  template <typename Op> Value unary(Value x) { return Op::create(builder, loc, x.getType(), x); }
  template <typename Op> Value binary(Value x, Value y) {
    return Op::create(builder, loc, x.getType(), x, y);
  }
  Value splat(Value like, double value) {
    auto type = cast<RankedTensorType>(like.getType());
    auto element = FloatAttr::get(type.getElementType(), value);
    return ConstantOp::create(builder, loc, DenseElementsAttr::get(type, element));
  }
  Value convert(Value value, Type element) {
    auto type = cast<RankedTensorType>(value.getType());
    if (type.getElementType() == element)
      return value;
    return ConvertOp::create(builder, loc, type.clone(element), value);
  }
  /// Converts 16-bit floats to f32, which sums over many elements need.
  Value widen(Value value) {
    Type element = cast<RankedTensorType>(value.getType()).getElementType();
    return element.isF16() || element.isBF16() ? convert(value, builder.getF32Type()) : value;
  }
  /// Repeats a value that lacks `dim` of `like`.
  Value repeat(Value value, Value like, int64_t dim) {
    auto type = cast<RankedTensorType>(like.getType());
    SmallVector<int64_t> kept;
    for (int64_t i = 0; i < type.getRank(); ++i)
      if (i != dim)
        kept.push_back(i);
    return BroadcastOp::create(builder, loc, type, value, kept);
  }
};

/// Reduces one dimension, also over the devices that it is cut over.
struct Reducer {
  OpBuilder &builder;
  Location loc;
  /// Mesh axes that cut the dimension, of `global` elements; none if it is whole.
  ArrayRef<StringAttr> axes = {};
  int64_t global = 0;

  Value operator()(Value x, dist::ReductionKind kind, int64_t dim) const {
    auto type = cast<RankedTensorType>(x.getType());
    SmallVector<int64_t> shape(type.getShape());
    shape.erase(shape.begin() + dim);
    auto reducedType = RankedTensorType::get(shape, type.getElementType());
    if (!axes.empty())
      x = maskPadding(builder, loc, x, dim, global, axes, kind);
    Value reduced = ReduceOp::create(builder, loc, reducedType, x, kind, ArrayRef<int64_t>{dim});
    if (!axes.empty())
      reduced = dist::AllReduceOp::create(builder, loc, reduced, axes, kind).getResult(0);
    return reduced;
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

//===----------------------------------------------------------------------===//
// softmax and norms
//===----------------------------------------------------------------------===//

Value gridloom::loom::buildSoftmax(OpBuilder &builder, Location loc, Value given, int64_t dim,
                                   const NormalizationForm &form) {
  Expression e{builder, loc};
  Value input = e.widen(given);
  Value peak = e.repeat(form.reduce(input, dist::ReductionKind::Max, dim), input, dim);
  Value exponential = e.unary<ExpOp>(e.binary<SubtractOp>(input, peak));
  Value sum = form.reduce(exponential, dist::ReductionKind::Sum, dim), result;
  if (form.dividesOnce) {
    Value inverse = e.binary<DivideOp>(e.splat(sum, 1.0), sum);
    result = e.binary<MultiplyOp>(exponential, e.repeat(inverse, input, dim));
  } else {
    result = e.binary<DivideOp>(exponential, e.repeat(sum, input, dim));
  }
  return e.convert(result, getElementTypeOrSelf(given));
}

SmallVector<Value> SoftmaxOp::decompose(OpBuilder &builder) {
  Reducer reduce{builder, getLoc()};
  return {buildSoftmax(builder, getLoc(), getInput(), getDim(), {reduce})};
}

/// Along a cut dimension, maximum and sum are reduced over the devices.
SmallVector<Value> SoftmaxOp::partition(OpBuilder &builder, ValueRange operands, TypeRange types,
                                        dist::FactorAxes axes) {
  int64_t dim = getDim();
  if (axes[dim].empty())
    return dist::cloneWithLocalTypes(builder, *this, operands, types);
  Reducer reduce{builder, getLoc(), axes[dim], getInput().getType().getDimSize(dim)};
  return {buildSoftmax(builder, getLoc(), operands[0], dim, {reduce})};
}

Value gridloom::loom::buildRowNorm(OpBuilder &builder, Operation *op, ValueRange operands,
                                   int64_t size, const NormalizationForm &form) {
  auto layerNorm = dyn_cast<LayerNormOp>(op);
  double epsilon =
      (layerNorm ? layerNorm.getEpsilon() : cast<RmsNormOp>(op).getEpsilon()).convertToDouble();
  Location loc = op->getLoc();
  Expression e{builder, loc};
  Value input = e.widen(operands[0]);
  auto type = cast<RankedTensorType>(input.getType());
  int64_t last = type.getRank() - 1;
  auto elements = static_cast<double>(size);
  Value count = form.dividesOnce ? Value() : e.splat(input, elements);
  auto mean = [&](Value x) {
    Value sum = form.reduce(x, dist::ReductionKind::Sum, last);
    return form.dividesOnce ? e.binary<MultiplyOp>(sum, e.splat(sum, 1.0 / elements))
                            : e.binary<DivideOp>(e.repeat(sum, input, last), count);
  };
  auto repeatMean = [&](Value x) { return form.dividesOnce ? e.repeat(x, input, last) : x; };
  auto repeatRow = [&](Value row) {
    return BroadcastOp::create(builder, loc, type, e.convert(row, type.getElementType()),
                               ArrayRef<int64_t>{last})
        .getResult();
  };
  Value centred = input;
  if (layerNorm)
    centred = e.binary<SubtractOp>(input, repeatMean(mean(input)));
  Value variance = mean(e.binary<MultiplyOp>(centred, centred));
  Value shifted = e.binary<AddOp>(variance, e.splat(variance, epsilon)), result;
  if (form.dividesOnce)
    result = e.binary<MultiplyOp>(centred, e.repeat(e.unary<RsqrtOp>(shifted), input, last));
  else
    result = e.binary<DivideOp>(centred, e.unary<SqrtOp>(shifted));
  result = e.binary<MultiplyOp>(result, repeatRow(operands[1]));
  if (operands.size() == 3)
    result = e.binary<AddOp>(result, repeatRow(operands[2]));
  return e.convert(result, getElementTypeOrSelf(operands[0]));
}

static SmallVector<Value> decomposeRowNorm(OpBuilder &builder, Operation *op) {
  Reducer reduce{builder, op->getLoc()};
  int64_t size = cast<RankedTensorType>(op->getResult(0).getType()).getShape().back();
  return {buildRowNorm(builder, op, op->getOperands(), size, {reduce})};
}

SmallVector<Value> LayerNormOp::decompose(OpBuilder &builder) {
  return decomposeRowNorm(builder, *this);
}
SmallVector<Value> RmsNormOp::decompose(OpBuilder &builder) {
  return decomposeRowNorm(builder, *this);
}

/// Along a cut dimension, means are reduced over the devices.
static SmallVector<Value> partitionRowNorm(OpBuilder &builder, Operation *op, ValueRange operands,
                                           TypeRange types, dist::FactorAxes axes) {
  auto type = cast<RankedTensorType>(op->getResult(0).getType());
  int64_t last = type.getRank() - 1, size = type.getDimSize(last);
  if (axes[last].empty())
    return dist::cloneWithLocalTypes(builder, op, operands, types);
  Reducer reduce{builder, op->getLoc(), axes[last], size};
  return {buildRowNorm(builder, op, operands, size, {reduce})};
}

SmallVector<Value> LayerNormOp::partition(OpBuilder &builder, ValueRange operands, TypeRange types,
                                          dist::FactorAxes axes) {
  return partitionRowNorm(builder, *this, operands, types, axes);
}
SmallVector<Value> RmsNormOp::partition(OpBuilder &builder, ValueRange operands, TypeRange types,
                                        dist::FactorAxes axes) {
  return partitionRowNorm(builder, *this, operands, types, axes);
}
