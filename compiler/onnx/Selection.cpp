//===- Selection.cpp - operators that pick elements ----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/DataLengths.h"
#include "compiler/onnx/OpTable.h"
#include "passes/simplify/Folding.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::onnx_import;

/// Negative indices count from the end.
static Value makePositive(Node &node, Value indices, int64_t size) {
  Value wrapped = node.binary<loom::AddOp>(indices, static_cast<double>(size));
  return node.select(node.compare(loom::Direction::LT, indices, 0.0), wrapped, indices);
}

/// The least and the largest of constant values or those of an iota; nothing for others.
static std::optional<std::pair<int64_t, int64_t>> getKnownRange(Value value) {
  while (isa_and_nonnull<loom::ReshapeOp, loom::BroadcastOp, loom::ConvertOp, loom::TransposeOp>(
      value.getDefiningOp()))
    value = value.getDefiningOp()->getOperand(0);
  if (auto iota = value.getDefiningOp<loom::IotaOp>())
    return std::pair<int64_t, int64_t>(
        0, cast<RankedTensorType>(iota.getType()).getDimSize(iota.getDim()) - 1);
  auto constant = value.getDefiningOp<loom::ConstantOp>();
  if (!constant || loom::getByteSize(constant.getType()) > kMaxReadBytes)
    return std::nullopt;
  FailureOr<loom::HostTensor> tensor =
      loom::HostTensor::fromAttribute(cast<ElementsAttr>(constant.getValue()));
  if (failed(tensor) || tensor->getNumElements() == 0)
    return std::nullopt;
  std::vector<int64_t> values = tensor->toInts();
  auto [least, most] = std::minmax_element(values.begin(), values.end());
  return std::pair(*least, *most);
}

/// Whether a sum combines every element of one side with every element of the other.
static bool addsEachToEach(loom::AddOp op) {
  llvm::SmallDenseSet<int64_t> left = getVaryingDims(op.getLhs());
  return llvm::none_of(getVaryingDims(op.getRhs()),
                       [&](int64_t dim) { return left.contains(dim); });
}

/// If `indices` are an input, or an input plus known numbers, records that it indexes a dimension
/// of `size`, for --check-indices. Indices that are computed otherwise, or only some of an input's
/// elements, are not recorded: an element that no lookup reads may be anything.
static void declareIndices(Node &node, Value indices, int64_t size) {
  int64_t first = 0, last = 0;
  while (Operation *op = indices.getDefiningOp()) {
    if (isa<loom::ReshapeOp, loom::BroadcastOp, loom::ConvertOp, loom::TransposeOp>(op)) {
      indices = op->getOperand(0);
      continue;
    }
    if (!isa<loom::AddOp>(op))
      return;
    auto left = getKnownRange(op->getOperand(0)), right = getKnownRange(op->getOperand(1));
    std::optional<std::pair<int64_t, int64_t>> added = left ? left : right;
    if (!added || added->first < 0 ||
        (added->first != added->second && !addsEachToEach(cast<loom::AddOp>(op))))
      return;
    first += added->first;
    last += added->second;
    indices = op->getOperand(left ? 1 : 0);
  }
  auto argument = cast<BlockArgument>(indices);
  auto function = dyn_cast<func::FuncOp>(argument.getOwner()->getParentOp());
  // The type of a body has no arguments while the body is imported.
  if (!function || argument.getArgNumber() >= function.getNumArguments() ||
      !function.getArgAttr(argument.getArgNumber(), loom::kName))
    return;
  if (last >= size)
    emitWarning(node.getLoc())
        << "the table has " << size << " rows, fewer than the " << last + 1
        << " positions that are counted from 0; ONNX Runtime refuses such sizes";
  Builder builder(node.getContext());
  unsigned number = argument.getArgNumber();
  auto known = function.getArgAttrOfType<DictionaryAttr>(number, loom::kIndices);
  auto get = [&](StringRef name) { return known.getAs<IntegerAttr>(name).getInt(); };
  if (known && get("size") - get("last") <= size - last)
    return;
  function.setArgAttr(
      number, loom::kIndices,
      builder.getDictionaryAttr({
          builder.getNamedAttr("first", builder.getI64IntegerAttr(first)),
          builder.getNamedAttr("last", builder.getI64IntegerAttr(last)),
          builder.getNamedAttr("node", builder.getStringAttr(loom::getNodeName(node.getLoc()))),
          builder.getNamedAttr("size", builder.getI64IntegerAttr(size)),
      }));
}

static LogicalResult importGather(Node &node) {
  Value x = node.operand(0), indices = node.operand(1);
  if (!x || !indices)
    return failure();
  auto axis = node.normalizeAxis(node.intAttribute("axis", 0), getTensorType(x).getRank());
  if (!axis)
    return failure();
  int64_t size = getShape(x)[*axis];
  if (std::optional<loom::HostTensor> known = node.constantOperand(1))
    for (int64_t index : known->toInts())
      if (index < -size || index >= size)
        return node.error() << "index " << index << " is outside of dimension " << *axis << " of "
                            << toString(getShape(x));
  declareIndices(node, indices, size);
  return node.setResult(node.gather(x, makePositive(node, indices, size), *axis));
}

