//===- Sampling.cpp - reading images at computed places -------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/OpTable.h"
#include "compiler/onnx/Windows.h"

#include <cmath>

using namespace mlir;
using namespace gridloom;
using namespace gridloom::onnx_import;
using dist::ReductionKind;
using loom::Direction;

namespace {

/// The taps of samples along one spatial dimension: [batch, sample, tap].
struct AxisTaps {
  Value places; // i64, inside the dimension
  Value weights;
};

} // namespace

static Value number(Node &node, Value like, double value) { return node.splatLike(like, value); }
static Value clamp(Node &node, Value x, double low, double high) {
  return node.binary<loom::MinimumOp>(node.binary<loom::MaximumOp>(x, low), high);
}
static Value isInside(Node &node, Value x, double low, double high) {
  return node.binary<loom::AndOp>(node.compare(Direction::GE, x, low),
                                  node.compare(Direction::LE, x, high));
}
/// x, [a, b], as [a, b, count].
static Value addTaps(Node &node, Value x, int64_t count) {
  return x ? node.broadcast(x, {getShape(x)[0], getShape(x)[1], count}, {0, 1}) : x;
}

/// The weighted elements that every sample reads, per tap: [batch, sample, taps..., c]. x is [n, c,
/// spatial...]; `images` has the n that each batch reads; without it, that is the batch's number.
static Value readTaps(Node &node, Value x, Value images, ArrayRef<AxisTaps> axes) {
  SmallVector<int64_t> shape(getShape(x));
  size_t rank = axes.size();
  Value first = axes[0].places;
  if (!first)
    return {};
  SmallVector<int64_t> samples(getShape(first).take_front(2));
  for (const AxisTaps &axis : axes) {
    if (!axis.places || !axis.weights)
      return {};
    samples.push_back(getShape(axis.places)[2]);
  }
  auto indexType = getTensorType(first).clone(samples);
  Value place = images ? node.broadcast(images, samples, {0}) : node.iota(indexType, 0), weight;
  for (size_t i = 0; i < rank; ++i) {
    SmallVector<int64_t> dims{0, 1, static_cast<int64_t>(i) + 2};
    place = node.binary<loom::AddOp>(
        node.binary<loom::MultiplyOp>(place, static_cast<double>(shape[i + 2])),
        node.broadcast(axes[i].places, samples, dims));
    Value along = node.broadcast(axes[i].weights, samples, dims);
    weight = weight ? node.binary<loom::MultiplyOp>(weight, along) : along;
  }
  // Pixels as rows of channels.
  SmallVector<int64_t> order{0};
  for (size_t i = 0; i < rank; ++i)
    order.push_back(i + 2);
  order.push_back(1);
  Value rows =
      node.reshape(node.transpose(x, order),
                   {shape[0] * loom::countElements(ArrayRef(shape).drop_front(2)), shape[1]});
  Value pixels = node.gather(rows, place, 0);
  if (!pixels || !weight)
    return {};
  weight = node.convert(weight, getTensorType(x).getElementType());
  SmallVector<int64_t> dims = llvm::to_vector(llvm::seq<int64_t>(0, samples.size()));
  return node.binary<loom::MultiplyOp>(pixels, node.broadcast(weight, getShape(pixels), dims));
}

/// The sum over taps of readTaps, as [batch, c, sample].
static Value sample(Node &node, Value x, Value images, ArrayRef<AxisTaps> axes) {
  Value pixels = readTaps(node, x, images, axes);
  if (!pixels)
    return {};
  SmallVector<int64_t> taps = llvm::to_vector(llvm::seq<int64_t>(2, 2 + axes.size()));
  Value sum = node.reduce(pixels, ReductionKind::Sum, taps, /*keepDims=*/false);
  return sum ? node.transpose(sum, {0, 2, 1}) : sum;
}

static Value toIndex(Node &node, Value x) {
  return node.convert(x, IntegerType::get(node.getContext(), 64));
}

//===----------------------------------------------------------------------===//
// GridSample
//===----------------------------------------------------------------------===//

