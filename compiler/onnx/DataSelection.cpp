//===- DataSelection.cpp - operators whose result sizes depend on data ----===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The number of elements kept is known only at run time; the result has room for the maximum. See
// DataLengths.h.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/ControlFlow.h"
#include "compiler/onnx/OpTable.h"

#include <limits>

using namespace mlir;
using namespace gridloom;
using namespace gridloom::onnx_import;

using dist::ReductionKind;

static RankedTensorType getIndices(Node &node, ArrayRef<int64_t> shape) {
  return RankedTensorType::get(shape, IntegerType::get(node.getContext(), 64));
}

static Value scatterRows(Node &node, Value x, Value places, Value rows, bool adds = false) {
  if (!x || !places || !rows)
    return {};
  auto kind = adds ? dist::ReductionKindAttr::get(node.getContext(), ReductionKind::Sum)
                   : dist::ReductionKindAttr();
  return node.emit<loom::ScatterOp>(x.getType(), x, places, rows, 0, kind);
}

static Value accumulate(Node &node, Value x, bool exclusive) {
  return x ? node.emit<loom::CumulativeOp>(x.getType(), x, ReductionKind::Sum, 0, exclusive,
                                           /*reverse=*/false)
           : x;
}

namespace {
/// Packs the rows to keep, of n, to the front, in order.
struct Packing {
  Value places; ///< i64 [n], n for those that are not kept
  Value count;  ///< scalar i64

  /// `rows`, [n, ...], packed, and zeros after them.
  Value pack(Node &node, Value rows) const {
    return scatterRows(node, node.splatLike(rows, 0), places, rows);
  }
};
} // namespace

/// `keep` is booleans [n].
static Packing makePacking(Node &node, Value keep) {
  if (!keep)
    return {};
  RankedTensorType type = getIndices(node, getShape(keep));
  Value ones = node.convert(keep, type.getElementType());
  Value places = node.select(keep, accumulate(node, ones, /*exclusive=*/true),
                             node.splat(type, static_cast<double>(type.getNumElements())));
  return {places, node.reduce(ones, ReductionKind::Sum, {0}, /*keepDims=*/false)};
}

//===----------------------------------------------------------------------===//
// NonZero and Compress
//===----------------------------------------------------------------------===//

/// The places of known elements, as a table; of a scalar there are only columns, [0, N].
static Value findKnown(Node &node, const loom::HostTensor &x) {
  ArrayRef<int64_t> shape = x.getShape();
  std::vector<Dims> places(shape.size());
  SmallVector<int64_t> strides = loom::getRowMajorStrides(shape);
  int64_t rank = shape.size(), count = 0;
  for (auto [i, value] : llvm::enumerate(x.toDoubles())) {
    if (value == 0)
      continue;
    ++count;
    for (int64_t dim = 0; dim < rank; ++dim)
      places[dim].push_back(static_cast<int64_t>(i) / strides[dim] % shape[dim]);
  }
  std::vector<int64_t> rows;
  for (const Dims &row : places)
    llvm::append_range(rows, row);
  return node.constant(loom::HostTensor::fromInts(loom::ElementKind::I64, {rank, count}, rows));
}

static LogicalResult importNonZero(Node &node) {
  Value x = node.operand(0);
  if (!x)
    return failure();
  if (std::optional<loom::HostTensor> known = node.constantOperand(0))
    return node.setResult(findKnown(node, *known));
  Dims shape(getShape(x));
  int64_t rank = shape.size(), count = loom::countElements(shape);
  if (rank == 0)
    return node.error() << "input is a scalar computed at run time; give it a dimension";
  bool isBool = getTensorType(x).getElementType().isInteger(1);
  Value isKept = isBool ? x : node.compare(loom::Direction::NE, x, 0.0);
  Packing packing = makePacking(node, node.reshape(isKept, {count}));
  SmallVector<Value> indices;
  for (int64_t dim = 0; dim < rank; ++dim)
    indices.push_back(node.reshape(node.iota(getIndices(node, shape), dim), {count, 1}));
  Value rows = packing.pack(node, node.concatenate(indices, 1));
  return setCounted(node, 0, node.transpose(rows, {1, 0}), 1, packing.count);
}

/// The attribute axis. Without it flattens `x` and returns 0.
static std::optional<int64_t> getAxisOrFlatten(Node &node, Value &x) {
  if (node.hasAttribute("axis"))
    return node.normalizeAxis(node.intAttribute("axis", 0), getTensorType(x).getRank());
  x = node.reshape(x, {getTensorType(x).getNumElements()});
  return 0;
}

