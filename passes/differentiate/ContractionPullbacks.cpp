//===- ContractionPullbacks.cpp - pullbacks of products, sums and norms ---===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/differentiate/Pullbacks.h"

using namespace mlir;
using namespace gridloom;
using dist::ReductionKind;
using loom::Direction;

//===----------------------------------------------------------------------===//
// dot_general
//===----------------------------------------------------------------------===//

namespace {
/// One operand of a dot_general.
struct Side {
  Value value;
  ArrayRef<int64_t> batch, contract;
  SmallVector<int64_t> free;
};
} // namespace

/// The product of the cotangent and the other side over the other's free dimensions, which the
/// cotangent has from `begin` on. The product has the batch dimensions, the own free ones, then the
/// contracting ones in the other side's order.
static Term pullBackSide(loom::DotGeneralOp op, Term ct, const Side &own, const Side &other,
                         int64_t begin) {
  auto type = typeOf(own.value);
  auto sequence = [](int64_t from, size_t count) {
    return llvm::to_vector(llvm::seq(from, from + static_cast<int64_t>(count)));
  };
  SmallVector<int64_t> order = sequence(0, other.contract.size());
  llvm::sort(order, [&](int64_t a, int64_t b) { return other.contract[a] < other.contract[b]; });
  SmallVector<int64_t> dims(own.batch); // the operand's dimensions in the product's order
  llvm::append_range(dims, own.free);
  for (int64_t i : order)
    dims.push_back(own.contract[i]);
  auto shape = llvm::map_to_vector(dims, [&](int64_t dim) { return type.getDimSize(dim); });
  Term product =
      ct.emit<loom::DotGeneralOp>(type.clone(shape), ct.convert(type.getElementType()), other.value,
                                  sequence(0, own.batch.size()), other.batch,
                                  sequence(begin, other.free.size()), other.free, op.getTf32());
  SmallVector<int64_t> permutation(dims.size());
  for (auto [i, dim] : llvm::enumerate(dims))
    permutation[dim] = static_cast<int64_t>(i);
  return product.transpose(permutation);
}

static void pullBackDot(loom::DotGeneralOp op, Term ct, Adjoints &to) {
  Side lhs{op.getLhs(), op.getLhsBatch(), op.getLhsContract(), op.getLhsFreeDims()};
  Side rhs{op.getRhs(), op.getRhsBatch(), op.getRhsContract(), op.getRhsFreeDims()};
  auto batch = static_cast<int64_t>(lhs.batch.size());
  auto free = static_cast<int64_t>(lhs.free.size());
  to.add(lhs.value, [&] { return pullBackSide(op, ct, lhs, rhs, batch + free); });
  to.add(rhs.value, [&] { return pullBackSide(op, ct, rhs, lhs, batch); });
}

//===----------------------------------------------------------------------===//
// reduce
//===----------------------------------------------------------------------===//

/// 16-bit floats as f32.
static Term widen(Term x) {
  Type element = x.getType().getElementType();
  return element.getIntOrFloatBitWidth() < 32 ? x.convert(Float32Type::get(element.getContext()))
                                              : x;
}

/// x with the element type of `like`.
static Term narrow(Term x, Value like) { return x.convert(typeOf(like).getElementType()); }

/// All elements equal to the extremum get an equal part.
static Term pullBackExtremum(loom::ReduceOp op, Term x, Term y, Term ct) {
  ArrayRef<int64_t> shape = x.getShape(), dims = op.getDims();
  Term wins = x.compare(Direction::EQ, y.repeat(shape, dims));
  // f16 holds no count above 65504.
  Term wide = widen(ct), count = wins.convert(wide.getType().getElementType()).sum(dims);
  return narrow(wide / count, ct).repeat(shape, dims).where(wins);
}

/// The product of all other elements, without dividing by zeros.
static Term pullBackProduct(loom::ReduceOp op, Term x, Term ct) {
  int64_t dim = op.getDims().front();
  auto others = [&](bool reverse) {
    return x.emit<loom::CumulativeOp>(x.getType(), x, ReductionKind::Prod, dim, /*exclusive=*/true,
                                      reverse);
  };
  return ct.repeat(x.getShape(), op.getDims()) * others(false) * others(true);
}