namespace {
struct GridMode {
  std::string mode, padding;
  bool alignCorners;
};
} // namespace

/// x reflected at the borders until it is between them.
static Value reflect(Node &node, Value x, double low, double high) {
  double range = high - low;
  if (range <= 0)
    return number(node, x, low);
  Value distance = node.unary<loom::AbsOp>(node.binary<loom::SubtractOp>(x, low));
  Value turns = node.unary<loom::FloorOp>(node.binary<loom::DivideOp>(distance, range));
  Value rest = node.binary<loom::SubtractOp>(distance, node.binary<loom::MultiplyOp>(turns, range));
  Value half = node.unary<loom::FloorOp>(node.binary<loom::MultiplyOp>(turns, 0.5));
  Value isEven = node.compare(Direction::EQ, turns, node.binary<loom::MultiplyOp>(half, 2));
  return node.select(isEven, node.binary<loom::AddOp>(rest, low),
                     node.binary<loom::SubtractOp>(number(node, rest, high), rest));
}

/// The weights of the elements at floor(x) - 1 to floor(x) + 2, or floor(x) and floor(x) + 1;
/// `fraction`, [batch, sample], is x - floor(x).
static Value weighTaps(Node &node, Value fraction, bool isCubic) {
  constexpr double a = -0.75;
  SmallVector<Value> weights;
  auto polynomial = [&](Value x, ArrayRef<double> coefficients) {
    Value sum = number(node, x, coefficients[0]);
    for (double coefficient : coefficients.drop_front())
      sum = node.binary<loom::AddOp>(node.binary<loom::MultiplyOp>(sum, x), coefficient);
    return sum;
  };
  Value rest = node.binary<loom::SubtractOp>(number(node, fraction, 1), fraction);
  if (isCubic) {
    const double nearPart[] = {a + 2, -(a + 3), 0, 1}, farPart[] = {a, -5 * a, 8 * a, -4 * a};
    weights = {polynomial(node.binary<loom::AddOp>(fraction, 1), farPart),
               polynomial(fraction, nearPart), polynomial(rest, nearPart),
               polynomial(node.binary<loom::AddOp>(rest, 1), farPart)};
  } else {
    weights = {rest, fraction};
  }
  SmallVector<int64_t> column(getShape(fraction));
  column.push_back(1);
  for (Value &weight : weights)
    weight = node.reshape(weight, column);
  return node.concatenate(weights, 2);
}

/// The taps of samples at x, a normalised coordinate of a dimension of `size`.
static AxisTaps findGridTaps(Node &node, Value x, int64_t count, const GridMode &mode) {
  auto size = static_cast<double>(count);
  double low = mode.alignCorners ? 0 : -0.5, high = mode.alignCorners ? size - 1 : size - 0.5;
  x = node.binary<loom::AddOp>(x, 1);
  if (mode.alignCorners)
    x = node.binary<loom::MultiplyOp>(x, (size - 1) / 2);
  else
    x = node.binary<loom::MultiplyOp>(
        node.binary<loom::SubtractOp>(node.binary<loom::MultiplyOp>(x, size), 1), 0.5);
  if (mode.mode == "nearest")
    x = node.unary<loom::RoundNearestEvenOp>(x);
  // Cubic interpolation moves each tap inside, not the position between them, as PyTorch does.
  bool isCubic = mode.mode == "cubic";
  if (mode.padding == "border" && !isCubic)
    x = node.select(isInside(node, x, low, high), x, clamp(node, x, 0, size - 1));
  else if (mode.padding == "reflection" && !isCubic)
    x = node.select(isInside(node, x, low, high), x, reflect(node, x, low, high));

  AxisTaps taps;
  int64_t first = 0, width = 1;
  if (mode.mode == "nearest") {
    taps.places = addTaps(node, x, 1);
    taps.weights = taps.places ? number(node, taps.places, 1) : Value();
  } else {
    first = isCubic ? -1 : 0;
    width = isCubic ? 4 : 2;
    Value base = node.unary<loom::FloorOp>(x);
    taps.weights = weighTaps(node, node.binary<loom::SubtractOp>(x, base), isCubic);
    taps.places = addTaps(node, base, width);
  }
  if (!taps.places || !taps.weights)
    return {};
  taps.places = node.binary<loom::AddOp>(
      taps.places, node.binary<loom::AddOp>(node.iota(getTensorType(taps.places), 2),
                                            static_cast<double>(first)));
  if (mode.padding == "zeros")
    taps.weights = node.select(isInside(node, taps.places, 0, size - 1), taps.weights,
                               number(node, taps.weights, 0));
  else if (mode.padding == "reflection")
    taps.places = reflect(node, taps.places, low, high);
  taps.places = toIndex(node, clamp(node, taps.places, 0, size - 1));
  return taps;
}

