//===- Indexing.cpp - operators on indices and order ---------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/OpTable.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::onnx_import;

using dist::ReductionKind;

static Type getIndexType(Node &node) { return IntegerType::get(node.getContext(), 64); }

/// The dimension of x in attribute `name`, counted from the front.
static std::optional<int64_t> getAxis(Node &node, Value x, int64_t otherwise,
                                      StringRef name = "axis") {
  if (!x)
    return std::nullopt;
  return node.normalizeAxis(node.intAttribute(name, otherwise), getTensorType(x).getRank());
}

/// Indices as non-negative i64; negative ones count from the end. Known ones are checked.
static Value normalizeIndices(Node &node, unsigned operand, int64_t size) {
  Value indices = node.operand(operand);
  if (!indices)
    return {};
  if (std::optional<loom::HostTensor> known = node.constantOperand(operand))
    for (int64_t index : known->toInts())
      if (index < -size || index >= size) {
        node.error() << "index " << index << " is outside of a dimension of " << size;
        return {};
      }
  indices = node.convert(indices, getIndexType(node));
  Value wrapped = node.binary<loom::AddOp>(indices, static_cast<double>(size));
  return node.select(node.compare(loom::Direction::LT, indices, 0.0), wrapped, indices);
}

static Value gatherElements(Node &node, Value x, Value indices, int64_t dim) {
  if (!x || !indices)
    return {};
  auto type = getTensorType(indices).clone(getTensorType(x).getElementType());
  return node.emit<loom::GatherElementsOp>(type, x, indices, dim);
}

//===----------------------------------------------------------------------===//
// Gather and scatter
//===----------------------------------------------------------------------===//

/// Fails unless `indices` fit into `x` in all dimensions except `axis`.
static LogicalResult checkExtents(Node &node, Value x, Value indices, int64_t axis) {
  bool fits = getShape(x).size() == getShape(indices).size();
  for (size_t i = 0; fits && i < getShape(x).size(); ++i)
    fits = static_cast<int64_t>(i) == axis || getShape(indices)[i] <= getShape(x)[i];
  if (fits)
    return success();
  return node.error() << "indices " << toString(getShape(indices)) << " do not fit into "
                      << toString(getShape(x)) << " beside axis " << axis;
}

static LogicalResult importGatherElements(Node &node) {
  Value x = node.operand(0);
  auto axis = getAxis(node, x, 0);
  if (!axis)
    return failure();
  Value indices = normalizeIndices(node, 1, getShape(x)[*axis]);
  if (!indices || failed(checkExtents(node, x, indices, *axis)))
    return failure();
  for (int64_t i = 0, rank = getShape(x).size(); i < rank; ++i)
    if (i != *axis)
      x = node.slice(x, i, 0, getShape(indices)[i]);
  return node.setResult(gatherElements(node, x, indices, *axis));
}

/// The attribute `reduction`; nullopt for "none". Fails, with an error, if it is unknown.
static FailureOr<std::optional<ReductionKind>> getReductionKind(Node &node) {
  std::string name = node.stringAttribute("reduction", "none");
  auto kind = llvm::StringSwitch<std::optional<std::optional<ReductionKind>>>(name)
                  .Case("none", std::optional<ReductionKind>())
                  .Case("add", ReductionKind::Sum)
                  .Case("mul", ReductionKind::Prod)
                  .Case("max", ReductionKind::Max)
                  .Case("min", ReductionKind::Min)
                  .Default(std::nullopt);
  if (!kind)
    return node.error() << "reduction '" << name << "' is not one of none, add, mul, max, min";
  return *kind;
}

static Value scatter(Node &node, Value x, Value indices, Value updates, int64_t dim,
                     std::optional<ReductionKind> kind) {
  if (!x || !indices || !updates)
    return {};
  auto attr =
      kind ? dist::ReductionKindAttr::get(node.getContext(), *kind) : dist::ReductionKindAttr();
  return node.emit<loom::ScatterOp>(x.getType(), x, indices, updates, dim, attr);
}

