//===- Shape.cpp - operators that change a tensor's shape ----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/DataLengths.h"
#include "compiler/onnx/OpTable.h"

#include <numeric>

using namespace mlir;
using namespace gridloom;
using namespace gridloom::onnx_import;

/// The new shape, in which 0 keeps a dimension and -1 stands for the remaining size.
static LogicalResult importReshape(Node &node) {
  Value x = node.operand(0);
  std::optional<Dims> shape = node.intsOperand(1, "shape");
  if (!x || !shape)
    return failure();
  ArrayRef<int64_t> from = getShape(x);
  Dims wanted = *shape;
  bool keepsZero = node.intAttribute("allowzero", 0);
  std::optional<size_t> open;
  for (auto [i, size] : llvm::enumerate(*shape)) {
    if (size == 0 && !keepsZero) {
      if (i >= from.size())
        return node.error() << "shape " << toString(wanted) << " keeps dimension " << i
                            << " of an input of rank " << from.size();
      size = from[i];
    } else if (size == -1 && !open) {
      open = i;
      size = 1;
    } else if (size < 0) {
      return node.error() << "shape " << toString(wanted) << " has "
                          << (size == -1 ? "two unknown dimensions" : "a negative size");
    }
  }
  auto fails = [&] {
    return node.error() << "cannot reshape " << toString(from) << " to " << toString(wanted);
  };
  if (!isReasonable(*shape))
    return fails();
  if (open) {
    int64_t known = loom::countElements(*shape);
    if (known == 0 || loom::countElements(from) % known != 0)
      return fails();
    (*shape)[*open] = loom::countElements(from) / known;
  }
  if (loom::countElements(*shape) != loom::countElements(from))
    return fails();
  return node.setResult(node.reshape(x, *shape));
}

static LogicalResult importFlatten(Node &node) {
  Value x = node.operand(0);
  if (!x)
    return failure();
  int64_t rank = getTensorType(x).getRank(), axis = node.intAttribute("axis", 1);
  if (axis < -rank || axis > rank)
    return node.error() << "axis " << axis << " is not in [" << -rank << ", " << rank << "]";
  axis = axis < 0 ? axis + rank : axis;
  ArrayRef<int64_t> shape = getShape(x);
  return node.setResult(node.reshape(x, {loom::countElements(shape.take_front(axis)),
                                         loom::countElements(shape.drop_front(axis))}));
}

static LogicalResult importSqueeze(Node &node) {
  Value x = node.operand(0);
  auto given = node.intsAttributeOrOperand("axes", 1);
  if (!x || !given)
    return failure();
  ArrayRef<int64_t> shape = getShape(x);
  std::optional<Dims> axes;
  if (*given && !(axes = node.normalizeAxes(**given, shape.size())))
    return failure();
  Dims result;
  for (auto [i, size] : llvm::enumerate(shape)) {
    bool goes = axes ? llvm::is_contained(*axes, i) : size == 1;
    if (goes && size != 1)
      return node.error() << "dimension " << i << " of " << toString(shape)
                          << " is not 1 and cannot be squeezed";
    if (!goes)
      result.push_back(size);
  }
  return node.setResult(node.reshape(x, result));
}

static LogicalResult importUnsqueeze(Node &node) {
  Value x = node.operand(0);
  auto given = node.intsAttributeOrOperand("axes", 1);
  if (!x || !given)
    return failure();
  if (!*given)
    return node.error() << "has no axes";
  int64_t rank = getTensorType(x).getRank() + (*given)->size();
  std::optional<Dims> axes = node.normalizeAxes(**given, rank);
  if (!axes)
    return failure();
  Dims result;
  ArrayRef<int64_t> rest = getShape(x);
  for (int64_t i = 0; i < rank; ++i) {
    if (llvm::is_contained(*axes, i)) {
      result.push_back(1);
    } else {
      result.push_back(rest.front());
      rest = rest.drop_front();
    }
  }
  return node.setResult(node.reshape(x, result));
}