/// A condition may be shorter than the axis; the elements beyond its end are dropped.
static LogicalResult importCompress(Node &node) {
  Value x = node.operand(0), condition = node.operand(1);
  if (!x || !condition)
    return failure();
  std::optional<int64_t> dim = getAxisOrFlatten(node, x);
  if (!dim)
    return failure();
  if (getTensorType(condition).getRank() != 1 ||
      !getTensorType(condition).getElementType().isInteger(1))
    return node.error() << "condition is " << condition.getType() << ", expected booleans [n]";
  int64_t count = std::min(getShape(x)[*dim], getShape(condition)[0]);
  if (std::optional<loom::HostTensor> known = node.constantOperand(1)) {
    Dims taken;
    for (auto [i, takes] : llvm::enumerate(known->toInts()))
      if (takes && static_cast<int64_t>(i) < count)
        taken.push_back(i);
    return node.setResult(node.gather(x, node.ints(taken), *dim));
  }
  Packing packing = makePacking(node, node.slice(condition, 0, 0, count));
  Value indices = packing.pack(node, node.iota(getIndices(node, {count}), 0));
  return setCounted(node, 0, node.gather(x, indices, *dim), *dim, packing.count);
}

//===----------------------------------------------------------------------===//
// Unique
//===----------------------------------------------------------------------===//

/// The stable order that sorts rows [n, m] by the first column, then the second, ...
static Value sortRows(Node &node, Value rows) {
  int64_t n = getShape(rows)[0], m = getShape(rows)[1];
  Value order;
  for (int64_t column = m; column-- > 0;) {
    Value keys = node.reshape(node.slice(rows, 1, column, column + 1), {n});
    if (order)
      keys = node.gather(keys, order, 0);
    Value step = keys ? node.emit<loom::ArgsortOp>(getIndices(node, {n}), keys, 0,
                                                   /*descending=*/false)
                      : Value();
    order = order ? node.gather(order, step, 0) : step;
  }
  return order;
}

/// Whether each of sorted rows [n, m] differs from the one before, [n].
static Value startsGroup(Node &node, Value rows) {
  int64_t n = getShape(rows)[0];
  auto type = RankedTensorType::get({1}, IntegerType::get(node.getContext(), 1));
  Value differs =
      node.compare(loom::Direction::NE, node.slice(rows, 0, 1, n), node.slice(rows, 0, 0, n - 1));
  differs = node.convert(differs, IntegerType::get(node.getContext(), 64));
  Value any = node.compare(loom::Direction::NE,
                           node.reduce(differs, ReductionKind::Sum, {1}, /*keepDims=*/false), 0.0);
  return node.concatenate({node.splat(type, 1), any}, 0);
}

namespace {
/// The distinct rows among n, each in the place of its group. All but `inverse` are padded.
struct Groups {
  Value rows;    ///< [n, m]
  Value firsts;  ///< where each is first, i64 [n]
  Value inverse; ///< the group of each row, i64 [n]
  Value sizes;   ///< i64 [n]
  Value count;   ///< scalar i64
};
} // namespace

static Groups findGroups(Node &node, Value rows) {
  int64_t n = getShape(rows)[0];
  RankedTensorType type = getIndices(node, {n});
  Value zeros = node.splat(type, 0), order = sortRows(node, rows);
  Value sorted = node.gather(rows, order, 0);
  if (!sorted)
    return {};
  Value starts = startsGroup(node, sorted);
  Value group = accumulate(node, node.convert(starts, type.getElementType()), /*exclusive=*/false);
  group = node.binary<loom::SubtractOp>(group, 1.0);
  Packing packing = makePacking(node, starts);
  return {packing.pack(node, sorted), packing.pack(node, order),
          scatterRows(node, zeros, order, group),
          scatterRows(node, zeros, group, node.splat(type, 1), /*adds=*/true), packing.count};
}

