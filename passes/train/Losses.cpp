//===- Losses.cpp - losses and metrics as formulas ------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/train/Losses.h"

#include "passes/train/OptimizerRules.h"

#include "dialects/loom/Derivatives.h"

#include "llvm/Support/raw_ostream.h"

#include <limits>

using namespace mlir;
using namespace gridloom;
using namespace gridloom::train;
using dist::ReductionKind;
using loom::Direction;
using Kind = LossSpec::Kind;

//===----------------------------------------------------------------------===//
// Types
//===----------------------------------------------------------------------===//

namespace {
/// The properties of a loss or metric that decide about the tensors it reads.
struct Call {
  const char *what; ///< "loss" or "metric"
  const std::string &text, &prediction, &target;
  int64_t axis;
  bool takesLabels, hasClasses;
};
} // namespace

static Call describe(const LossSpec &loss) {
  bool takesLabels = loss.kind == Kind::CrossEntropy;
  return {"loss",
          loss.text,
          loss.prediction,
          loss.target,
          loss.axis,
          takesLabels,
          /*hasClasses=*/takesLabels || loss.kind == Kind::KlDivergence};
}

static Call describe(const MetricSpec &metric) {
  return {"metric",    metric.text,          metric.prediction,  metric.target,
          metric.axis, /*takesLabels=*/true, /*hasClasses=*/true};
}

/// A shape as errors write it: [2, 3].
static std::string toString(ArrayRef<int64_t> shape) {
  std::string text = "[";
  llvm::raw_string_ostream stream(text);
  llvm::interleaveComma(shape, stream);
  return text + "]";
}

static std::string toString(Type element) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  element.print(stream);
  return text;
}

static std::nullopt_t fail(const Call &call, const std::string &message, std::string &error) {
  error = std::string(call.what) + " '" + call.text + "': " + message;
  return std::nullopt;
}

/// The dimension of the classes, or -1 if the loss has none. Nullopt if the prediction does not
/// fit.
static std::optional<int64_t> findClasses(const Call &call, RankedTensorType prediction,
                                          std::string &error) {
  std::string name = "'" + call.prediction + "'";
  if (!isa<FloatType>(prediction.getElementType()))
    return fail(
        call, name + " is " + toString(prediction.getElementType()) + "; name an output of floats",
        error);
  if (!call.hasClasses)
    return -1;
  int64_t rank = prediction.getRank();
  if (call.axis < -rank || call.axis >= rank)
    return fail(call,
                name + " is " + toString(prediction.getShape()) + ", so axis " +
                    std::to_string(call.axis) + " is none of its " + std::to_string(rank) +
                    " dimensions; give axis=N of the classes",
                error);
  int64_t dim = call.axis < 0 ? call.axis + rank : call.axis;
  if (prediction.getDimSize(dim) == 0)
    return fail(call,
                name + " is " + toString(prediction.getShape()) + ", without classes along axis " +
                    std::to_string(call.axis) + "; give axis=N of the classes",
                error);
  return dim;
}

/// The target's type for a prediction with classes along `dim`.
static RankedTensorType getTargetType(const Call &call, RankedTensorType prediction, int64_t dim) {
  if (!call.takesLabels)
    return prediction;
  SmallVector<int64_t> shape(prediction.getShape());
  shape.erase(shape.begin() + dim);
  return RankedTensorType::get(shape, IntegerType::get(prediction.getContext(), 64));
}

RankedTensorType gridloom::train::getTargetType(const LossSpec &loss, RankedTensorType prediction,
                                                std::string &error) {
  Call call = describe(loss);
  std::optional<int64_t> dim = findClasses(call, prediction, error);
  return dim && loss.kind != Kind::Output ? ::getTargetType(call, prediction, *dim)
                                          : RankedTensorType();
}

RankedTensorType gridloom::train::getTargetType(const MetricSpec &metric,
                                                RankedTensorType prediction, std::string &error) {
  Call call = describe(metric);
  std::optional<int64_t> dim = findClasses(call, prediction, error);
  return dim ? ::getTargetType(call, prediction, *dim) : RankedTensorType();
}

/// The dimension of the classes, after checking that prediction and target fit.
static std::optional<int64_t> check(const Call &call, RankedTensorType prediction,
                                    RankedTensorType target, std::string &error) {
  std::optional<int64_t> dim = findClasses(call, prediction, error);
  if (!dim)
    return std::nullopt;
  std::string name = "target '" + call.target + "'";
  RankedTensorType expected = ::getTargetType(call, prediction, *dim);
  if (target.getShape() != expected.getShape())
    return fail(call,
                name + " is " + toString(target.getShape()) + ", expected " +
                    toString(expected.getShape()) + " for '" + call.prediction + "' of " +
                    toString(prediction.getShape()),
                error);
  Type element = target.getElementType();
  if (call.takesLabels && (!isa<IntegerType>(element) || element.isInteger(1)))
    return fail(call,
                name + " is " + toString(element) +
                    "; labels are integers, and kl takes probabilities",
                error);
  if (!call.takesLabels && !isa<FloatType>(element))
    return fail(
        call, name + " is " + toString(element) + "; give floats, or use cross_entropy for labels",
        error);
  return dim;
}

