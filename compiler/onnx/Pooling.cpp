//===- Pooling.cpp - reductions of windows --------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/OpTable.h"
#include "compiler/onnx/Parts.h"
#include "compiler/onnx/Windows.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::onnx_import;
using dist::ReductionKind;

std::optional<WindowShape> onnx_import::readPool(Node &node, Value x) {
  if (!x)
    return std::nullopt;
  if (getTensorType(x).getRank() < 3) {
    node.error() << "input " << toString(getShape(x)) << " has no spatial dimensions";
    return std::nullopt;
  }
  return readWindow(node, getShape(x).drop_front(2));
}

//===----------------------------------------------------------------------===//
// MaxPool
//===----------------------------------------------------------------------===//

/// All windows of x's spatial dimensions, as additional dimensions at the end; padding is `fill`.
static Value slide(Node &node, Value x, Attribute fill, const WindowShape &window) {
  SmallVector<int64_t> padded(getShape(x)), low(padded.size(), 0), high(low), interior(low), dims;
  size_t first = padded.size() - window.rank();
  for (size_t i = 0; i < window.rank(); ++i) {
    dims.push_back(first + i);
    low[first + i] = window.low[i];
    high[first + i] = window.high[i] + window.extra[i];
    padded[first + i] += low[first + i] + high[first + i];
  }
  if (padded != getShape(x))
    x = node.emit<loom::PadOp>(getTensorType(x).clone(padded), x, cast<TypedAttr>(fill), low, high,
                               interior);
  if (!x)
    return {};
  SmallVector<int64_t> shape(padded);
  for (size_t i = 0; i < window.rank(); ++i)
    shape[first + i] = (padded[first + i] - window.extent(i)) / window.strides[i] + 1;
  llvm::append_range(shape, window.sizes);
  return node.emit<loom::WindowOp>(getTensorType(x).clone(shape), x, dims, window.sizes,
                                   window.strides, window.dilations);
}

/// Row-major places in the spatial dimensions `shape` as column-major ones.
static Value toColumnMajor(Node &node, Value places, ArrayRef<int64_t> shape) {
  Value result = node.splatLike(places, 0);
  for (size_t i = shape.size(); i-- > 0;) {
    auto size = static_cast<double>(shape[i]);
    Value rest = node.binary<loom::DivideOp>(places, size);
    Value index = node.binary<loom::SubtractOp>(places, node.binary<loom::MultiplyOp>(rest, size));
    double factor = 1;
    for (int64_t before : shape.take_front(i))
      factor *= static_cast<double>(before);
    result = node.binary<loom::AddOp>(result, node.binary<loom::MultiplyOp>(index, factor));
    places = rest;
  }
  return result;
}

/// The place of the first largest element of each window, in the flattened input.
static Value findMaxima(Node &node, Value x, Value maxima, const WindowShape &window) {
  if (!maxima)
    return {};
  Builder builder(node.getContext());
  SmallVector<int64_t> spatial(getShape(x).drop_front(2));
  size_t rank = spatial.size();
  int64_t area = loom::countElements(spatial);
  auto i64 = builder.getI64Type();
  auto none = builder.getI64IntegerAttr(std::numeric_limits<int64_t>::max());
  Type element = getTensorType(x).getElementType();
  Value elements = slide(node, x, builder.getZeroAttr(element), window);
  Value flat = node.iota(RankedTensorType::get({area}, i64), 0);
  Value places = slide(node, node.reshape(flat, spatial), none, window);
  if (!elements || !places)
    return {};

  SmallVector<int64_t> shape(getShape(elements));
  SmallVector<int64_t> outer = llvm::to_vector(llvm::seq<int64_t>(0, 2 + rank)),
                       inner = llvm::to_vector(llvm::seq<int64_t>(2, 2 + 2 * rank)),
                       reduced = llvm::to_vector(llvm::seq<int64_t>(2 + rank, 2 + 2 * rank));
  Value isMaximum =
      node.compare(loom::Direction::EQ, elements, node.broadcast(maxima, shape, outer));
  auto type = RankedTensorType::get(shape, i64);
  Value noPlace = loom::ConstantOp::create(node.getBuilder(), node.getLoc(),
                                           DenseElementsAttr::get(type, Attribute(none)));
  Value candidates = node.select(isMaximum, node.broadcast(places, shape, inner), noPlace);
  Value first = node.reduce(candidates, ReductionKind::Min, reduced, /*keepDims=*/false);
  if (!first)
    return {};
  if (node.intAttribute("storage_order", 0))
    first = toColumnMajor(node, first, spatial);
  auto count = getTensorType(first);
  Value channel = node.binary<loom::AddOp>(
      node.binary<loom::MultiplyOp>(node.iota(count, 0), static_cast<double>(getShape(x)[1])),
      node.iota(count, 1));
  return node.binary<loom::AddOp>(
      first, node.binary<loom::MultiplyOp>(channel, static_cast<double>(area)));
}

static LogicalResult importMaxPool(Node &node) {
  Value x = node.operand(0);
  auto window = readPool(node, x);
  if (!window)
    return failure();
  Value maxima = reduceWindows(node, x, ReductionKind::Max, *window);
  if (failed(node.setResult(0, maxima)))
    return failure();
  return node.hasResult(1) ? node.setResult(1, findMaxima(node, x, maxima, *window)) : success();
}

