//===- RaiseNormalizations.cpp - softmax and layer normalisation from their parts ===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/simplify/Folding.h"
#include "passes/simplify/RaiseComposites.h"

using namespace mlir;
using namespace gridloom;

namespace {

RankedTensorType getTensorType(Value value) { return cast<RankedTensorType>(value.getType()); }

/// Whether `op` converts 16-bit floats to f32, or with `narrows` the other way round.
bool convertsFloats(Operation *op, bool narrows) {
  auto convert = dyn_cast_or_null<loom::ConvertOp>(op);
  if (!convert)
    return false;
  Type narrow = getTensorType(convert.getInput()).getElementType();
  Type wide = getTensorType(convert).getElementType();
  if (narrows)
    std::swap(narrow, wide);
  return (narrow.isF16() || narrow.isBF16()) && wide.isF32();
}

/// What `value` is the widened copy of: sums and means of 16-bit floats are computed in f32.
Value skipWidening(Value value) {
  Operation *op = value.getDefiningOp();
  return convertsFloats(op, /*narrows=*/false) ? op->getOperand(0) : value;
}

/// Follows a value backwards to the reduction that it repeats. `along` maps each dimension of the
/// value to a dimension of the tensor it is combined with (-1 for unit dimensions).
struct Trace {
  explicit Trace(Value value)
      : value(value),
        along(llvm::to_vector(llvm::seq<int64_t>(0, getTensorType(value).getRank()))) {
    skipMoves();
  }

  /// Continues with operand `index` of an elementwise operation.
  void follow(Operation *op, unsigned index = 0) {
    parts.push_back(op);
    value = op->getOperand(index);
    skipMoves();
  }

  /// Skips broadcasts, and reshapes that only add or remove unit dimensions.
  void skipMoves() {
    while (Operation *op = value.getDefiningOp()) {
      if (auto broadcast = dyn_cast<loom::BroadcastOp>(op))
        skipBroadcast(broadcast);
      else if (auto reshape = dyn_cast<loom::ReshapeOp>(op); reshape && onlyUnitDims(reshape))
        skipReshape(reshape);
      else
        return;
      parts.push_back(op);
    }
  }

  template <typename OpT> OpT getAs() const { return value.getDefiningOp<OpT>(); }

  /// Whether the value is a reduction of `x`, possibly widened, over `dim` alone, aligned with the
  /// elements of x.
  bool isReductionOf(Value x, dist::ReductionKind kind, int64_t dim) {
    auto reduce = getAs<loom::ReduceOp>();
    if (!reduce || (reduce.getInput() != x && skipWidening(reduce.getInput()) != x) ||
        reduce.getKind() != kind || reduce.getDims() != ArrayRef<int64_t>{dim} || !isInPlace(dim))
      return false;
    parts.push_back(reduce);
    return true;
  }

  /// Whether dimension i of the value is dimension i of the whole, after removing `without`.
  bool isInPlace(int64_t without) const {
    for (auto [i, dim] : llvm::enumerate(along))
      if (dim != -1 && dim != static_cast<int64_t>(i) + (static_cast<int64_t>(i) >= without))
        return false;
    return true;
  }

  Value value;
  SmallVector<int64_t> along;
  SmallVector<Operation *> parts;

private:
  void skipBroadcast(loom::BroadcastOp op) {
    SmallVector<int64_t> before;
    for (auto [dim, size] : llvm::zip_equal(op.getDims(), getTensorType(op.getInput()).getShape()))
      before.push_back(size == 1 ? -1 : along[dim]);
    along = std::move(before);
    value = op.getInput();
  }