/// Updates may cover a corner of the other dimensions: the rest is cut off, then joined again.
static Value scatterCorner(Node &node, Value x, Value indices, Value updates, int64_t axis,
                           std::optional<ReductionKind> kind) {
  for (int64_t i = 0, rank = getShape(x).size(); i < rank; ++i) {
    int64_t size = getShape(x)[i], part = getShape(updates)[i];
    if (i == axis || size == part)
      continue;
    Value corner = scatterCorner(node, node.slice(x, i, 0, part), indices, updates, axis, kind);
    return corner ? node.concatenate({corner, node.slice(x, i, part, size)}, i) : corner;
  }
  return scatter(node, x, indices, updates, axis, kind);
}

/// Also Scatter, its older name.
static LogicalResult importScatterElements(Node &node) {
  Value x = node.operand(0), updates = node.operand(2);
  auto axis = getAxis(node, x, 0);
  auto kind = getReductionKind(node);
  if (!axis || failed(kind) || failed(node.checkSameElementType(x, updates)))
    return failure();
  Value indices = normalizeIndices(node, 1, getShape(x)[*axis]);
  if (!indices || failed(checkExtents(node, x, indices, *axis)))
    return failure();
  if (getShape(indices) != getShape(updates))
    return node.error() << "indices " << toString(getShape(indices)) << " and updates "
                        << toString(getShape(updates)) << " differ in shape";
  return node.setResult(scatterCorner(node, x, indices, updates, *axis, *kind));
}

/// Tuples of indices [..., depth] into dimensions first, first + 1, ... of `shape`, as row-major
/// numbers of shape [...].
static Value linearize(Node &node, unsigned operand, ArrayRef<int64_t> shape, int64_t first) {
  Value tuples = node.operand(operand);
  if (!tuples)
    return {};
  int64_t last = getTensorType(tuples).getRank() - 1, depth = getShape(tuples)[last];
  Dims kept(getShape(tuples).drop_back());
  Value number = node.splat(RankedTensorType::get(kept, getIndexType(node)), 0);
  for (int64_t i = 0; i < depth; ++i) {
    int64_t size = shape[first + i];
    Value index = node.reshape(node.slice(tuples, last, i, i + 1), kept);
    index = node.convert(index, getIndexType(node));
    Value wrapped = node.binary<loom::AddOp>(index, static_cast<double>(size));
    index = node.select(node.compare(loom::Direction::LT, index, 0.0), wrapped, index);
    number = node.binary<loom::AddOp>(
        node.binary<loom::MultiplyOp>(number, static_cast<double>(size)), index);
  }
  return number;
}

/// Fails unless every known tuple of indices is within the dimensions from `first` on.
static LogicalResult checkTuples(Node &node, unsigned operand, ArrayRef<int64_t> shape,
                                 int64_t first) {
  Value tuples = node.operand(operand);
  if (!tuples)
    return failure();
  int64_t rank = shape.size();
  if (getShape(tuples).empty() || getShape(tuples).back() + first > rank)
    return node.error() << "indices " << toString(getShape(tuples)) << " do not index "
                        << toString(shape) << " from dimension " << first << " on";
  std::optional<loom::HostTensor> known = node.constantOperand(operand);
  if (!known)
    return success();
  for (auto [i, index] : llvm::enumerate(known->toInts())) {
    int64_t size = shape[first + static_cast<int64_t>(i) % getShape(tuples).back()];
    if (index < -size || index >= size)
      return node.error() << "index " << index << " is outside of a dimension of " << size;
  }
  return success();
}

static int64_t countIn(ArrayRef<int64_t> shape) { return loom::countElements(shape); }

/// Collapses the dimensions that tuples index into one, of which each update is a slice.
static LogicalResult importScatterND(Node &node) {
  Value x = node.operand(0), updates = node.operand(2);
  auto kind = getReductionKind(node);
  if (failed(kind) || failed(node.checkSameElementType(x, updates)) ||
      failed(checkTuples(node, 1, getShape(x), 0)))
    return failure();
  Value tuples = node.operand(1);
  int64_t depth = getShape(tuples).back(), count = countIn(getShape(tuples).drop_back());
  Dims shape(getShape(x)), expected(getShape(tuples).drop_back());
  llvm::append_range(expected, ArrayRef(shape).drop_front(depth));
  if (getShape(updates) != ArrayRef<int64_t>(expected))
    return node.error() << "updates are " << toString(getShape(updates)) << ", expected "
                        << toString(expected);
  // Dimensions that are not indexed stay, so that they can be sharded.
  Dims whole{countIn(ArrayRef(shape).take_front(depth))}, part{count};
  for (int64_t size : ArrayRef(shape).drop_front(depth)) {
    whole.push_back(size);
    part.push_back(size);
  }
  Value indices = node.reshape(linearize(node, 1, shape, 0), {count});
  Value result =
      scatter(node, node.reshape(x, whole), indices, node.reshape(updates, part), 0, *kind);
  return node.setResult(node.reshape(result, shape));
}