/// Coordinate `i` of points, [a, b, coordinates], as [a, b].
static Value takeCoordinate(Node &node, Value points, int64_t i) {
  if (!points)
    return {};
  return node.reshape(node.slice(points, 2, i, i + 1), getShape(points).take_front(2));
}

static LogicalResult importGridSample(Node &node) {
  Value x = node.operand(0), grid = node.operand(1);
  if (!x || !grid)
    return failure();
  GridMode mode{node.stringAttribute("mode", node.getOpset() < 20 ? "bilinear" : "linear"),
                node.stringAttribute("padding_mode", "zeros"),
                node.intAttribute("align_corners", 0) != 0};
  // Names of version 16.
  if (mode.mode == "bilinear" || mode.mode == "bicubic")
    mode.mode = mode.mode == "bilinear" ? "linear" : "cubic";
  if (mode.mode != "nearest" && mode.mode != "linear" && mode.mode != "cubic")
    return node.error() << "mode '" << mode.mode << "' is not one of nearest, linear, cubic";
  if (mode.padding != "zeros" && mode.padding != "border" && mode.padding != "reflection")
    return node.error() << "padding_mode '" << mode.padding
                        << "' is not one of zeros, border, reflection";
  ArrayRef<int64_t> shape = getShape(x), points = getShape(grid);
  int64_t rank = static_cast<int64_t>(shape.size()) - 2;
  if (rank < 1 || points.size() != shape.size() || points.back() != rank || points[0] != shape[0])
    return node.error() << "grid " << toString(points) << " does not fit input " << toString(shape);
  SmallVector<int64_t> output{shape[0], shape[1]};
  llvm::append_range(output, points.drop_front().drop_back());
  if (loom::countElements(output) == 0 || loom::countElements(shape) == 0)
    return node.error() << "cannot sample " << toString(shape) << " at " << toString(points);
  int64_t count = loom::countElements(points.drop_front().drop_back());
  Value flat = node.reshape(grid, {shape[0], count, rank});
  SmallVector<AxisTaps> axes;
  // The last spatial dimension's coordinate comes first.
  for (int64_t i = 0; i < rank; ++i)
    axes.push_back(
        findGridTaps(node, takeCoordinate(node, flat, rank - 1 - i), shape[i + 2], mode));
  Value result = sample(node, x, {}, axes);
  return node.setResult(result ? node.reshape(result, output) : result);
}

//===----------------------------------------------------------------------===//
// AffineGrid
//===----------------------------------------------------------------------===//