  static auto getWideDims(ArrayRef<int64_t> shape) {
    return llvm::make_filter_range(shape, [](int64_t size) { return size != 1; });
  }
  static bool onlyUnitDims(loom::ReshapeOp op) {
    return llvm::equal(getWideDims(getTensorType(op.getInput()).getShape()),
                       getWideDims(getTensorType(op).getShape()));
  }
  void skipReshape(loom::ReshapeOp op) {
    SmallVector<int64_t> wide, before;
    for (auto [dim, size] : llvm::zip_equal(along, getTensorType(op).getShape()))
      if (size != 1)
        wide.push_back(dim);
    for (int64_t size : getTensorType(op.getInput()).getShape())
      before.push_back(size == 1 ? -1
                                 : wide[llvm::count_if(before, [](int64_t d) { return d != -1; })]);
    along = std::move(before);
    value = op.getInput();
  }
};

/// Continues above the conversion of a sum or mean that was computed in f32 back to 16 bits.
void skipNarrowing(Trace &trace) {
  if (Operation *op = trace.value.getDefiningOp(); convertsFloats(op, /*narrows=*/true))
    trace.follow(op);
}

//===----------------------------------------------------------------------===//
// Softmax
//===----------------------------------------------------------------------===//

/// exp(x - max) / sum of it; without the maximum it is the same function except for overflow.
struct RaiseSoftmax : OpRewritePattern<loom::DivideOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(loom::DivideOp op, PatternRewriter &rewriter) const override {
    auto exponential = op.getLhs().getDefiningOp<loom::ExpOp>();
    if (!exponential)
      return rewriter.notifyMatchFailure(op, "numerator is no exponential");
    Trace sum(op.getRhs());
    skipNarrowing(sum);
    auto reduce = sum.getAs<loom::ReduceOp>();
    if (!reduce || reduce.getDims().size() != 1 ||
        !sum.isReductionOf(exponential, dist::ReductionKind::Sum, reduce.getDims()[0]))
      return rewriter.notifyMatchFailure(op, "denominator is not the sum of the numerator");
    int64_t dim = reduce.getDims()[0];
    SmallVector<Operation *> parts(sum.parts);
    parts.push_back(exponential);
    Value x = exponential.getInput();
    if (auto subtract = x.getDefiningOp<loom::SubtractOp>()) {
      Trace peak(subtract.getRhs());
      if (peak.isReductionOf(subtract.getLhs(), dist::ReductionKind::Max, dim)) {
        parts.append(peak.parts);
        parts.push_back(subtract);
        x = subtract.getLhs();
      }
    }
    Location loc = fuseLocations(rewriter, op.getLoc(), parts);
    rewriter.replaceOp(op, loom::SoftmaxOp::create(rewriter, loc, op.getType(), x, dim));
    return success();
  }
};

//===----------------------------------------------------------------------===//
// Norms
//===----------------------------------------------------------------------===//

/// Matches a mean over the last dimension of `x`: sum / n or sum * (1 / n).
bool matchMean(Trace &trace, Value x) {
  skipNarrowing(trace);
  int64_t last = getTensorType(x).getRank() - 1;
  double count = getTensorType(x).getDimSize(last);
  if (auto divide = trace.getAs<loom::DivideOp>()) {
    if (!isSplatNear(divide.getRhs(), count))
      return false;
    trace.follow(divide);
  } else if (auto multiply = trace.getAs<loom::MultiplyOp>()) {
    if (!isSplatNear(multiply.getRhs(), 1 / count))
      return false;
    trace.follow(multiply);
  } else if (count != 1) {
    return false;
  }
  skipNarrowing(trace);
  return trace.isReductionOf(x, dist::ReductionKind::Sum, last);
}

/// Normalised by mean and variance, or by the mean of squares alone.
struct Normalized {
  Value x;
  double epsilon;
  SmallVector<Operation *> parts;
  bool isCentred;
};

/// Matches the mean of squares of `centred`, plus epsilon; `centred` may be x - mean.
std::optional<Normalized> matchVariance(Trace trace, Value centred) {
  auto add = trace.getAs<loom::AddOp>();
  if (!add)
    return std::nullopt;
  unsigned index = getSplat(add.getLhs()) ? 1 : 0;
  std::optional<double> epsilon = getSplat(add->getOperand(1 - index));
  if (!epsilon)
    return std::nullopt;
  trace.follow(add, index);
  // matchMean needs to know the square, which is below the reduction.
  Trace probe = trace;
  skipNarrowing(probe);
  if (Operation *scale = probe.value.getDefiningOp();
      scale && isa<loom::DivideOp, loom::MultiplyOp>(scale))
    probe.follow(scale);
  skipNarrowing(probe);
  auto reduce = probe.getAs<loom::ReduceOp>();
  auto square = reduce ? skipWidening(reduce.getInput()).getDefiningOp<loom::MultiplyOp>()
                       : loom::MultiplyOp();
  if (!square || square.getLhs() != centred || square.getRhs() != centred ||
      !matchMean(trace, square))
    return std::nullopt;
  Normalized result{centred, *epsilon, trace.parts, /*isCentred=*/false};
  result.parts.push_back(square);
  if (auto subtract = centred.getDefiningOp<loom::SubtractOp>())
    if (Trace mean(subtract.getRhs()); matchMean(mean, subtract.getLhs())) {
      result.x = subtract.getLhs();
      result.parts.append(mean.parts);
      result.parts.push_back(subtract);
      result.isCentred = true;
    }
  return result;
}