/// Elements start, start + step, ... of `dim` before `end`; backwards if the step is negative.
static Value sliceDim(Node &node, Value x, int64_t dim, int64_t start, int64_t end, int64_t step) {
  int64_t size = getShape(x)[dim];
  if (size == 0)
    return x;
  // Bounds are clamped; the largest and smallest integers mean "to the end".
  auto clamp = [&](int64_t bound, int64_t low, int64_t high) {
    return std::clamp(bound < 0 && bound >= -size ? bound + size : bound, low, high);
  };
  if (step > 0) {
    start = clamp(start, 0, size);
    return node.slice(x, dim, start, std::max(start, clamp(end, 0, size)), std::min(step, size));
  }
  start = clamp(start, 0, size - 1);
  end = end < -size ? -1 : clamp(end, -1, size - 1);
  if (start <= end)
    return node.slice(x, dim, 0, 0);
  // Take the same elements forwards, then reverse them.
  int64_t stride = step < -size ? size : -step;
  int64_t last = start - (start - end - 1) / stride * stride;
  x = node.slice(x, dim, last, start + 1, stride);
  return x ? node.emit<loom::ReverseOp>(x.getType(), x, dim) : x;
}

/// Bounds are attributes up to version 9, operands since 10.
static LogicalResult importSlice(Node &node) {
  Value x = node.operand(0);
  auto starts = node.intsAttributeOrOperand("starts", 1);
  auto ends = node.intsAttributeOrOperand("ends", 2);
  auto axes = node.intsAttributeOrOperand("axes", 3);
  if (!x || !starts || !ends || !axes)
    return failure();
  if (!*starts || !*ends)
    return node.error() << "has no starts or no ends";
  size_t count = (*starts)->size();
  Dims steps(count, 1);
  if (node.hasOperand(4)) {
    std::optional<Dims> given = node.intsOperand(4, "steps");
    if (!given)
      return failure();
    steps = *given;
  }
  Dims dims = axes->value_or(llvm::to_vector(llvm::seq<int64_t>(0, count)));
  if ((*ends)->size() != count || steps.size() != count || dims.size() != count)
    return node.error() << count << " starts, " << (*ends)->size() << " ends, " << dims.size()
                        << " axes and " << steps.size() << " steps differ in number";
  if (!node.normalizeAxes(dims, getTensorType(x).getRank()))
    return failure();
  for (size_t i = 0; x && i < count; ++i) {
    if (steps[i] == 0)
      return node.error() << "step of axis " << dims[i] << " is 0";
    int64_t dim = *node.normalizeAxis(dims[i], getTensorType(x).getRank());
    x = sliceDim(node, x, dim, (**starts)[i], (**ends)[i], steps[i]);
  }
  return node.setResult(x);
}

/// Keeps the elements on diagonal k of the last two dimensions and on one side of it.
static LogicalResult importTrilu(Node &node) {
  Value x = node.operand(0);
  FailureOr<std::optional<double>> k = node.numberOperand(1, "k");
  if (!x || failed(k))
    return failure();
  if (getShape(x).size() < 2)
    return node.error() << "input " << toString(getShape(x)) << " has no diagonal";
  auto type =
      RankedTensorType::get(getShape(x).take_back(2), IntegerType::get(node.getContext(), 64));
  // Diagonals farther away have no elements, either.
  double offset = std::clamp<double>(k->value_or(0), -type.getDimSize(0), type.getDimSize(1));
  Value diagonal = node.binary<loom::AddOp>(node.iota(type, 0), offset);
  bool upper = node.intAttribute("upper", 1);
  Value keep =
      node.compare(upper ? loom::Direction::GE : loom::Direction::LE, node.iota(type, 1), diagonal);
  return node.setResult(node.select(keep, x, node.splatLike(x, 0)));
}

/// values[1] where the index along the new dimension is the operand's, else values[0].
static LogicalResult importOneHot(Node &node) {
  Value indices = node.operand(0), values = node.operand(2);
  FailureOr<std::optional<double>> depth = node.numberOperand(1, "depth");
  if (!indices || failed(depth) || !values)
    return failure();
  if (!*depth || **depth < 1 || **depth > 0x1p40 || getShape(values) != ArrayRef<int64_t>{2})
    return node.error() << "needs a positive depth and two values";
  auto classes = static_cast<int64_t>(**depth);
  int64_t rank = getTensorType(indices).getRank();
  auto axis = node.normalizeAxis(node.intAttribute("axis", -1), rank + 1);
  if (!axis)
    return failure();
  Value index = node.convert(indices, IntegerType::get(node.getContext(), 64));
  index = makePositive(node, index, classes);
  Dims shape(getShape(indices)), dims;
  shape.insert(shape.begin() + *axis, classes);
  for (int64_t i = 0; i < rank; ++i)
    dims.push_back(i < *axis ? i : i + 1);
  Value spread = node.broadcast(index, shape, dims);
  if (!spread)
    return failure();
  Value isOn = node.compare(loom::Direction::EQ, spread, node.iota(getTensorType(spread), *axis));
  auto value = [&](int64_t i) { return node.reshape(node.slice(values, 0, i, i + 1), {}); };
  return node.setResult(node.select(isOn, value(1), value(0)));
}