static LogicalResult importTranspose(Node &node) {
  Value x = node.operand(0);
  if (!x)
    return failure();
  int64_t rank = getTensorType(x).getRank();
  Dims reversed = llvm::to_vector(llvm::reverse(llvm::seq<int64_t>(0, rank)));
  Dims permutation = node.intsAttribute("perm").value_or(reversed);
  std::optional<Dims> sorted = node.normalizeAxes(permutation, rank);
  if (!sorted)
    return failure();
  if (static_cast<int64_t>(permutation.size()) != rank)
    return node.error() << "perm " << toString(permutation) << " does not permute "
                        << toString(getShape(x));
  for (int64_t &dim : permutation)
    dim += dim < 0 ? rank : 0;
  return node.setResult(node.transpose(x, permutation));
}

static LogicalResult importExpand(Node &node) {
  Value x = node.operand(0);
  std::optional<Dims> shape = node.intsOperand(1, "shape");
  if (!x || !shape)
    return failure();
  auto joined = node.broadcastShapes(getShape(x), *shape);
  return joined ? node.setResult(node.broadcastTo(x, *joined)) : failure();
}

/// Repeats x: [a, b] seen as [1, a, 1, b] is broadcast to [r, a, s, b] and seen as [ra, sb].
static LogicalResult importTile(Node &node) {
  Value x = node.operand(0);
  std::optional<Dims> repeats = node.intsOperand(1, "repeats");
  if (!x || !repeats)
    return failure();
  ArrayRef<int64_t> shape = getShape(x);
  if (repeats->size() != shape.size())
    return node.error() << repeats->size() << " repeats for an input of rank " << shape.size();
  Dims spread, dims, result;
  for (auto [size, count] : llvm::zip_equal(shape, *repeats)) {
    if (count != 1)
      spread.push_back(count);
    dims.push_back(spread.size());
    spread.push_back(size);
    result.push_back(count < 0 || count > (int64_t(1) << 31) ? -1 : size * count);
  }
  if (!isReasonable(result))
    return node.error() << "cannot repeat " << toString(shape) << " " << toString(*repeats)
                        << " times";
  return node.setResult(node.reshape(node.broadcast(x, spread, dims), result));
}

static LogicalResult importConcat(Node &node) {
  SmallVector<Value> values;
  std::optional<int64_t> axis;
  for (unsigned i = 0; i < node.getNumOperands(); ++i) {
    Value value = node.operand(i);
    if (!value)
      return failure();
    ArrayRef<int64_t> shape = getShape(value);
    if (!axis && !(axis = node.normalizeAxis(node.intAttribute("axis", 1), shape.size())))
      return failure();
    // Shapes are equal but for the axis.
    bool fits = values.empty() || getShape(values[0]).size() == shape.size();
    for (size_t dim = 0; fits && !values.empty() && dim < shape.size(); ++dim)
      fits = static_cast<int64_t>(dim) == *axis || shape[dim] == getShape(values[0])[dim];
    if (!fits)
      return node.error() << "input " << i << " is " << toString(shape) << " and input 0 "
                          << toString(getShape(values[0])) << "; they must agree except in axis "
                          << *axis;
    if (!values.empty() &&
        getTensorType(value).getElementType() != getTensorType(values[0]).getElementType())
      return node.error() << "inputs " << value.getType() << " and " << values[0].getType()
                          << " differ in element type";
    values.push_back(value);
  }
  if (values.empty())
    return node.error() << "has no inputs";
  return node.setResult(node.concatenate(values, *axis));
}

/// Sizes of the parts: given, or equal with the remainder in the last.
static std::optional<Dims> getParts(Node &node, int64_t size) {
  auto given = node.intsAttributeOrOperand("split", 1);
  if (!given)
    return std::nullopt;
  int64_t count = node.getNumResults();
  if (*given) {
    if (static_cast<int64_t>((*given)->size()) == count && loom::countElements(**given) >= 0 &&
        std::accumulate((*given)->begin(), (*given)->end(), int64_t(0)) == size &&
        llvm::all_of(**given, [](int64_t part) { return part >= 0; }))
      return **given;
    node.error() << "parts of " << toString(**given) << " do not make " << count
                 << " outputs of a dimension of " << size;
    return std::nullopt;
  }
  count = node.intAttribute("num_outputs", count);
  if (count < 1 || count != static_cast<int64_t>(node.getNumResults()) ||
      (size % count != 0 && node.getOpset() < 18)) {
    node.error() << "cannot split a dimension of " << size << " into " << count << " parts";
    return std::nullopt;
  }
  int64_t part = (size + count - 1) / count;
  Dims parts(count, part);
  parts.back() = size - part * (count - 1);
  if (parts.back() < 0) {
    node.error() << "cannot split a dimension of " << size << " into " << count << " parts of "
                 << part;
    return std::nullopt;
  }
  return parts;
}