static LogicalResult importAffineGrid(Node &node) {
  Value theta = node.operand(0);
  std::optional<Dims> size = node.intsOperand(1, "size");
  if (!theta || !size)
    return failure();
  int64_t rank = static_cast<int64_t>(size->size()) - 2;
  if (rank < 1 || !isReasonable(*size) || loom::countElements(*size) == 0 ||
      *llvm::max_element(*size) > kMostTableEntries ||
      getShape(theta) != ArrayRef<int64_t>{(*size)[0], rank, rank + 1})
    return node.error() << "theta " << toString(getShape(theta)) << " does not fit size "
                        << toString(*size);
  bool alignCorners = node.intAttribute("align_corners", 0);
  loom::ElementKind kind = *loom::getElementKind(getTensorType(theta).getElementType());
  SmallVector<int64_t> shape{(*size)[0]};
  llvm::append_range(shape, ArrayRef<int64_t>(*size).drop_front(2));
  shape.push_back(rank);
  // Row i of theta gives coordinate i; coordinate 0 is that of the last spatial dimension.
  Value sum;
  for (int64_t i = 0; i <= rank; ++i) {
    Value column = node.reshape(node.slice(theta, 2, i, i + 1), {shape[0], rank});
    Value term = node.broadcast(column, shape, {0, rank + 1});
    if (i < rank) {
      int64_t dim = rank - 1 - i, count = (*size)[dim + 2];
      std::vector<double> places;
      for (int64_t j = 0; j < count; ++j)
        places.push_back(
            alignCorners
                ? (count == 1 ? -1
                              : 2.0 * static_cast<double>(j) / (static_cast<double>(count) - 1) - 1)
                : (2.0 * static_cast<double>(j) + 1) / static_cast<double>(count) - 1);
      Value along = node.constant(loom::HostTensor::fromDoubles(kind, {count}, places));
      term = node.binary<loom::MultiplyOp>(term, node.broadcast(along, shape, {dim + 1}));
    }
    sum = sum ? node.binary<loom::AddOp>(sum, term) : term;
  }
  return node.setResult(sum);
}

//===----------------------------------------------------------------------===//
// RoiAlign
//===----------------------------------------------------------------------===//

/// The taps, [r, bins * ratio, 2], of samples along a dimension of `count` elements: `bins` bins of
/// `ratio` samples in each region, which has `begin` and `length`, [r].
static AxisTaps findRoiTaps(Node &node, Value begin, Value length, int64_t bins, int64_t ratio,
                            int64_t count) {
  if (!begin || !length)
    return {};
  auto size = static_cast<double>(count);
  int64_t regions = getShape(begin)[0], samples = bins * ratio;
  auto type = getTensorType(begin).clone({regions, samples});
  Value step = node.binary<loom::DivideOp>(length, static_cast<double>(samples));
  Value at = node.binary<loom::AddOp>(node.iota(type, 1), 0.5);
  Value x = node.binary<loom::AddOp>(
      node.broadcast(begin, type.getShape(), {0}),
      node.binary<loom::MultiplyOp>(at, node.broadcast(step, type.getShape(), {0})));
  Value isNear = isInside(node, x, -1, size);
  x = clamp(node, x, 0, size - 1);
  Value low = node.unary<loom::FloorOp>(x),
        high = clamp(node, node.binary<loom::AddOp>(low, 1), 0, size - 1);
  Value fraction = node.binary<loom::SubtractOp>(x, low);
  Value zero = number(node, x, 0);
  Value rest =
      node.select(isNear, node.binary<loom::SubtractOp>(number(node, x, 1), fraction), zero);
  fraction = node.select(isNear, fraction, zero);
  auto column = [&](Value value) { return node.reshape(value, {regions, samples, 1}); };
  return {toIndex(node, node.concatenate({column(low), column(high)}, 2)),
          node.concatenate({column(rest), column(fraction)}, 2)};
}

namespace {
struct RoiMode {
  int64_t height, width, ratio; // bins, and samples per bin and dimension
  bool isMax, isHalfPixel;
  double scale;
};
} // namespace

static std::optional<RoiMode> readRoiMode(Node &node) {
  // Until version 15 there was no offset.
  std::string transform = node.stringAttribute(
      "coordinate_transformation_mode", node.getOpset() < 16 ? "output_half_pixel" : "half_pixel");
  std::string mode = node.stringAttribute("mode", "avg");
  RoiMode result{node.intAttribute("output_height", 1),
                 node.intAttribute("output_width", 1),
                 node.intAttribute("sampling_ratio", 0),
                 mode == "max",
                 transform == "half_pixel",
                 node.floatAttribute("spatial_scale", 1)};
  constexpr int64_t kLargest = int64_t(1) << 16;
  if (mode != "avg" && mode != "max")
    node.error() << "mode '" << mode << "' is not one of avg, max";
  else if (result.ratio < 1)
    node.error() << "sampling_ratio is " << result.ratio
                 << ", which makes the number of samples depend on the regions; give it";
  else if (result.height < 1 || result.width < 1 ||
           std::max({result.height, result.width, result.ratio}) > kLargest)
    node.error() << "cannot make outputs of " << result.height << " x " << result.width << " by "
                 << result.ratio << " samples";
  else
    return result;
  return std::nullopt;
}

