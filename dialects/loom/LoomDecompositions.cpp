//===- LoomDecompositions.cpp - composites as simpler operations ----------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/Loom.h"

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
  /// Reduces `dim` and repeats the result along it.
  Value reduceAndRepeat(Value x, dist::ReductionKind kind, int64_t dim) {
    auto type = cast<RankedTensorType>(x.getType());
    SmallVector<int64_t> shape(type.getShape()), kept;
    shape.erase(shape.begin() + dim);
    for (int64_t i = 0; i < type.getRank(); ++i)
      if (i != dim)
        kept.push_back(i);
    auto reducedType = RankedTensorType::get(shape, type.getElementType());
    Value reduced = ReduceOp::create(builder, loc, reducedType, x, kind, ArrayRef<int64_t>{dim});
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

SmallVector<Value> SoftmaxOp::decompose(OpBuilder &builder) {
  Expression e{builder, getLoc()};
  int64_t dim = getDim();
  Value peak = e.reduceAndRepeat(getInput(), dist::ReductionKind::Max, dim);
  Value exponential = e.unary<ExpOp>(e.binary<SubtractOp>(getInput(), peak));
  Value sum = e.reduceAndRepeat(exponential, dist::ReductionKind::Sum, dim);
  return {e.binary<DivideOp>(exponential, sum)};
}

SmallVector<Value> LayerNormOp::decompose(OpBuilder &builder) {
  Expression e{builder, getLoc()};
  auto type = cast<RankedTensorType>(getInput().getType());
  int64_t last = type.getRank() - 1;
  Value count = e.splat(getInput(), static_cast<double>(type.getDimSize(last)));
  auto mean = [&](Value x) {
    return e.binary<DivideOp>(e.reduceAndRepeat(x, dist::ReductionKind::Sum, last), count);
  };
  auto repeat = [&](Value row) {
    return BroadcastOp::create(builder, getLoc(), type, row, ArrayRef<int64_t>{last}).getResult();
  };
  Value centred = e.binary<SubtractOp>(getInput(), mean(getInput()));
  Value variance = mean(e.binary<MultiplyOp>(centred, centred));
  Value deviation = e.unary<SqrtOp>(
      e.binary<AddOp>(variance, e.splat(getInput(), getEpsilon().convertToDouble())));
  Value result = e.binary<MultiplyOp>(e.binary<DivideOp>(centred, deviation), repeat(getScale()));
  if (getBias())
    result = e.binary<AddOp>(result, repeat(getBias()));
  return {result};
}
