//===- Constants.cpp - constants, shapes and pass-through operators ------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/GraphImporter.h"
#include "compiler/onnx/OpTable.h"

#include <cmath>

using namespace mlir;
using namespace gridloom;
using namespace gridloom::onnx_import;

static LogicalResult importConstant(Node &node) {
  if (node.hasAttribute("value"))
    return node.setResult(node.constantTensor());
  if (node.hasAttribute("value_int"))
    return node.setResult(node.constant(loom::HostTensor::fromInts(
        loom::ElementKind::I64, {}, {node.intAttribute("value_int", 0)})));
  if (node.hasAttribute("value_float"))
    return node.setResult(node.constant(loom::HostTensor::fromDoubles(
        loom::ElementKind::F32, {}, {node.floatAttribute("value_float", 0)})));
  if (std::optional<Dims> ints = node.intsAttribute("value_ints"))
    return node.setResult(node.ints(*ints));
  if (auto floats = node.floatsAttribute("value_floats"))
    return node.setResult(node.constant(loom::HostTensor::fromDoubles(
        loom::ElementKind::F32, {static_cast<int64_t>(floats->size())}, *floats)));
  return node.error() << "has neither value, value_int, value_ints, value_float nor value_floats";
}

static LogicalResult importConstantOfShape(Node &node) {
  std::optional<Dims> shape = node.intsOperand(0, "input");
  FailureOr<std::optional<loom::HostTensor>> value = node.elementAttribute("value");
  if (!shape || failed(value))
    return failure();
  loom::HostTensor element = value->value_or(loom::HostTensor(loom::ElementKind::F32, {}));
  return node.setResult(node.broadcast(node.constant(element), *shape, {}));
}

/// The number of integers start, start + delta, ... before limit.
static double countSteps(int64_t start, int64_t limit, int64_t delta) {
  // Distances of 64-bit integers take 65 bits.
  __int128 distance = static_cast<__int128>(limit) - start, step = delta;
  if (distance == 0 || (distance > 0) != (step > 0))
    return 0;
  __int128 steps = (distance + step - (step > 0 ? 1 : -1)) / step;
  return static_cast<double>(steps);
}

/// start, start + delta, ... before limit.
static LogicalResult importRange(Node &node) {
  std::optional<loom::HostTensor> values[3];
  for (unsigned i = 0; i < 3; ++i) {
    if (!node.operand(i))
      return failure();
    values[i] = node.constantOperand(i);
    if (!values[i] || values[i]->getNumElements() != 1)
      return node.error() << "input '"
                          << (i == 0   ? "start"
                              : i == 1 ? "limit"
                                       : "delta")
                          << "' must be one number known at compile time";
  }
  if (failed(node.checkSameElementType(node.operand(0), node.operand(1))) ||
      failed(node.checkSameElementType(node.operand(0), node.operand(2))))
    return failure();
  loom::ElementKind kind = values[0]->getKind();
  double start = values[0]->toDoubles()[0], limit = values[1]->toDoubles()[0],
         delta = values[2]->toDoubles()[0];
  if (delta == 0)
    return node.error() << "delta is 0";
  // f64 does not hold all integers of 64 bits.
  int64_t first = values[0]->toInts()[0], step = values[2]->toInts()[0];
  double length = loom::isFloatKind(kind) ? std::max(std::ceil((limit - start) / delta), 0.0)
                                          : countSteps(first, values[1]->toInts()[0], step);
  if (!(length < double(int64_t(1) << 40)))
    return node.error() << "a range of " << length << " elements is too long";
  auto type = RankedTensorType::get({static_cast<int64_t>(length)},
                                    loom::getElementType(kind, node.getContext()));
  if (loom::getByteSize(type) > 64 << 10) {
    auto scalar = [&](unsigned i) { return node.reshape(node.constant(*values[i]), {}); };
    Value offsets = node.binary<loom::MultiplyOp>(node.iota(type, 0), scalar(2));
    return node.setResult(node.binary<loom::AddOp>(offsets, scalar(0)));
  }
  if (!loom::isFloatKind(kind)) {
    // Differences of the elements may take 65 bits; the elements do not.
    std::vector<int64_t> integers;
    for (int64_t i = 0; i < type.getNumElements(); ++i)
      integers.push_back(static_cast<int64_t>(first + static_cast<__int128>(i) * step));
    return node.setResult(
        node.constant(loom::HostTensor::fromInts(kind, type.getShape(), integers)));
  }
  std::vector<double> elements;
  for (int64_t i = 0; i < type.getNumElements(); ++i)
    elements.push_back(start + static_cast<double>(i) * delta);
  return node.setResult(
      node.constant(loom::HostTensor::fromDoubles(kind, type.getShape(), elements)));
}