/// The taps of samples of regions, [r, 4], in rows (`first` is 1) or columns (0).
static AxisTaps findRegionTaps(Node &node, Value rois, const RoiMode &mode, int64_t first,
                               int64_t bins, int64_t size) {
  auto corner = [&](int64_t i) {
    Value place = node.binary<loom::MultiplyOp>(
        node.reshape(node.slice(rois, 1, i, i + 1), {getShape(rois)[0]}), mode.scale);
    return mode.isHalfPixel ? node.binary<loom::SubtractOp>(place, 0.5) : place;
  };
  Value begin = corner(first);
  Value length = node.binary<loom::SubtractOp>(corner(first + 2), begin);
  if (!mode.isHalfPixel)
    length = node.binary<loom::MaximumOp>(length, 1);
  return findRoiTaps(node, begin, length, bins, mode.ratio, size);
}

static LogicalResult importRoiAlign(Node &node) {
  Value x = node.operand(0), rois = node.operand(1), batch = node.operand(2);
  if (failed(node.checkSameElementType(x, rois)) || !batch)
    return failure();
  ArrayRef<int64_t> shape = getShape(x), regions = getShape(rois);
  if (shape.size() != 4 || regions.size() != 2 || regions[1] != 4 ||
      getShape(batch) != ArrayRef<int64_t>{regions[0]})
    return node.error() << "cannot read " << toString(regions) << " regions of images "
                        << toString(getShape(batch)) << " from " << toString(shape);
  auto mode = readRoiMode(node);
  if (!mode)
    return failure();
  AxisTaps rows = findRegionTaps(node, rois, *mode, 1, mode->height, shape[2]);
  if (!rows.places || !rows.weights)
    return failure();
  AxisTaps columns = findRegionTaps(node, rois, *mode, 0, mode->width, shape[3]);
  if (!columns.places || !columns.weights)
    return failure();
  // Every row with every column: [r, rows * columns, taps].
  int64_t ratio = mode->ratio, down = mode->height * ratio, across = mode->width * ratio;
  SmallVector<int64_t> grid{regions[0], down, across, 2}, samples{regions[0], down * across, 2};
  SmallVector<AxisTaps> axes;
  for (auto [taps, dim] : {std::pair(rows, int64_t(1)), std::pair(columns, int64_t(2))}) {
    Value places = node.reshape(node.broadcast(taps.places, grid, {0, dim, 3}), samples);
    if (!places)
      return failure();
    Value weights = node.reshape(node.broadcast(taps.weights, grid, {0, dim, 3}), samples);
    axes.push_back({places, weights});
  }
  Value pixels = readTaps(node, x, toIndex(node, batch), axes);
  if (!pixels)
    return failure();
  pixels =
      node.reshape(pixels, {regions[0], mode->height, ratio, mode->width, ratio, 2, 2, shape[1]});
  Value result = node.reduce(pixels, mode->isMax ? ReductionKind::Max : ReductionKind::Sum,
                             {2, 4, 5, 6}, /*keepDims=*/false);
  if (!mode->isMax)
    result = node.binary<loom::DivideOp>(result, static_cast<double>(ratio * ratio));
  return node.setResult(result ? node.transpose(result, {0, 3, 1, 2}) : result);
}

//===----------------------------------------------------------------------===//
// DeformConv
//===----------------------------------------------------------------------===//