//===----------------------------------------------------------------------===//
// Formulas
//===----------------------------------------------------------------------===//

/// Converts to the floats in which losses of `like` are computed.
static Term widen(Term x, RankedTensorType like) {
  return x.convert(getComputeType(like.getElementType()));
}

/// A scalar of the element type of `like`.
static Term makeScalar(Term like, double number) {
  return like.splat(RankedTensorType::get({}, like.getType().getElementType()), number);
}

/// The parts of a mean over `number` rows or elements.
static LossParts makeParts(Term sum, double number) {
  return {sum, makeScalar(sum, number), number};
}

namespace {
/// Integers compared with a class or with the ignored label.
struct Labels {
  /// Converts to i64 first, because a label's own type may not hold the number it is compared with.
  Labels(Term target, std::optional<int64_t> ignoreIndex)
      : value(target.convert(IntegerType::get(target.getType().getContext(), 64))) {
    if (ignoreIndex)
      isKept = compare(Direction::NE, *ignoreIndex);
  }

  /// Compares with an i64, which a double may not hold.
  Term compare(Direction direction, int64_t number) const {
    auto numbers = DenseElementsAttr::get(value.getType(), number);
    return value.compare(direction, value.emit<loom::ConstantOp>(value.getType(), numbers));
  }

  Term areClasses(int64_t classes) const {
    return compare(Direction::GE, 0).apply<loom::AndOp>(compare(Direction::LT, classes));
  }

  /// The rows of `x` that are kept, zero elsewhere.
  Term keep(Term x) const { return isKept ? x.where(*isKept) : x; }

  /// The logits of the rows that are kept, zero elsewhere, so that derivatives do not depend on
  /// rows that do not count, even if they hold NaN.
  Term keep(Term x, int64_t classDim) const {
    return isKept ? x.where(isKept->repeat(x.getShape(), {classDim})) : x;
  }

  /// The sum over the rows that are kept, each counting 1.
  LossParts sum(Term rows) const {
    LossParts parts = makeParts(sumAll(keep(rows)), getNumRows());
    if (isKept)
      parts.count = sumAll(isKept->convert(rows.getType().getElementType()));
    return parts;
  }

  /// The number of labels.
  double getNumRows() const { return static_cast<double>(value.getType().getNumElements()); }

  Term value;
  std::optional<Term> isKept; ///< i1; absent where all are
};

/// Logits minus the maximum of their row, and the logarithm of the sum of their exponentials. Their
/// difference is the logarithm of softmax.
struct Shifted {
  Term logits, logSum;
};
} // namespace

/// Both parts contain the maximum, so its derivative cancels out: the reduction is marked flat.
static Shifted shift(Term x, int64_t dim) {
  SmallVector<int64_t> rows(x.getShape());
  rows.erase(rows.begin() + dim);
  Term largest =
      x.emit<loom::ReduceOp>(x.getType().clone(rows), x, ReductionKind::Max, ArrayRef(dim));
  Value(largest).getDefiningOp()->setAttr(loom::kFlat, UnitAttr::get(x.getType().getContext()));
  Term shifted = x - largest.repeat(x.getShape(), {dim});
  return {shifted, shifted.apply<loom::ExpOp>().sum({dim}).apply<loom::LogOp>()};
}

/// The weight of each class, along dimension `dim` of x.
static Term makeWeights(ArrayRef<double> weights, Term x, int64_t dim) {
  Type element = x.getType().getElementType();
  auto type = RankedTensorType::get({static_cast<int64_t>(weights.size())}, element);
  SmallVector<Attribute> numbers = llvm::map_to_vector(
      weights, [&](double weight) -> Attribute { return FloatAttr::get(element, weight); });
  Term vector = x.emit<loom::ConstantOp>(type, DenseElementsAttr::get(type, numbers));
  return vector.broadcast(x.getShape(), {dim});
}

/// The loss of each row. Multiplies logits only where needed: 0 times -inf, the logit of a class
/// that is left out, is NaN.
static Term buildRows(const Shifted &shifted, Term isLabel, double smoothing,
                      std::optional<Term> weights, int64_t dim) {
  const auto &[logits, logSum] = shifted;
  double rest = smoothing / static_cast<double>(logits.getShape()[dim]);
  if (rest == 0) {
    Term rows = logSum - logits.where(isLabel).sum({dim});
    return weights ? rows * weights->where(isLabel).sum({dim}) : rows;
  }
  Term shares = isLabel.select(logits.splat(1 - smoothing + rest), logits.splat(rest));
  if (!weights)
    return logSum - (logits * shares).sum({dim});
  shares = shares * *weights;
  return shares.sum({dim}) * logSum - (logits * shares).sum({dim});
}

