//===- RaiseUpdates.cpp - rows written into a tensor, from their parts ----===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Writing new rows into a cache at a position b is expressed as a select for every place c along a
// dimension: where 0 <= c - b < n the new row c - b, else the old one. Conditions are read as
// bounds of c - b, however they are written, and the rows' index is computed for each of the n
// differences. The resulting scatter touches n rows only.
//
//===----------------------------------------------------------------------===//
#include "passes/simplify/Folding.h"
#include "passes/simplify/RaiseComposites.h"

#include <limits>

using namespace mlir;
using namespace gridloom;

namespace {

RankedTensorType getTensorType(Value value) { return cast<RankedTensorType>(value.getType()); }

/// place * i + sign * base + offset at place i, where `base` is a scalar known only at run time, or
/// null.
struct Linear {
  int64_t place = 0, offset = 0, sign = 0;
  Value base;
};

/// Reads integer expressions over the places of a dimension.
class PlaceReader {
public:
  /// Conditions that hold if first <= place - base <= last.
  struct Bounds {
    int64_t first = std::numeric_limits<int64_t>::min();
    int64_t last = std::numeric_limits<int64_t>::max();
    Value base;
  };

  /// The linear form of an expression; nullopt if it is not linear.
  std::optional<Linear> read(Value value);
  /// Narrows `bounds` to where the condition holds; false if it is not such a bound.
  bool readBounds(Value condition, Bounds &bounds);
  /// The value of an expression if place - base is `difference`.
  std::optional<int64_t> evaluate(Value value, const Bounds &bounds, int64_t difference) {
    evaluated.clear();
    return evaluate(value, bounds, difference, /*depth=*/0);
  }

private:
  static constexpr unsigned kMaxDepth = 64;
  /// Larger numbers are refused, because sums could overflow.
  static constexpr int64_t kLargest = int64_t(1) << 40;

  std::optional<Linear> compute(Value value);
  std::optional<int64_t> evaluate(Value value, const Bounds &bounds, int64_t difference,
                                  unsigned depth);
  std::optional<int64_t> compute(Operation *op, const Bounds &bounds, int64_t difference,
                                 unsigned depth);
  static bool countsPlaces(Value value);