/// Bilinear taps at x, in elements of a dimension of `count`; outside are zeros.
static AxisTaps findBilinearTaps(Node &node, Value x, int64_t count) {
  auto size = static_cast<double>(count);
  Value base = node.unary<loom::FloorOp>(x);
  AxisTaps taps;
  taps.weights = weighTaps(node, node.binary<loom::SubtractOp>(x, base), /*isCubic=*/false);
  Value spread = addTaps(node, base, 2);
  if (!taps.weights || !spread)
    return {};
  Value places = node.binary<loom::AddOp>(spread, node.iota(getTensorType(spread), 2));
  taps.weights =
      node.select(isInside(node, places, 0, size - 1), taps.weights, number(node, taps.weights, 0));
  taps.places = toIndex(node, clamp(node, places, 0, size - 1));
  return taps;
}

/// The coordinate of each window element along spatial dimension i without an offset, of shape [1,
/// window * positions].
static Value findRegularPlaces(Node &node, Type element, const WindowShape &window, size_t i,
                               ArrayRef<int64_t> positions) {
  SmallVector<int64_t> shape(window.sizes);
  llvm::append_range(shape, positions);
  auto type = RankedTensorType::get(shape, element);
  Value inner =
      node.binary<loom::MultiplyOp>(node.iota(type, i), static_cast<double>(window.dilations[i]));
  Value outer =
      node.binary<loom::MultiplyOp>(node.iota(type, static_cast<int64_t>(window.rank() + i)),
                                    static_cast<double>(window.strides[i]));
  Value place = node.binary<loom::AddOp>(node.binary<loom::AddOp>(inner, outer),
                                         -static_cast<double>(window.low[i]));
  return node.reshape(place, {1, loom::countElements(shape)});
}

/// The elements that windows read at positions moved by `offset`, weighted by the mask, operand 4:
/// [n * parts, c / parts, window * positions]. Each part of the channels has offsets of its own.
static Value readColumns(Node &node, Value x, Value offset, const WindowShape &window,
                         ArrayRef<int64_t> positions, int64_t parts) {
  SmallVector<int64_t> shape(getShape(x));
  int64_t rank = window.rank(), taps = loom::countElements(window.sizes);
  int64_t count = loom::countElements(positions), batch = shape[0] * parts;
  Value split = node.reshape(offset, {batch, taps, rank, count});
  SmallVector<AxisTaps> axes;
  for (int64_t i = 0; i < rank; ++i) {
    Value shift = node.reshape(node.slice(split, 2, i, i + 1), {batch, taps * count});
    Value regular =
        findRegularPlaces(node, getTensorType(x).getElementType(), window, i, positions);
    axes.push_back(findBilinearTaps(node, node.binary<loom::AddOp>(shift, regular), shape[i + 2]));
  }
  SmallVector<int64_t> image{batch, shape[1] / parts};
  llvm::append_range(image, ArrayRef(shape).drop_front(2));
  Value columns = sample(node, node.reshape(x, image), {}, axes);
  if (!columns || !node.hasOperand(4))
    return columns;
  Value mask = node.operand(4);
  if (failed(node.checkSameElementType(x, mask)))
    return {};
  if (getTensorType(mask).getNumElements() != batch * taps * count) {
    node.error() << "mask is " << toString(getShape(mask)) << " for " << batch * taps * count
                 << " samples";
    return {};
  }
  Value flat = node.reshape(mask, {batch, taps * count});
  return node.binary<loom::MultiplyOp>(columns, node.broadcast(flat, getShape(columns), {0, 2}));
}