/// Picks the label's logit by comparison instead of a gather, so that each device can search its
/// own classes.
static LossParts buildCrossEntropy(const LossSpec &loss, Term x, Term target, int64_t dim) {
  ArrayRef<int64_t> shape = x.getShape();
  Labels labels(target, loss.ignoreIndex);
  Shifted shifted = shift(labels.keep(x, dim), dim);
  Term isLabel = x.iota(shape, dim).compare(Direction::EQ, labels.value.repeat(shape, {dim}));
  std::optional<Term> weights;
  if (!loss.classWeights.empty())
    weights = makeWeights(loss.classWeights, x, dim);
  Term rows = buildRows(shifted, isLabel, loss.labelSmoothing, weights, dim);
  Term wrong = rows.splat(std::numeric_limits<double>::quiet_NaN());
  LossParts parts = labels.sum(labels.areClasses(shape[dim]).select(rows, wrong));
  if (weights)
    parts.count = sumAll(labels.keep(weights->where(isLabel).sum({dim})));
  return parts;
}

/// The sum of t * log t - t * log softmax(x). Both logarithms are replaced where t is 0: that of t
/// is infinite there, and so may be that of softmax.
static LossParts buildKlDivergence(Term x, Term t, int64_t dim) {
  auto [logits, logSum] = shift(x, dim);
  Term isZero = t.compare(Direction::EQ, 0);
  Term logTarget = isZero.select(t.splat(1), t).apply<loom::LogOp>();
  Term difference = isZero.select(t.splat(0), logTarget - logits);
  Term rows = (t * difference).sum({dim}) + t.sum({dim}) * logSum;
  return makeParts(sumAll(rows), static_cast<double>(rows.getType().getNumElements()));
}

static LossParts buildSquaredError(Term x, Term t) {
  Term difference = x - t;
  return makeParts(sumAll(difference * difference),
                   static_cast<double>(x.getType().getNumElements()));
}

/// max(x, 0) - x * t + log(1 + exp(-|x|)). At 0 the maximum counts half, so that the derivative is
/// logistic(x) - t there, too.
static LossParts buildBinaryCrossEntropy(Term x, Term t) {
  Term decay = (-x.apply<loom::AbsOp>()).apply<loom::ExpOp>();
  Term sum = decay + 1;
  // What the sum's rounding lost of a small addend, to first order.
  Term log = sum.apply<loom::LogOp>() + (decay - (sum - 1)) / sum;
  Term loss = x.apply<loom::MaximumOp>(x.splat(0)) - x * t + log;
  return makeParts(sumAll(loss), static_cast<double>(x.getType().getNumElements()));
}

static LossParts buildOf(const LossSpec &loss, Term x, Term t, int64_t dim) {
  if (loss.kind == Kind::CrossEntropy)
    return buildCrossEntropy(loss, x, t, dim);
  t = widen(t, x.getType());
  if (loss.kind == Kind::KlDivergence)
    return buildKlDivergence(x, t, dim);
  return loss.kind == Kind::MeanSquaredError ? buildSquaredError(x, t)
                                             : buildBinaryCrossEntropy(x, t);
}

std::optional<LossParts> gridloom::train::buildLoss(const LossSpec &loss, Term prediction,
                                                    std::optional<Term> target,
                                                    std::string &error) {
  Call call = describe(loss);
  if (loss.kind == Kind::Output) {
    if (!findClasses(call, prediction.getType(), error))
      return std::nullopt;
    return makeParts(sumAll(widen(prediction, prediction.getType())), 1);
  }
  if (!target)
    return fail(call, "target '" + loss.target + "' is missing", error);
  std::optional<int64_t> dim = check(call, prediction.getType(), target->getType(), error);
  if (!dim)
    return std::nullopt;
  if (size_t given = loss.classWeights.size();
      given && int64_t(given) != prediction.getShape()[*dim])
    return fail(call,
                "class_weights has " + std::to_string(given) + " numbers, '" + loss.prediction +
                    "' " + toString(prediction.getShape()) + " has " +
                    std::to_string(prediction.getShape()[*dim]) + " classes along axis " +
                    std::to_string(loss.axis) + "; give one for each",
                error);
  LossParts parts = buildOf(loss, widen(prediction, prediction.getType()), *target, *dim);
  return loss.isMean ? parts : makeParts(parts.sum, 1);
}

std::optional<LossParts> gridloom::train::buildMetric(const MetricSpec &metric, Term prediction,
                                                      Term target, std::string &error) {
  std::optional<int64_t> dim =
      check(describe(metric), prediction.getType(), target.getType(), error);
  if (!dim)
    return std::nullopt;
  Labels labels(target, metric.ignoreIndex);
  Term largest = prediction.emit<loom::ArgReduceOp>(labels.value.getType(), prediction,
                                                    ReductionKind::Max, *dim, /*last=*/false);
  Term isRight = largest.compare(Direction::EQ, labels.value);
  Type f32 = Float32Type::get(prediction.getType().getContext());
  return labels.sum(isRight.convert(f32));
}