static LogicalResult importShape(Node &node) {
  Value input = node.operand(0);
  if (!input)
    return failure();
  int64_t rank = getTensorType(input).getRank();
  // Out-of-range bounds are clamped, unlike axes.
  auto clamp = [&](int64_t index) {
    return std::clamp<int64_t>(index < 0 ? index + rank : index, 0, rank);
  };
  int64_t start = clamp(node.intAttribute("start", 0)), end = clamp(node.intAttribute("end", rank));
  ArrayRef<int64_t> shape = getShape(input).slice(start, std::max<int64_t>(end - start, 0));
  auto counted = getCountedDims(node, input);
  if (failed(counted))
    return failure();
  auto isAsked = [&](const DataExtent::Dim &dim) { return start <= dim.dim && dim.dim < end; };
  if (llvm::none_of(*counted, isAsked))
    return node.setResult(node.ints(shape));
  SmallVector<Value> sizes;
  for (int64_t size : shape)
    sizes.push_back(node.ints({size}));
  for (const DataExtent::Dim &dim : *counted)
    if (isAsked(dim))
      sizes[dim.dim - start] = node.reshape(dim.count, {1});
  return node.setResult(node.concatenate(sizes, 0));
}

static LogicalResult importSize(Node &node) {
  Value input = node.operand(0);
  if (!input)
    return failure();
  auto counted = getCountedDims(node, input);
  if (failed(counted))
    return failure();
  Dims shape(getShape(input));
  Value counts;
  for (const DataExtent::Dim &dim : *counted) {
    shape[dim.dim] = 1;
    counts = counts ? node.binary<loom::MultiplyOp>(counts, dim.count) : dim.count;
  }
  Value size = node.reshape(node.ints({loom::countElements(shape)}), {});
  return node.setResult(counts ? node.binary<loom::MultiplyOp>(counts, size) : size);
}

static LogicalResult importIdentity(Node &node) { return node.setResult(node.operand(0)); }

static LogicalResult importEyeLike(Node &node) {
  Value input = node.operand(0);
  if (!input)
    return failure();
  RankedTensorType type = getTensorType(input);
  if (type.getRank() != 2)
    return node.error() << "input has rank " << type.getRank() << ", expected 2";
  Type element = type.getElementType();
  if (node.hasAttribute("dtype"))
    element = node.elementType(node.intAttribute("dtype", 0));
  if (!element)
    return failure();
  auto indexType = RankedTensorType::get(type.getShape(), IntegerType::get(node.getContext(), 64));
  int64_t k = std::clamp(node.intAttribute("k", 0), -type.getDimSize(0), type.getDimSize(1));
  Value diagonal = node.binary<loom::AddOp>(node.iota(indexType, 0), static_cast<double>(k));
  Value isOne = node.compare(loom::Direction::EQ, node.iota(indexType, 1), diagonal);
  return node.setResult(node.convert(isOne, element));
}

ArrayRef<OpRule> onnx_import::getConstantRules() {
  static constexpr OpRule rules[] = {
      {"Constant", 1, 28, importConstant}, {"ConstantOfShape", 9, 28, importConstantOfShape},
      {"EyeLike", 9, 28, importEyeLike},   {"Identity", 1, 28, importIdentity},
      {"Range", 11, 28, importRange},      {"Shape", 1, 28, importShape},
      {"Size", 1, 28, importSize},
  };
  return rules;
}