static LogicalResult importDeformConv(Node &node) {
  Value x = node.operand(0), weight = node.operand(1), offset = node.operand(2);
  if (failed(node.checkSameElementType(x, weight)) || failed(node.checkSameElementType(x, offset)))
    return failure();
  SmallVector<int64_t> shape(getShape(x)), kernel(getShape(weight));
  int64_t groups = node.intAttribute("group", 1), parts = node.intAttribute("offset_group", 1);
  if (shape.size() < 3 || kernel.size() != shape.size() || groups < 1 || parts < 1 ||
      shape[1] % parts || kernel[0] % groups || kernel[1] * groups != shape[1])
    return node.error() << "cannot convolve " << toString(shape) << " with " << toString(kernel)
                        << " in " << groups << " groups and " << parts << " offset groups";
  auto window = readWindow(node, ArrayRef(shape).drop_front(2), ArrayRef(kernel).drop_front(2));
  if (!window)
    return failure();
  int64_t taps = loom::countElements(window->sizes);
  SmallVector<int64_t> positions;
  for (size_t i = 0; i < window->rank(); ++i)
    positions.push_back(window->positions(i, shape[i + 2]));
  SmallVector<int64_t> expected{shape[0], parts * taps * static_cast<int64_t>(window->rank())};
  llvm::append_range(expected, positions);
  if (getShape(offset) != ArrayRef<int64_t>(expected))
    return node.error() << "offset is " << toString(getShape(offset)) << ", expected "
                        << toString(expected);
  Value columns = readColumns(node, x, offset, *window, positions, parts);
  if (!columns)
    return failure();
  // [n, group, c / group * taps, positions] times [group, o / group, c / group * taps].
  int64_t depth = kernel[1] * taps, share = kernel[0] / groups;
  columns = node.reshape(columns, {shape[0], groups, depth, loom::countElements(positions)});
  Value product =
      node.dotGeneral(node.reshape(weight, {groups, share, depth}), columns, {0}, {1}, {2}, {2});
  if (!product)
    return failure();
  SmallVector<int64_t> output{shape[0], kernel[0]};
  llvm::append_range(output, positions);
  Value result = node.reshape(node.transpose(product, {2, 0, 1, 3}), output);
  return node.setResult(addBias(node, result, 3));
}

//===----------------------------------------------------------------------===//
// Col2Im
//===----------------------------------------------------------------------===//

/// Adds the windows' elements where they came from, one padded image per element of the window.
static LogicalResult importCol2Im(Node &node) {
  Value x = node.operand(0);
  auto image = node.intsOperand(1, "image_shape"), block = node.intsOperand(2, "block_shape");
  if (!x || !image || !block)
    return failure();
  size_t rank = image->size();
  ArrayRef<int64_t> shape = getShape(x);
  if (rank == 0 || block->size() != rank || shape.size() != 3 || !isReasonable(*image) ||
      !isReasonable(*block))
    return node.error() << "cannot make images of " << toString(*image) << " from blocks of "
                        << toString(*block) << " in " << toString(shape);
  auto window = readWindow(node, *image, *block);
  if (!window)
    return failure();
  int64_t taps = loom::countElements(*block);
  // Each element becomes a few operations of the program.
  constexpr int64_t kMaxTaps = 4096;
  if (taps > kMaxTaps)
    return node.error() << "blocks of " << taps << " elements are larger than the " << kMaxTaps
                        << " that can be compiled";
  SmallVector<int64_t> positions, padded;
  for (size_t i = 0; i < rank; ++i) {
    positions.push_back(window->positions(i, (*image)[i]));
    padded.push_back((*image)[i] + window->low[i] + window->high[i]);
  }
  if (shape[1] % taps || shape[2] != loom::countElements(positions))
    return node.error() << "input " << toString(shape) << " does not have " << taps << " rows of "
                        << loom::countElements(positions) << " blocks per channel";
  int64_t channels = shape[1] / taps;
  SmallVector<int64_t> single{shape[0], channels}, whole(single);
  llvm::append_range(single, positions);
  llvm::append_range(whole, padded);
  Value split = node.reshape(x, {shape[0], channels, taps, shape[2]}), sum;
  Type element = getTensorType(x).getElementType();
  auto zero = cast<TypedAttr>(Builder(node.getContext()).getZeroAttr(element));
  for (int64_t tap = 0; tap < taps; ++tap) {
    SmallVector<int64_t> low{0, 0}, high{0, 0}, interior{0, 0};
    int64_t rest = tap;
    SmallVector<int64_t> at(rank);
    for (size_t i = rank; i-- > 0; rest /= (*block)[i])
      at[i] = rest % (*block)[i];
    for (size_t i = 0; i < rank; ++i) {
      low.push_back(at[i] * window->dilations[i]);
      interior.push_back(window->strides[i] - 1);
      high.push_back(padded[i] - low.back() - (positions[i] - 1) * window->strides[i] - 1);
    }
    Value part = node.reshape(node.slice(split, 2, tap, tap + 1), single);
    if (!part)
      return failure();
    part = node.emit<loom::PadOp>(getTensorType(x).clone(whole), part, zero, low, high, interior);
    sum = sum ? node.binary<loom::AddOp>(sum, part) : part;
  }
  for (size_t i = 0; sum && i < rank; ++i)
    sum = node.slice(sum, i + 2, window->low[i], window->low[i] + (*image)[i]);
  return node.setResult(sum);
}