  llvm::DenseMap<Value, std::optional<Linear>> known;
  llvm::DenseMap<Value, std::optional<int64_t>> evaluated; ///< at one difference
};

/// Whether the elements of a one-dimensional tensor are 0, 1, ...
bool PlaceReader::countsPlaces(Value value) {
  if (value.getDefiningOp<loom::IotaOp>())
    return true;
  DenseElementsAttr constant = getConstant(value);
  if (!constant || constant.isSplat())
    return false;
  int64_t place = 0;
  return llvm::all_of(constant.getValues<APInt>(),
                      [&](const APInt &element) { return element == place++; });
}

std::optional<Linear> PlaceReader::read(Value value) {
  if (auto it = known.find(value); it != known.end())
    return it->second;
  std::optional<Linear> result = compute(value);
  if (result && std::max(std::abs(result->offset), std::abs(result->place)) > kLargest)
    result.reset();
  return known[value] = result;
}

std::optional<Linear> PlaceReader::compute(Value value) {
  RankedTensorType type = getTensorType(value);
  // Narrower integers are no positions of a scatter.
  if (!type.getElementType().isSignlessInteger() || type.getElementTypeBitWidth() < 32)
    return std::nullopt;
  Linear result;
  if (std::optional<double> splat = getSplat(value)) {
    if (std::abs(*splat) > static_cast<double>(kLargest))
      return std::nullopt;
    result.offset = static_cast<int64_t>(*splat);
    return result;
  }
  bool isOne = type.getNumElements() == 1;
  if (!isOne && type.getRank() == 1 && countsPlaces(value)) {
    result.place = 1;
    return result;
  }
  Operation *op = value.getDefiningOp();
  bool isMove = isa_and_nonnull<loom::BroadcastOp, loom::ReshapeOp>(op) &&
                getTensorType(op->getOperand(0)).getNumElements() == 1;
  if (isMove)
    return read(op->getOperand(0));
  if (isa_and_nonnull<loom::AddOp, loom::SubtractOp>(op)) {
    std::optional<Linear> a = read(op->getOperand(0)), b = read(op->getOperand(1));
    int64_t by = isa<loom::AddOp>(op) ? 1 : -1;
    if (a && b && (!a->base || !b->base)) {
      result.place = a->place + by * b->place;
      result.offset = a->offset + by * b->offset;
      result.sign = a->sign + by * b->sign;
      result.base = a->base ? a->base : b->base;
      return result;
    }
  }
  if (!isOne)
    return std::nullopt;
  result.base = value;
  result.sign = 1;
  return result;
}

bool PlaceReader::readBounds(Value condition, Bounds &bounds) {
  if (auto both = condition.getDefiningOp<loom::AndOp>())
    return readBounds(both.getLhs(), bounds) && readBounds(both.getRhs(), bounds);
  auto compare = condition.getDefiningOp<loom::CompareOp>();
  std::optional<Linear> a = compare ? read(compare.getLhs()) : std::nullopt;
  std::optional<Linear> b = a ? read(compare.getRhs()) : std::nullopt;
  if (!b || (a->base && b->base && a->base != b->base))
    return false;
  // sense * (place - base) + offset, compared with 0.
  int64_t sense = a->place - b->place, offset = a->offset - b->offset;
  Value base = a->base ? a->base : b->base;
  if (std::abs(sense) != 1 || a->sign - b->sign != -sense || !base ||
      (bounds.base && bounds.base != base))
    return false;
  bounds.base = base;
  using Direction = loom::Direction;
  Direction direction = compare.getDirection();
  // As bounds of the difference: compares difference + offset, or offset - difference, with 0.
  auto isAtLeast = [&](int64_t least) { bounds.first = std::max(bounds.first, least); };
  auto isAtMost = [&](int64_t most) { bounds.last = std::min(bounds.last, most); };
  int64_t edge = -sense * offset;
  bool isUp = sense > 0;
  if (direction == Direction::EQ) {
    isAtLeast(edge);
    isAtMost(edge);
  } else if (direction == Direction::GE || direction == Direction::GT) {
    int64_t strictly = direction == Direction::GT ? 1 : 0;
    isUp ? isAtLeast(edge + strictly) : isAtMost(edge - strictly);
  } else if (direction == Direction::LE || direction == Direction::LT) {
    int64_t strictly = direction == Direction::LT ? 1 : 0;
    isUp ? isAtMost(edge - strictly) : isAtLeast(edge + strictly);
  } else {
    return false;
  }
  return true;
}

std::optional<int64_t> PlaceReader::evaluate(Value value, const Bounds &bounds, int64_t difference,
                                             unsigned depth) {
  if (std::optional<Linear> linear = read(value)) {
    if (!linear->base && linear->place == 0)
      return linear->offset;
    if (linear->base == bounds.base && linear->sign == -linear->place)
      return linear->place * difference + linear->offset;
    return std::nullopt;
  }
  Operation *op = value.getDefiningOp();
  if (!op || depth == kMaxDepth)
    return std::nullopt;
  if (auto it = evaluated.find(value); it != evaluated.end())
    return it->second;
  std::optional<int64_t> result = compute(op, bounds, difference, depth);
  if (result && std::abs(*result) > kLargest)
    result.reset();
  return evaluated[value] = result;
}

std::optional<int64_t> PlaceReader::compute(Operation *op, const Bounds &bounds, int64_t difference,
                                            unsigned depth) {
  if (auto select = dyn_cast<loom::SelectOp>(op)) {
    auto compare = select.getPredicate().getDefiningOp<loom::CompareOp>();
    std::optional<int64_t> a, b;
    if (compare) {
      a = evaluate(compare.getLhs(), bounds, difference, depth + 1);
      b = evaluate(compare.getRhs(), bounds, difference, depth + 1);
    }
    if (!a || !b || compare.getDirection() != loom::Direction::LT)
      return std::nullopt;
    return evaluate(*a < *b ? select.getOnTrue() : select.getOnFalse(), bounds, difference,
                    depth + 1);
  }
  if (!isa<loom::AddOp, loom::SubtractOp, loom::MaximumOp, loom::MinimumOp>(op))
    return std::nullopt;
  std::optional<int64_t> a = evaluate(op->getOperand(0), bounds, difference, depth + 1),
                         b = evaluate(op->getOperand(1), bounds, difference, depth + 1);
  if (!a || !b)
    return std::nullopt;
  return llvm::TypeSwitch<Operation *, int64_t>(op)
      .Case([&](loom::AddOp) { return *a + *b; })
      .Case([&](loom::SubtractOp) { return *a - *b; })
      .Case([&](loom::MaximumOp) { return std::max(*a, *b); })
      .Default([&](Operation *) { return std::min(*a, *b); });
}

/// The only dimension along which a condition varies, and the condition along it.
struct PlaceCondition {
  Value condition;
  int64_t dim;
};

std::optional<PlaceCondition> getPlaceCondition(Value predicate) {
  if (getTensorType(predicate).getRank() == 1)
    return PlaceCondition{predicate, 0};
  auto broadcast = predicate.getDefiningOp<loom::BroadcastOp>();
  if (!broadcast || broadcast.getDims().size() != 1 ||
      getTensorType(broadcast.getInput()).getNumElements() == 1)
    return std::nullopt;
  return PlaceCondition{broadcast.getInput(), broadcast.getDims()[0]};
}

struct RaiseRowUpdate : OpRewritePattern<loom::SelectOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(loom::SelectOp op, PatternRewriter &rewriter) const override {
    std::optional<PlaceCondition> where = getPlaceCondition(op.getPredicate());
    auto fail = [&](StringRef why) { return rewriter.notifyMatchFailure(op, why); };
    if (!where || getTensorType(op.getOnFalse()).getRank() == 0)
      return fail("the condition is not one of a dimension's places");
    PlaceReader reader;
    PlaceReader::Bounds bounds;
    if (!reader.readBounds(where->condition, bounds))
      return fail("the condition is no interval of places");
    Value rows = getRows(rewriter, op, *where, reader, bounds);
    if (!rows)
      return fail("what is taken is not one row after another");
    int64_t count = getTensorType(rows).getDimSize(where->dim);
    Value places = makePlaces(rewriter, op.getLoc(), bounds, count);
    rewriter.replaceOpWithNewOp<loom::ScatterOp>(op, op.getType(), op.getOnFalse(), places, rows,
                                                 where->dim, dist::ReductionKindAttr());
    return success();
  }

private:
  /// The rows that the places in `bounds` take, in order; null if they do not match.
  static Value getRows(PatternRewriter &rewriter, loom::SelectOp op, const PlaceCondition &where,
                       PlaceReader &reader, const PlaceReader::Bounds &bounds) {
    RankedTensorType type = getTensorType(op.getOnFalse());
    if (auto gather = op.getOnTrue().getDefiningOp<loom::GatherOp>()) {
      int64_t count = getTensorType(gather.getInput()).getDimSize(gather.getDim());
      if (static_cast<int64_t>(gather.getDim()) != where.dim ||
          getTensorType(gather.getIndices()).getRank() != 1 || !hasCount(bounds, count))
        return {};
      for (int64_t row = 0; row < count; ++row)
        if (reader.evaluate(gather.getIndices(), bounds, bounds.first + row) != row)
          return {};
      return gather.getInput();
    }
    // One row, repeated at all places.
    auto broadcast = op.getOnTrue().getDefiningOp<loom::BroadcastOp>();
    SmallVector<int64_t> shape(type.getShape());
    shape[where.dim] = 1;
    RankedTensorType rowType = type.clone(shape);
    if (!broadcast || !hasCount(bounds, 1) ||
        getTensorType(broadcast.getInput()).getNumElements() != rowType.getNumElements())
      return {};
    for (auto [i, dim] : llvm::enumerate(broadcast.getDims()))
      if (dim == where.dim && getTensorType(broadcast.getInput()).getDimSize(i) != 1)
        return {};
    return loom::ReshapeOp::create(rewriter, op.getLoc(), rowType, broadcast.getInput());
  }