static void pullBackReduce(loom::ReduceOp op, Term ct, Adjoints &to) {
  to.add(op.getInput(), [&]() -> Value {
    Term x = to.term(op.getInput());
    if (op.getKind() == ReductionKind::Sum)
      return ct.repeat(x.getShape(), op.getDims());
    if (op.getDims().empty())
      return ct;
    if (op.getKind() == ReductionKind::Prod)
      return pullBackProduct(op, x, ct);
    return pullBackExtremum(op, x, to.term(op.getOutput()), ct);
  });
}

static StringRef findReduceObstacle(loom::ReduceOp op) {
  return op.getKind() == ReductionKind::Prod && op.getDims().size() > 1
             ? "a product over several dimensions"
             : "";
}

//===----------------------------------------------------------------------===//
// softmax, layer_norm, rms_norm
//===----------------------------------------------------------------------===//

static void pullBackSoftmax(loom::SoftmaxOp op, Term ct, Adjoints &to) {
  to.add(op.getInput(), [&] {
    Term y = to.term(op.getOutput());
    auto dim = static_cast<int64_t>(op.getDim());
    return y * (ct - (ct * y).sum({dim}).repeat(y.getShape(), {dim}));
  });
}

/// The mean of each row, in each of its elements.
static Term repeatMean(Term x) {
  int64_t last = x.getRank() - 1;
  Term mean = x.sum({last}) * (1.0 / static_cast<double>(std::max<int64_t>(1, x.getShape()[last])));
  return mean.repeat(x.getShape(), {last});
}

/// For y = x^ * scale + bias, where x^ = (x - mean) * r and r = rsqrt(mean of squares + epsilon);
/// an rms_norm subtracts no mean. x' = r * (g - mean of g - x^ * mean of g * x^), where g is the
/// cotangent of x^. Sums of squares of 16-bit floats are f32, as those of the operation.
template <typename Op> static void pullBackNorm(Op op, Term ct, Adjoints &to) {
  constexpr bool isCentred = std::is_same_v<Op, loom::LayerNormOp>;
  Value input = op.getInput(), factor = op.getScale();
  Term x = widen(to.term(input)), scale = widen(to.term(factor));
  ct = widen(ct);
  int64_t last = x.getRank() - 1;
  SmallVector<int64_t> rows = llvm::to_vector(llvm::seq<int64_t>(0, last));
  std::optional<Term> inverse, normal;
  if (to.wants(input) || to.wants(factor)) {
    Term centred = isCentred ? x - repeatMean(x) : x;
    double epsilon = op.getEpsilon().convertToDouble();
    inverse = (repeatMean(centred * centred) + epsilon).template apply<loom::RsqrtOp>();
    normal = centred * *inverse;
  }
  to.add(input, [&] {
    Term g = ct * scale.broadcast(x.getShape(), {last});
    Term along = g - *normal * repeatMean(g * *normal);
    return narrow(*inverse * (isCentred ? along - repeatMean(g) : along), input);
  });
  to.add(factor, [&] { return narrow((ct * *normal).sum(rows), factor); });
  if constexpr (isCentred)
    if (Value bias = op.getBias())
      to.add(bias, [&] { return narrow(ct.sum(rows), bias); });
}

//===----------------------------------------------------------------------===//
// The table
//===----------------------------------------------------------------------===//

void gridloom::attachContractionPullbacks(MLIRContext &context) {
  attachPullback<loom::DotGeneralOp, pullBackDot>(context);
  attachPullback<loom::ReduceOp, pullBackReduce, findReduceObstacle>(context);
  attachPullback<loom::SoftmaxOp, pullBackSoftmax>(context);
  attachPullback<loom::LayerNormOp, pullBackNorm<loom::LayerNormOp>>(context);
  attachPullback<loom::RmsNormOp, pullBackNorm<loom::RmsNormOp>>(context);
}