/// Collapses batches and the dimensions that tuples index into one, and gathers its rows.
static LogicalResult importGatherND(Node &node) {
  Value x = node.operand(0), tuples = node.operand(1);
  int64_t batches = node.intAttribute("batch_dims", 0);
  if (!x || !tuples)
    return failure();
  Dims shape(getShape(x));
  int64_t tupleRank = getShape(tuples).size();
  bool isPossible = batches >= 0 && batches < std::max<int64_t>(tupleRank, 1) &&
                    batches <= static_cast<int64_t>(shape.size()) &&
                    getShape(tuples).take_front(batches) == ArrayRef(shape).take_front(batches);
  if (!isPossible)
    return node.error() << batches << " batch dimensions are not common to " << toString(shape)
                        << " and " << toString(getShape(tuples));
  if (failed(checkTuples(node, 1, shape, batches)))
    return failure();
  int64_t depth = getShape(tuples).back() + batches, batch = 1, rows = 1;
  for (int64_t size : ArrayRef(shape).take_front(batches))
    batch *= size;
  for (int64_t size : ArrayRef(shape).slice(batches, depth - batches))
    rows *= size;
  Dims result(getShape(tuples).drop_back());
  llvm::append_range(result, ArrayRef(shape).drop_front(depth));
  int64_t inner = countIn(ArrayRef(shape).drop_front(depth));
  int64_t count = batch == 0 ? 0 : countIn(getShape(tuples).drop_back()) / batch;
  Value indices = node.reshape(linearize(node, 1, shape, batches), {batch, count});
  if (batch != 1) {
    auto type = RankedTensorType::get({batch, count}, getIndexType(node));
    Value start = node.binary<loom::MultiplyOp>(node.iota(type, 0), static_cast<double>(rows));
    indices = node.binary<loom::AddOp>(indices, start);
  }
  Value table = node.reshape(x, {batch * rows, inner});
  Value taken = node.gather(table, node.reshape(indices, {batch * count}), 0);
  return node.setResult(node.reshape(taken, result));
}

/// Writes a range per batch into a cache, at most once around it.
static LogicalResult importTensorScatter(Node &node) {
  Value cache = node.operand(0), updates = node.operand(1);
  auto axis = getAxis(node, cache, -2);
  if (!axis || failed(node.checkSameElementType(cache, updates)))
    return failure();
  Dims expected(getShape(cache));
  if (getShape(updates).size() == expected.size())
    expected[*axis] = std::min(getShape(updates)[*axis], getShape(cache)[*axis]);
  if (getShape(updates) != ArrayRef<int64_t>(expected) || *axis == 0)
    return node.error() << "updates " << toString(getShape(updates)) << " do not fit into "
                        << toString(getShape(cache)) << " along axis " << *axis;
  std::string mode = node.stringAttribute("mode", "linear");
  if (mode != "linear" && mode != "circular")
    return node.error() << "mode '" << mode << "' is neither linear nor circular";
  // One range for all batches is written as whole rows.
  bool isOne = !node.hasOperand(2) || expected[0] == 1;
  Dims placed = isOne ? Dims{expected[*axis]} : expected;
  Value places = node.iota(RankedTensorType::get(placed, getIndexType(node)), isOne ? 0 : *axis);
  if (node.hasOperand(2)) {
    Value starts = node.convert(node.operand(2), getIndexType(node));
    if (getShape(starts) != ArrayRef<int64_t>{expected[0]})
      return node.error() << "write_indices are " << toString(getShape(starts)) << ", expected "
                          << toString({expected[0]});
    places = node.binary<loom::AddOp>(places, node.broadcast(starts, placed, {0}));
  }
  if (mode == "circular")
    places = node.binary<loom::RemainderOp>(places, static_cast<double>(getShape(cache)[*axis]));
  return node.setResult(scatter(node, cache, places, updates, *axis, std::nullopt));
}