/// Sorts groups by where they are first rather than by their rows.
static Groups sortByFirst(Node &node, const Groups &groups) {
  if (!groups.firsts)
    return {};
  auto type = cast<RankedTensorType>(groups.firsts.getType());
  Value place = node.iota(type, 0),
        limit = node.splat(type, static_cast<double>(type.getDimSize(0)));
  // Padding comes last.
  Value keys =
      node.select(node.compare(loom::Direction::LT, place, groups.count), groups.firsts, limit);
  Value order = node.emit<loom::ArgsortOp>(type, keys, 0, /*descending=*/false);
  Value rank = scatterRows(node, node.splat(type, 0), order, place);
  auto sort = [&](Value x) { return node.gather(x, order, 0); };
  return {sort(groups.rows), sort(groups.firsts), node.gather(rank, groups.inverse, 0),
          sort(groups.sizes), groups.count};
}

static LogicalResult importUnique(Node &node) {
  constexpr int64_t kMaxColumns = 64; // each is a sort
  Value x = node.operand(0);
  if (!x)
    return failure();
  std::optional<int64_t> dim = getAxisOrFlatten(node, x);
  if (!dim)
    return failure();
  Dims order = llvm::to_vector<6>(llvm::seq<int64_t>(0, getTensorType(x).getRank()));
  order.erase(order.begin() + *dim);
  order.insert(order.begin(), *dim);
  Value turned = node.transpose(x, order);
  if (!turned)
    return failure();
  Dims shape(getShape(turned));
  int64_t n = shape[0], m = loom::countElements(ArrayRef(shape).drop_front());
  if (n == 0 || m == 0)
    return node.error() << "input " << toString(getShape(node.operand(0))) << " is empty";
  if (m > kMaxColumns)
    return node.error() << "compares slices of " << m << " elements, more than " << kMaxColumns;
  Groups groups = findGroups(node, node.reshape(turned, {n, m}));
  if (node.intAttribute("sorted", 1) == 0)
    groups = sortByFirst(node, groups);
  Dims back = llvm::to_vector<6>(llvm::seq<int64_t>(1, shape.size()));
  back.insert(back.begin() + *dim, 0);
  Value rows = node.transpose(node.reshape(groups.rows, shape), back);
  if (failed(setCounted(node, 0, rows, *dim, groups.count)) ||
      failed(setCounted(node, 1, groups.firsts, 0, groups.count)) ||
      failed(node.setResult(2, groups.inverse)))
    return failure();
  return setCounted(node, 3, groups.sizes, 0, groups.count);
}

//===----------------------------------------------------------------------===//
// NonMaxSuppression
//===----------------------------------------------------------------------===//

namespace {

/// Corners and areas of boxes, each [batch, n].
struct Boxes {
  Value top, left, bottom, right, area;

  SmallVector<Value> all() const { return {top, left, bottom, right, area}; }
};

/// The state of a suppression: in each iteration every class takes its best box and drops it and
/// those that overlap with it.
struct Suppression {
  int64_t batch, classes, n, most;

  /// Repeats x, whose dimensions are some of batch, class and box.
  Value spread(Emitter &emit, Value x, ArrayRef<int64_t> dims) const {
    return emit.broadcast(x, {batch, classes, n}, dims);
  }
  Value overlaps(Emitter &emit, const Boxes &boxes, Value best, Value threshold) const;
};

} // namespace

static Value isAbove(Emitter &emit, Value x, double number) {
  return emit.compare(loom::Direction::GT, x, number);
}

/// Whether each box overlaps with the best one of its class, [batch, classes], by more than the
/// threshold.
Value Suppression::overlaps(Emitter &emit, const Boxes &boxes, Value best, Value threshold) const {
  auto everywhere = [&](Value x) { return spread(emit, x, {0, 2}); };
  auto ofBest = [&](Value x) {
    auto type = getTensorType(x).clone(ArrayRef<int64_t>{batch, classes});
    return spread(emit, emit.emit<loom::GatherElementsOp>(type, x, best, 1), {0, 1});
  };
  auto common = [&](Value low, Value high) {
    return emit.binary<loom::SubtractOp>(
        emit.binary<loom::MinimumOp>(everywhere(high), ofBest(high)),
        emit.binary<loom::MaximumOp>(everywhere(low), ofBest(low)));
  };
  Value height = common(boxes.top, boxes.bottom), width = common(boxes.left, boxes.right);
  Value both = emit.binary<loom::MultiplyOp>(height, width);
  Value area = everywhere(boxes.area), bestArea = ofBest(boxes.area);
  Value either = emit.binary<loom::SubtractOp>(emit.binary<loom::AddOp>(area, bestArea), both);
  Value result = emit.compare(loom::Direction::GT, emit.binary<loom::DivideOp>(both, either),
                              emit.broadcast(threshold, {batch, classes, n}, {}));
  for (Value x : {height, width, area, bestArea, either})
    result = emit.binary<loom::AndOp>(result, isAbove(emit, x, 0));
  return result;
}