/// The index that `position`, possibly outside a dimension of `size`, reads.
static int64_t reflect(StringRef mode, int64_t position, int64_t size) {
  if (mode == "edge" || size == 1)
    return std::clamp<int64_t>(position, 0, size - 1);
  int64_t period = mode == "wrap" ? size : 2 * (size - 1);
  int64_t index = ((position % period) + period) % period;
  return index < size ? index : period - index;
}

static Value padDim(Node &node, Value x, int64_t dim, int64_t before, int64_t after, StringRef mode,
                    Value fill) {
  int64_t size = getShape(x)[dim];
  // Negative padding cuts.
  x = node.slice(x, dim, std::max<int64_t>(-before, 0), size - std::max<int64_t>(-after, 0));
  before = std::max<int64_t>(before, 0);
  after = std::max<int64_t>(after, 0);
  if (!x || (before == 0 && after == 0))
    return x;
  size = getShape(x)[dim];
  if (mode != "constant") {
    // The place that each element reads is computed here.
    if (size == 0) {
      node.error() << "dimension " << dim << " of " << toString(getShape(x))
                   << " has no elements to repeat in mode '" << mode << "'; pad with a constant";
      return {};
    }
    if (size > kMostTableEntries - before - after) {
      node.error() << "dimension " << dim << " would have " << size + before + after
                   << " elements, of at most " << kMostTableEntries << " in mode '" << mode
                   << "'; pad with a constant";
      return {};
    }
    Dims indices;
    for (int64_t i = -before; i < size + after; ++i)
      indices.push_back(reflect(mode, i, size));
    return node.gather(x, node.ints(indices), dim);
  }
  SmallVector<Value> parts;
  auto addFill = [&](int64_t count) {
    Dims shape(getShape(x));
    shape[dim] = count;
    if (count)
      parts.push_back(node.broadcast(fill, shape, {}));
  };
  addFill(before);
  parts.push_back(x);
  addFill(after);
  return node.concatenate(parts, dim);
}

/// Padding is an attribute up to version 10, an operand since 11.
static LogicalResult importPad(Node &node) {
  Value x = node.operand(0);
  auto pads = node.intsAttributeOrOperand("pads", 1);
  if (!x || !pads)
    return failure();
  int64_t rank = getTensorType(x).getRank();
  Dims axes = llvm::to_vector(llvm::seq<int64_t>(0, rank));
  if (node.hasOperand(3)) {
    std::optional<Dims> given = node.intsOperand(3, "axes");
    if (!given || !node.normalizeAxes(*given, rank))
      return failure();
    axes = *given;
  }
  if (!*pads || (*pads)->size() != 2 * axes.size())
    return node.error() << "needs two pads for each of " << axes.size() << " axes";
  std::string mode = node.stringAttribute("mode", "constant");
  if (mode != "constant" && mode != "reflect" && mode != "edge" && mode != "wrap")
    return node.error() << "mode '" << mode << "' is not one of constant, reflect, edge, wrap";
  Value fill = node.hasOperand(2)
                   ? node.reshape(node.operand(2), {})
                   : node.splat(RankedTensorType::get({}, getTensorType(x).getElementType()),
                                node.floatAttribute("value", 0));
  for (auto [i, axis] : llvm::enumerate(axes)) {
    int64_t dim = axis < 0 ? axis + rank : axis, size = getShape(x)[dim];
    int64_t before = (**pads)[i], after = (**pads)[i + axes.size()];
    bool isPossible = std::abs(before) < (1 << 30) && std::abs(after) < (1 << 30) &&
                      size + std::min<int64_t>(before, 0) + std::min<int64_t>(after, 0) >= 0 &&
                      (size > 0 || mode == "constant");
    if (!isPossible)
      return node.error() << "cannot pad dimension " << dim << " of " << toString(getShape(x))
                          << " by " << before << " and " << after;
    x = padDim(node, x, dim, before, after, mode, fill);
    if (!x)
      return failure();
  }
  return node.setResult(x);
}

ArrayRef<OpRule> onnx_import::getSelectionRules() {
  static constexpr OpRule rules[] = {
      {"Gather", 1, 28, importGather}, {"OneHot", 9, 28, importOneHot}, {"Pad", 2, 28, importPad},
      {"Slice", 1, 28, importSlice},   {"Trilu", 14, 28, importTrilu},
  };
  return rules;
}