//===----------------------------------------------------------------------===//
// Known positions
//===----------------------------------------------------------------------===//

/// Cuts or pads each axis alike on both sides; of an odd number the end gets one more.
static LogicalResult importCenterCropPad(Node &node) {
  Value x = node.operand(0);
  std::optional<Dims> sizes = node.intsOperand(1, "shape");
  if (!x || !sizes)
    return failure();
  int64_t rank = getTensorType(x).getRank();
  Dims axes = llvm::to_vector<6>(llvm::seq<int64_t>(0, rank));
  if (std::optional<Dims> given = node.intsAttribute("axes")) {
    if (!node.normalizeAxes(*given, rank))
      return failure();
    axes = *given;
  }
  if (sizes->size() != axes.size())
    return node.error() << "has " << sizes->size() << " sizes for " << axes.size() << " axes";
  for (auto [axis, target] : llvm::zip_equal(axes, *sizes)) {
    int64_t dim = axis < 0 ? axis + rank : axis, size = getShape(x)[dim];
    if (target < 0)
      return node.error() << "size " << target << " of axis " << axis << " is negative";
    if (target <= size) {
      int64_t start = (size - target) / 2;
      x = node.slice(x, dim, start, start + target);
      continue;
    }
    SmallVector<Value> parts{x};
    auto zeros = [&](int64_t count) {
      Dims shape(getShape(parts[0]));
      shape[dim] = count;
      return node.splat(getTensorType(x).clone(shape), 0);
    };
    int64_t before = (target - size) / 2, after = target - size - before;
    parts.push_back(zeros(after));
    if (before > 0 && parts.back()) // one error is enough
      parts.insert(parts.begin(), zeros(before));
    x = node.concatenate(parts, dim);
    if (!x)
      return failure();
  }
  return node.setResult(x);
}

/// Reverses the first lengths[batch] places of the time axis.
static LogicalResult importReverseSequence(Node &node) {
  Value x = node.operand(0), lengths = node.operand(1);
  auto batch = getAxis(node, x, 1, "batch_axis"), time = getAxis(node, x, 0, "time_axis");
  if (!x || !lengths || !batch || !time)
    return failure();
  if (*batch == *time || getShape(lengths) != ArrayRef<int64_t>{getShape(x)[*batch]})
    return node.error() << "sequence_lens " << toString(getShape(lengths))
                        << " do not fit batch axis " << *batch << " of " << toString(getShape(x));
  Dims shape(getShape(x));
  Value place = node.iota(RankedTensorType::get(shape, getIndexType(node)), *time);
  Value length = node.broadcast(node.convert(lengths, getIndexType(node)), shape, {*batch});
  Value mirrored = node.binary<loom::SubtractOp>(node.binary<loom::SubtractOp>(length, 1.0), place);
  Value isInside = node.compare(loom::Direction::LT, place, length);
  Value indices = node.select(isInside, mirrored, place);
  return node.setResult(gatherElements(node, x, indices, *time));
}

//===----------------------------------------------------------------------===//
// Order and running values
//===----------------------------------------------------------------------===//

static Value argReduce(Node &node, Value x, ReductionKind kind, int64_t dim, bool last) {
  if (!x)
    return {};
  if (getShape(x)[dim] == 0) {
    node.error() << "axis " << dim << " of " << toString(getShape(x)) << " is empty";
    return {};
  }
  Dims shape(getShape(x));
  shape.erase(shape.begin() + dim);
  return node.emit<loom::ArgReduceOp>(RankedTensorType::get(shape, getIndexType(node)), x, kind,
                                      dim, last);
}

template <ReductionKind kind> static LogicalResult importArgReduce(Node &node) {
  Value x = node.operand(0);
  auto axis = getAxis(node, x, 0);
  if (!axis)
    return failure();
  Value places = argReduce(node, x, kind, *axis, node.intAttribute("select_last_index", 0));
  Dims kept(getShape(x));
  kept[*axis] = 1;
  return node.setResult(node.intAttribute("keepdims", 1) ? node.reshape(places, kept) : places);
}