static LogicalResult importSplit(Node &node) {
  Value x = node.operand(0);
  if (!x)
    return failure();
  auto axis = node.normalizeAxis(node.intAttribute("axis", 0), getTensorType(x).getRank());
  if (!axis || failed(checkFixedLength(node, x, *axis)))
    return failure();
  std::optional<Dims> parts = getParts(node, getShape(x)[*axis]);
  if (!parts)
    return failure();
  int64_t start = 0;
  for (auto [i, part] : llvm::enumerate(*parts)) {
    if (failed(node.setResult(i, node.slice(x, *axis, start, start + part))))
      return failure();
    start += part;
  }
  return success();
}

/// [n, c, h b, w b] to [n, b b c, h, w], or [n, c b b, h, w] in the mode CRD, which came late.
static LogicalResult importSpaceToDepth(Node &node) {
  Value x = node.operand(0);
  int64_t block = node.intAttribute("blocksize", 0);
  if (!x)
    return failure();
  ArrayRef<int64_t> shape = getShape(x);
  if (shape.size() != 4 || block < 1 || shape[2] % block || shape[3] % block)
    return node.error() << "cannot cut " << toString(shape) << " into blocks of " << block;
  int64_t n = shape[0], c = shape[1], h = shape[2] / block, w = shape[3] / block;
  bool columnFirst = node.stringAttribute("mode", "DCR") == "CRD";
  Value split = node.reshape(x, {n, c, h, block, w, block});
  split = columnFirst ? node.transpose(split, {0, 1, 3, 5, 2, 4})
                      : node.transpose(split, {0, 3, 5, 1, 2, 4});
  return node.setResult(node.reshape(split, {n, c * block * block, h, w}));
}

/// [n, c b b, h, w] to [n, c, h b, w b].
static LogicalResult importDepthToSpace(Node &node) {
  Value x = node.operand(0);
  int64_t block = node.intAttribute("blocksize", 0);
  if (!x)
    return failure();
  ArrayRef<int64_t> shape = getShape(x);
  if (shape.size() != 4 || block < 1 || block > (1 << 20) || shape[1] % (block * block))
    return node.error() << "cannot make blocks of " << block << " from " << toString(shape);
  int64_t n = shape[0], c = shape[1] / (block * block), h = shape[2], w = shape[3];
  bool columnFirst = node.stringAttribute("mode", "DCR") == "CRD";
  Value split =
      columnFirst ? node.transpose(node.reshape(x, {n, c, block, block, h, w}), {0, 1, 4, 2, 5, 3})
                  : node.transpose(node.reshape(x, {n, block, block, c, h, w}), {0, 3, 4, 1, 5, 2});
  return node.setResult(node.reshape(split, {n, c, h * block, w * block}));
}

ArrayRef<OpRule> onnx_import::getShapeRules() {
  static constexpr OpRule rules[] = {
      {"Concat", 4, 28, importConcat},       {"DepthToSpace", 1, 28, importDepthToSpace},
      {"Expand", 8, 28, importExpand},       {"Flatten", 1, 28, importFlatten},
      {"Reshape", 5, 28, importReshape},     {"SpaceToDepth", 1, 28, importSpaceToDepth},
      {"Split", 2, 28, importSplit},         {"Squeeze", 1, 28, importSqueeze},
      {"Tile", 6, 28, importTile},           {"Transpose", 1, 28, importTranspose},
      {"Unsqueeze", 1, 28, importUnsqueeze},
  };
  return rules;
}