//===----------------------------------------------------------------------===//
// AveragePool
//===----------------------------------------------------------------------===//

/// The number of elements of the input, or with `countPadding` of the padded input, in the window
/// of each position along spatial dimension i.
static std::vector<double> countElements(const WindowShape &window, size_t i, int64_t size,
                                         bool countPadding) {
  int64_t begin = countPadding ? -window.low[i] : 0,
          end = size + (countPadding ? window.high[i] : 0);
  std::vector<double> counts;
  for (int64_t o = 0; o < window.positions(i, size); ++o) {
    // The window's elements from first to last lie between begin and end.
    int64_t start = o * window.strides[i] - window.low[i], step = window.dilations[i];
    int64_t first = std::max<int64_t>(llvm::divideCeilSigned(begin - start, step), 0),
            last = std::min(llvm::divideFloorSigned(end - 1 - start, step), window.sizes[i] - 1);
    counts.push_back(static_cast<double>(std::max<int64_t>(last - first + 1, 0)));
  }
  return counts;
}

Value onnx_import::averagePool(Node &node, Value x) {
  auto window = readPool(node, x);
  if (!window)
    return {};
  Value sum = reduceWindows(node, node.widen(x), ReductionKind::Sum, *window);
  if (!sum)
    return {};
  bool countPadding = node.intAttribute("count_include_pad", 0);
  Type element = getTensorType(x).getElementType();
  loom::ElementKind kind = *loom::getElementKind(getTensorType(sum).getElementType());
  double uniform = 1;
  Value counts;
  for (size_t i = 0; i < window->rank(); ++i) {
    if (window->low[i] == 0 && window->high[i] == 0 && window->extra[i] == 0) {
      uniform *= static_cast<double>(window->sizes[i]);
      continue;
    }
    // The counts are computed here, for every position along the dimension.
    int64_t positions = window->positions(i, getShape(x)[i + 2]);
    if (positions > kMostTableEntries) {
      node.error() << "has " << positions << " windows along the padded dimension " << i + 2
                   << " of " << toString(getShape(x)) << ", more than " << kMostTableEntries;
      return {};
    }
    std::vector<double> along = countElements(*window, i, getShape(x)[i + 2], countPadding);
    if (llvm::all_equal(along)) {
      uniform *= along[0];
      continue;
    }
    int64_t size = along.size();
    Value vector = node.constant(loom::HostTensor::fromDoubles(kind, {size}, along));
    Value spread = node.broadcast(vector, getShape(sum), {static_cast<int64_t>(i) + 2});
    counts = counts ? node.binary<loom::MultiplyOp>(counts, spread) : spread;
  }
  if (!counts && uniform == 1)
    return node.convert(sum, element);
  if (!counts)
    return node.convert(node.binary<loom::DivideOp>(sum, uniform), element);
  if (uniform != 1)
    counts = node.binary<loom::MultiplyOp>(counts, uniform);
  return node.convert(node.binary<loom::DivideOp>(sum, counts), element);
}

static LogicalResult importAveragePool(Node &node) {
  return node.setResult(averagePool(node, node.operand(0)));
}

//===----------------------------------------------------------------------===//
// LpPool
//===----------------------------------------------------------------------===//

/// |x|^p; the square is exact.
static Value raise(Node &node, Value x, int64_t p) {
  if (p == 2)
    return node.binary<loom::MultiplyOp>(x, x);
  Value size = node.unary<loom::AbsOp>(x);
  return p == 1 ? size : node.binary<loom::PowerOp>(size, static_cast<double>(p));
}

static std::optional<int64_t> readPower(Node &node) {
  int64_t p = node.intAttribute("p", 2);
  if (p > 0)
    return p;
  node.error() << "p is " << p << ", expected a positive number";
  return std::nullopt;
}

static LogicalResult importLpPool(Node &node) {
  Value x = node.operand(0);
  auto window = readPool(node, x);
  auto p = readPower(node);
  if (!window || !p)
    return failure();
  Value sum = reduceWindows(node, raise(node, node.widen(x), *p), ReductionKind::Sum, *window);
  return node.setResult(node.convert(takeRoot(node, sum, *p), getTensorType(x).getElementType()));
}

static LogicalResult importGlobalLpPool(Node &node) {
  Value x = node.operand(0);
  auto p = readPower(node);
  FailureOr<Dims> dims = getSpatialDims(node, x);
  if (failed(dims) || !p)
    return failure();
  Value sum = node.reduce(raise(node, node.widen(x), *p), ReductionKind::Sum, *dims, true);
  return node.setResult(node.convert(takeRoot(node, sum, *p), getTensorType(x).getElementType()));
}

ArrayRef<OpRule> onnx_import::getPoolingRules() {
  static constexpr OpRule rules[] = {
      {"AveragePool", 7, 28, importAveragePool},
      {"GlobalLpPool", 2, 28, importGlobalLpPool},
      {"LpPool", 2, 28, importLpPool},
      {"MaxPool", 1, 28, importMaxPool},
  };
  return rules;
}