/// 1 at the first largest element of the axis, else 0. Up to version 12 all dimensions from the
/// axis on are one.
static LogicalResult importHardmax(Node &node) {
  Value x = node.operand(0);
  bool joins = node.getOpset() < 13;
  auto axis = getAxis(node, x, joins ? 1 : -1);
  if (!axis)
    return failure();
  Dims shape(getShape(x));
  int64_t dim = *axis;
  Value rows = x;
  if (joins) {
    rows = node.reshape(
        x, {countIn(ArrayRef(shape).take_front(dim)), countIn(ArrayRef(shape).drop_front(dim))});
    dim = 1;
  }
  if (!rows)
    return failure();
  Value place = argReduce(node, rows, ReductionKind::Max, dim, /*last=*/false);
  if (!place)
    return failure();
  Dims kept = llvm::to_vector<6>(llvm::seq<int64_t>(0, getTensorType(rows).getRank()));
  kept.erase(kept.begin() + dim);
  Value index = node.iota(getTensorType(rows).clone(getIndexType(node)), dim);
  Value isPeak =
      node.compare(loom::Direction::EQ, index, node.broadcast(place, getShape(rows), kept));
  Value result = node.convert(isPeak, getTensorType(x).getElementType());
  return node.setResult(node.reshape(result, shape));
}

/// The number of elements is an attribute up to version 9, an operand since 10.
static LogicalResult importTopK(Node &node) {
  Value x = node.operand(0);
  auto axis = getAxis(node, x, -1);
  if (!axis)
    return failure();
  int64_t count = node.intAttribute("k", 0);
  if (node.getOpset() >= 10) {
    std::optional<Dims> given = node.intsOperand(1, "K");
    if (!given || given->size() != 1)
      return given ? node.error() << "K has " << given->size() << " elements, expected 1"
                   : failure();
    count = given->front();
  }
  if (count < 0 || count > getShape(x)[*axis])
    return node.error() << "cannot take " << count << " of the " << getShape(x)[*axis]
                        << " elements along axis " << *axis;
  Dims shape(getShape(x));
  shape[*axis] = count;
  Value places = node.emit<loom::ArgsortOp>(RankedTensorType::get(shape, getIndexType(node)), x,
                                            *axis, node.intAttribute("largest", 1) != 0);
  if (!places ||
      (node.hasResult(0) && failed(node.setResult(0, gatherElements(node, x, places, *axis)))))
    return failure();
  return node.hasResult(1) ? node.setResult(1, places) : success();
}

template <ReductionKind kind> static LogicalResult importCumulative(Node &node) {
  Value x = node.operand(0);
  std::optional<Dims> given = node.intsOperand(1, "axis");
  if (!x || !given)
    return failure();
  if (given->size() != 1)
    return node.error() << "axis has " << given->size() << " elements, expected 1";
  auto axis = node.normalizeAxis(given->front(), getTensorType(x).getRank());
  if (!axis)
    return failure();
  return node.setResult(node.emit<loom::CumulativeOp>(x.getType(), x, kind, *axis,
                                                      node.intAttribute("exclusive", 0) != 0,
                                                      node.intAttribute("reverse", 0) != 0));
}

ArrayRef<OpRule> onnx_import::getIndexingRules() {
  static constexpr OpRule rules[] = {
      {"ArgMax", 1, 28, importArgReduce<ReductionKind::Max>},
      {"ArgMin", 1, 28, importArgReduce<ReductionKind::Min>},
      {"CenterCropPad", 18, 28, importCenterCropPad},
      {"CumProd", 26, 28, importCumulative<ReductionKind::Prod>},
      {"CumSum", 11, 28, importCumulative<ReductionKind::Sum>},
      {"GatherElements", 11, 28, importGatherElements},
      {"GatherND", 11, 28, importGatherND},
      {"Hardmax", 1, 28, importHardmax},
      {"ReverseSequence", 10, 28, importReverseSequence},
      {"Scatter", 9, 10, importScatterElements},
      {"ScatterElements", 11, 28, importScatterElements},
      {"ScatterND", 11, 28, importScatterND},
      {"TensorScatter", 24, 28, importTensorScatter},
      {"TopK", 1, 28, importTopK},
  };
  return rules;
}