static Boxes readBoxes(Node &node, Value boxes) {
  int64_t batch = getShape(boxes)[0], n = getShape(boxes)[1];
  auto column = [&](int64_t i) { return node.reshape(node.slice(boxes, 2, i, i + 1), {batch, n}); };
  Value a = column(0), b = column(1), c = column(2), d = column(3);
  Boxes result;
  if (node.intAttribute("center_point_box", 0) != 0) {
    Value halfWidth = node.binary<loom::DivideOp>(c, 2.0),
          halfHeight = node.binary<loom::DivideOp>(d, 2.0);
    result.left = node.binary<loom::SubtractOp>(a, halfWidth);
    result.right = node.binary<loom::AddOp>(a, halfWidth);
    result.top = node.binary<loom::SubtractOp>(b, halfHeight);
    result.bottom = node.binary<loom::AddOp>(b, halfHeight);
  } else {
    result.top = node.binary<loom::MinimumOp>(a, c);
    result.bottom = node.binary<loom::MaximumOp>(a, c);
    result.left = node.binary<loom::MinimumOp>(b, d);
    result.right = node.binary<loom::MaximumOp>(b, d);
  }
  result.area =
      node.binary<loom::MultiplyOp>(node.binary<loom::SubtractOp>(result.bottom, result.top),
                                    node.binary<loom::SubtractOp>(result.right, result.left));
  return result;
}

/// Whether any score is left, a scalar.
static Value isAnyLeft(Emitter &emit, Value scores) {
  return isAbove(emit, emit.reduce(scores, ReductionKind::Max, {0, 1, 2}, /*keepDims=*/false),
                 -std::numeric_limits<double>::infinity());
}

/// One iteration. Takes its number, the remaining scores and the boxes picked so far, [batch,
/// classes, most]; returns whether another follows, then their next values.
static SmallVector<Value> suppressOnce(Emitter &emit, const Suppression &shape, ValueRange carried,
                                       const Boxes &boxes, Value threshold) {
  constexpr double kGone = -std::numeric_limits<double>::infinity();
  Value index = carried[0], scores = carried[1], picks = carried[2];
  Type i64 = getTensorType(index).getElementType();
  auto type = RankedTensorType::get({shape.batch, shape.classes}, i64);
  Value best = emit.emit<loom::ArgReduceOp>(type, scores, ReductionKind::Max, 2, /*last=*/false);
  Value left =
      isAbove(emit, emit.reduce(scores, ReductionKind::Max, {2}, /*keepDims=*/false), kGone);
  Value pick = emit.select(left, best, emit.splat(type, -1));
  Value column = emit.reshape(pick, {shape.batch, shape.classes, 1});
  picks = emit.emit<loom::ScatterOp>(picks.getType(), picks, emit.reshape(index, {1}), column, 2,
                                     dist::ReductionKindAttr());
  Value place = emit.iota(getTensorType(scores).clone(i64), 2);
  Value isBest = emit.compare(loom::Direction::EQ, place, shape.spread(emit, best, {0, 1}));
  Value drops = emit.binary<loom::OrOp>(isBest, shape.overlaps(emit, boxes, best, threshold));
  scores = emit.select(drops, emit.splatLike(scores, kGone), scores);
  Value next = emit.binary<loom::AddOp>(index, 1.0);
  Value more = emit.compare(loom::Direction::LT, next, static_cast<double>(shape.most));
  return {emit.binary<loom::AndOp>(more, isAnyLeft(emit, scores)), next, scores, picks};
}