  static bool hasCount(const PlaceReader::Bounds &bounds, int64_t count) {
    return count > 0 && bounds.first > std::numeric_limits<int64_t>::min() &&
           bounds.last < std::numeric_limits<int64_t>::max() &&
           bounds.last - bounds.first + 1 == count && fits(bounds, bounds.first) &&
           fits(bounds, bounds.last);
  }

  /// Whether a difference fits into the places' type.
  static bool fits(const PlaceReader::Bounds &bounds, int64_t difference) {
    return llvm::isIntN(getTensorType(bounds.base).getElementTypeBitWidth(), difference);
  }

  /// base + first, base + first + 1, ...
  static Value makePlaces(PatternRewriter &rewriter, Location loc,
                          const PlaceReader::Bounds &bounds, int64_t count) {
    auto type = RankedTensorType::get({count}, getTensorType(bounds.base).getElementType());
    auto one = type.clone(ArrayRef<int64_t>{1});
    Value start = loom::ReshapeOp::create(rewriter, loc, one, bounds.base);
    start = loom::BroadcastOp::create(rewriter, loc, type, start, ArrayRef<int64_t>{0});
    SmallVector<APInt> steps;
    for (int64_t i = 0; i < count; ++i)
      steps.emplace_back(type.getElementTypeBitWidth(), bounds.first + i, /*isSigned=*/true);
    Value offsets = loom::ConstantOp::create(rewriter, loc, DenseElementsAttr::get(type, steps));
    return loom::AddOp::create(rewriter, loc, start, offsets);
  }
};

/// Moves a scatter of rows before the transpose of its input, which often cancels with a later
/// transpose.
struct ScatterBeforeTranspose : OpRewritePattern<loom::ScatterOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(loom::ScatterOp op, PatternRewriter &rewriter) const override {
    auto turned = op.getInput().getDefiningOp<loom::TransposeOp>();
    if (!turned || !op.takesSlices())
      return rewriter.notifyMatchFailure(op, "no slices are written into a transpose");
    ArrayRef<int64_t> permutation = turned.getPermutation();
    SmallVector<int64_t> back(permutation.size()), shape(permutation.size());
    for (auto [i, dim] : llvm::enumerate(permutation)) {
      back[dim] = static_cast<int64_t>(i);
      shape[dim] = op.getUpdates().getType().getDimSize(i);
    }
    Value rows = loom::TransposeOp::create(
        rewriter, op.getLoc(), op.getUpdates().getType().clone(shape), op.getUpdates(), back);
    Value written = loom::ScatterOp::create(rewriter, op.getLoc(), turned.getInput().getType(),
                                            turned.getInput(), op.getIndices(), rows,
                                            permutation[op.getDim()], op.getReductionAttr());
    rewriter.replaceOpWithNewOp<loom::TransposeOp>(op, op.getType(), written, permutation);
    return success();
  }
};

} // namespace

void gridloom::populateRaiseUpdatePatterns(RewritePatternSet &patterns) {
  patterns.add<RaiseRowUpdate, ScatterBeforeTranspose>(patterns.getContext());
}