//===----------------------------------------------------------------------===//
// MaxUnpool
//===----------------------------------------------------------------------===//

/// Puts elements where MaxPool found them, zeros elsewhere. Indices are into a tensor of the size
/// that the attributes give; a larger output is padded with zeros at the end.
static LogicalResult importMaxUnpool(Node &node) {
  Value x = node.operand(0), indices = node.operand(1);
  auto sizes = node.intsAttribute("kernel_shape");
  if (!x || !indices)
    return failure();
  SmallVector<int64_t> shape(getShape(x)), inferred{shape};
  size_t rank = shape.size() < 3 ? 0 : shape.size() - 2;
  if (!sizes || sizes->size() != rank || getShape(indices) != ArrayRef<int64_t>(shape))
    return node.error() << "kernel_shape and indices do not fit input " << toString(shape);
  auto strides = readList(node, "strides", rank, 1, 1),
       pads = readList(node, "pads", 2 * rank, 0, 0);
  if (!strides || !pads)
    return failure();
  for (size_t i = 0; i < rank; ++i)
    inferred[i + 2] =
        (shape[i + 2] - 1) * (*strides)[i] - (*pads)[i] - (*pads)[i + rank] + (*sizes)[i];
  Dims output(inferred);
  if (node.hasOperand(2)) {
    auto given = node.intsOperand(2, "output_shape");
    if (!given)
      return failure();
    output = *given;
  }
  bool fits = output.size() == inferred.size() && isReasonable(inferred) && isReasonable(output);
  for (size_t i = 0; fits && i < inferred.size(); ++i)
    fits = output[i] >= inferred[i] && (i > 1 || output[i] == inferred[i]);
  if (!fits)
    return node.error() << "output_shape " << toString(output) << " does not hold "
                        << toString(inferred);
  int64_t count = loom::countElements(shape), total = loom::countElements(inferred);
  auto type = getTensorType(x).clone({total});
  Value zeros = node.splat(type, 0);
  Value flat = node.emit<loom::ScatterOp>(type, zeros, node.reshape(indices, {count}),
                                          node.reshape(x, {count}), 0, dist::ReductionKindAttr());
  Value result = node.reshape(flat, inferred);
  if (!result || ArrayRef<int64_t>(output) == getShape(result))
    return node.setResult(result);
  SmallVector<int64_t> low(output.size(), 0), high, interior(low);
  for (auto [large, small] : llvm::zip_equal(output, inferred))
    high.push_back(large - small);
  auto zero =
      cast<TypedAttr>(Builder(node.getContext()).getZeroAttr(getTensorType(x).getElementType()));
  return node.setResult(
      node.emit<loom::PadOp>(getTensorType(x).clone(output), result, zero, low, high, interior));
}

ArrayRef<OpRule> onnx_import::getSamplingRules() {
  static constexpr OpRule rules[] = {
      {"AffineGrid", 20, 28, importAffineGrid}, {"Col2Im", 18, 28, importCol2Im},
      {"DeformConv", 19, 28, importDeformConv}, {"GridSample", 16, 28, importGridSample},
      {"MaxUnpool", 9, 28, importMaxUnpool},    {"RoiAlign", 10, 28, importRoiAlign},
  };
  return rules;
}