/// Builds the loop over iterations. Returns the boxes picked, -1 if there are fewer than `most`.
static Value suppress(Node &node, const Suppression &shape, const Boxes &boxes, Value scores,
                      Value threshold) {
  Value picks = node.splat(getIndices(node, {shape.batch, shape.classes, shape.most}), -1);
  SmallVector<Value> starts{node.reshape(node.ints({0}), {}), scores, picks};
  SmallVector<Value> captures = boxes.all();
  captures.push_back(threshold);
  Value first = isAnyLeft(node, scores);
  if (!first || !llvm::all_of(captures, [](Value value) { return bool(value); }))
    return {};
  Body body{node.getImporter().createBody(node.getLoc(), "suppress"), {}};
  Block &block = body.getBlock();
  for (Value value : llvm::concat<Value>(starts, captures))
    block.addArgument(value.getType(), node.getLoc());
  OpBuilder inside(node.getContext());
  inside.setInsertionPointToEnd(&block);
  Emitter emit(inside, node.getLoc(), node.getName());
  auto arguments = block.getArguments();
  Boxes read{arguments[3], arguments[4], arguments[5], arguments[6], arguments[7]};
  SmallVector<Value> results =
      suppressOnce(emit, shape, ValueRange(arguments.take_front(3)), read, arguments[8]);
  body.finish(results, {"iteration", "scores", "picks"},
              {"condition", "iteration", "scores", "picks"});
  auto loop = loom::WhileOp::create(node.getBuilder(), node.getLoc(), ValueRange(starts).getTypes(),
                                    FlatSymbolRefAttr::get(body.function), first, starts, captures,
                                    node.getBuilder().getI64IntegerAttr(shape.most));
  return loop.getResults()[2];
}

/// Checks the operands and returns their sizes; nothing, with an error, if they do not fit.
static std::optional<Suppression> readSuppression(Node &node) {
  Value boxes = node.operand(0), scores = node.operand(1);
  FailureOr<std::optional<double>> most = node.numberOperand(2, "max_output_boxes_per_class");
  if (failed(most) || failed(node.checkSameElementType(boxes, scores)))
    return std::nullopt;
  ArrayRef<int64_t> box = getShape(boxes), score = getShape(scores);
  if (box.size() != 3 || box[2] != 4 || score.size() != 3 || score[0] != box[0] ||
      score[2] != box[1] || !isa<FloatType>(getTensorType(boxes).getElementType())) {
    node.error() << "boxes " << boxes.getType() << " and scores " << scores.getType()
                 << " are not floats [batch, n, 4] and [batch, classes, n]";
    return std::nullopt;
  }
  double count = std::clamp(most->value_or(0), 0.0, static_cast<double>(box[1]));
  return Suppression{score[0], score[1], score[2], static_cast<int64_t>(count)};
}

/// Operand `index`, one number known at compile time or not, in the type of `like`; 0 if absent.
/// Null, with an error, if it has more elements.
static Value readThreshold(Node &node, unsigned index, StringRef name, Value like) {
  Type type = getTensorType(like).getElementType();
  if (!node.hasOperand(index))
    return node.splat(RankedTensorType::get({}, type), 0);
  return node.convert(toScalar(node, node.operand(index), name), type);
}

static LogicalResult importNonMaxSuppression(Node &node) {
  std::optional<Suppression> shape = readSuppression(node);
  if (!shape)
    return failure();
  Value scores = node.operand(1), threshold = readThreshold(node, 3, "iou_threshold", scores);
  Value least = readThreshold(node, 4, "score_threshold", scores);
  constexpr double kGone = -std::numeric_limits<double>::infinity();
  if (!node.hasOperand(4))
    least = node.splatLike(least, kGone);
  int64_t count = shape->batch * shape->classes * shape->most;
  if (!threshold || !least)
    return failure();
  if (count == 0)
    return node.setResult(node.splat(getIndices(node, {0, 3}), 0));
  // Boxes that are not candidates, including NaN, have no score.
  Value isCandidate =
      node.compare(loom::Direction::GT, scores, node.broadcast(least, getShape(scores), {}));
  scores = node.select(isCandidate, scores, node.splatLike(scores, kGone));
  Value picks = suppress(node, *shape, readBoxes(node, node.operand(0)), scores, threshold);
  if (!picks)
    return failure();
  auto type = getTensorType(picks);
  Value rows = node.concatenate({node.reshape(node.iota(type, 0), {count, 1}),
                                 node.reshape(node.iota(type, 1), {count, 1}),
                                 node.reshape(picks, {count, 1})},
                                1);
  Packing packing =
      makePacking(node, node.compare(loom::Direction::GE, node.reshape(picks, {count}), 0.0));
  return setCounted(node, 0, packing.pack(node, rows), 0, packing.count);
}

ArrayRef<OpRule> onnx_import::getDataSelectionRules() {
  static constexpr OpRule rules[] = {
      {"Compress", 9, 28, importCompress},
      {"NonMaxSuppression", 10, 28, importNonMaxSuppression},
      {"NonZero", 9, 28, importNonZero},
      {"Unique", 11, 28, importUnique},
  };
  return rules;
}