/// Matches centred / sqrt(mean of its squares + epsilon), or centred times its rsqrt.
std::optional<Normalized> matchNormalized(Operation *op) {
  for (unsigned i : {0u, 1u}) {
    Trace deviation(op->getOperand(1 - i));
    if (isa<loom::MultiplyOp>(op)) {
      if (auto inverse = deviation.getAs<loom::DivideOp>();
          inverse && isSplatNear(inverse.getLhs(), 1))
        deviation.follow(inverse, 1);
      else if (auto rsqrt = deviation.getAs<loom::RsqrtOp>())
        deviation.follow(rsqrt);
      else
        continue;
    } else if (i == 1) {
      break;
    }
    bool isRsqrt = !deviation.parts.empty() && isa<loom::RsqrtOp>(deviation.parts.back());
    for (Operation *part : deviation.parts)
      isRsqrt |= isa<loom::RsqrtOp>(part);
    if (!isRsqrt) {
      auto sqrt = deviation.getAs<loom::SqrtOp>();
      if (!sqrt)
        continue;
      deviation.follow(sqrt);
    }
    if (auto result = matchVariance(deviation, op->getOperand(i)))
      return result;
  }
  return std::nullopt;
}

/// `value` as a vector if it repeats one along all but the last dimension of `like`; else null.
Value getRowVector(PatternRewriter &rewriter, Value value, RankedTensorType like) {
  int64_t last = like.getRank() - 1, size = like.getDimSize(last);
  auto type = RankedTensorType::get({size}, like.getElementType());
  if (std::optional<double> splat = getSplat(value))
    return createSplat(rewriter, value.getLoc(), type, *splat);
  Trace trace(value);
  for (int64_t dim : trace.along)
    if (dim != -1 && dim != last)
      return {};
  if (getTensorType(trace.value).getNumElements() != size)
    return {};
  if (trace.value.getType() == type)
    return trace.value;
  return loom::ReshapeOp::create(rewriter, value.getLoc(), type, trace.value);
}

template <typename OpT> struct RaiseNorm : OpRewritePattern<OpT> {
  using OpRewritePattern<OpT>::OpRewritePattern;

  LogicalResult matchAndRewrite(OpT op, PatternRewriter &rewriter) const override {
    auto type = cast<RankedTensorType>(op.getType());
    if (type.getRank() == 0 || !isa<FloatType>(type.getElementType()))
      return rewriter.notifyMatchFailure(op, "not rows of floats");
    std::optional<Normalized> normalized = matchNormalized(op);
    if (!normalized)
      return rewriter.notifyMatchFailure(op, "not x / root of the mean of squares");

    // Takes scale and bias if they are the only users.
    Operation *last = op;
    auto take = [&](auto user) -> Value {
      if (!user || !last->hasOneUse() || *last->user_begin() != user)
        return {};
      unsigned other = user->getOperand(0) == last->getResult(0) ? 1 : 0;
      Value vector = getRowVector(rewriter, user->getOperand(other), type);
      if (vector) {
        normalized->parts.push_back(last);
        last = user;
      }
      return vector;
    };
    rewriter.setInsertionPoint(op);
    auto user = [&](auto tag) {
      using UserT = decltype(tag);
      return last->hasOneUse() ? dyn_cast<UserT>(*last->user_begin()) : UserT();
    };
    // The new operation needs the vectors, so it is inserted where the last part was.
    if (auto multiply = user(loom::MultiplyOp()))
      rewriter.setInsertionPoint(multiply);
    Value scale = take(user(loom::MultiplyOp()));
    if (auto add = user(loom::AddOp()); add && scale)
      rewriter.setInsertionPoint(add);
    Value bias = scale && normalized->isCentred ? take(user(loom::AddOp())) : Value();
    rewriter.setInsertionPoint(last);
    if (!scale)
      scale =
          createSplat(rewriter, op.getLoc(),
                      RankedTensorType::get({type.getShape().back()}, type.getElementType()), 1);
    Location loc = fuseLocations(rewriter, last->getLoc(), normalized->parts);
    llvm::APFloat epsilon(normalized->epsilon);
    Operation *norm;
    if (normalized->isCentred)
      norm = loom::LayerNormOp::create(rewriter, loc, type, normalized->x, scale, bias, epsilon);
    else
      norm = loom::RmsNormOp::create(rewriter, loc, type, normalized->x, scale, epsilon);
    rewriter.replaceOp(last, norm);
    return success();
  }
};

} // namespace

void gridloom::populateRaiseNormalizationPatterns(RewritePatternSet &patterns) {
  patterns.add<RaiseSoftmax, RaiseNorm<loom::DivideOp>, RaiseNorm<loom::MultiplyOp>>(
      patterns.getContext());
}
