//===- Resize.cpp - Resize and Upsample -----------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Interpolation goes one axis at a time. Which elements of the axis an output position reads and
// how they weigh depends on sizes alone, so it is computed at import.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/OpTable.h"
#include "compiler/onnx/Quantization.h"

#include <cmath>

using namespace mlir;
using namespace gridloom;
using namespace gridloom::onnx_import;

namespace {

/// The attributes all axes share.
struct ResizeMode {
  std::string mode, nearest, transform;
  double cubic = -0.75, fill = 0;
  bool antialias = false, excludeOutside = false;
  bool shrinksUp = false; // positions on an axis that shrinks are rounded up
};

/// One axis to resize. `scale` need not be the quotient of the sizes; the region is in the
/// normalised coordinates of tf_crop_and_resize.
struct AxisResize {
  int64_t dim, input, output;
  double scale, regionBegin = 0, regionEnd = 1;
};

/// The elements that output positions of one axis read: [output][tap].
struct Taps {
  std::vector<std::vector<int64_t>> places;
  std::vector<std::vector<double>> weights;
  std::vector<bool> isOutside; // the result is the fill value
};

} // namespace

//===----------------------------------------------------------------------===//
// Source positions
//===----------------------------------------------------------------------===//

/// The input coordinate of output position `y`.
static double findSource(const ResizeMode &mode, const AxisResize &axis, int64_t y) {
  // The nearest elements are those of ONNX Runtime, which rounds to f32 on the way: what is whole
  // or a half for the decimal number that a scale stands for, is so there, too.
  auto round = [isNearest = mode.mode == "nearest"](double x) -> double {
    return isNearest ? static_cast<float>(x) : x;
  };
  auto input = static_cast<double>(axis.input), position = static_cast<double>(y);
  double scale = round(axis.scale);
  // A scale is f32: its products that are whole in f32 are meant to be whole.
  double output = static_cast<float>(axis.scale * input);
  double centre = round((position + 0.5) / scale) - 0.5;
  // ONNX's node tests take the length with its fraction, ONNX Runtime the whole one.
  if (mode.transform == "align_corners")
    return output == 1 ? 0 : position * (input - 1) / (output - 1);
  if (mode.transform == "asymmetric")
    return position / scale;
  if (mode.transform == "tf_crop_and_resize") {
    // In f32, which decides what is outside.
    auto begin = static_cast<float>(axis.regionBegin), end = static_cast<float>(axis.regionEnd);
    auto last = static_cast<float>(axis.input - 1);
    if (output == 1)
      return 0.5F * (begin + end) * last;
    float inside = static_cast<float>(position) * (end - begin) * last;
    return begin * last + inside / static_cast<float>(output - 1);
  }
  // Here the length is the result's, a whole number.
  if (mode.transform == "pytorch_half_pixel")
    return axis.output == 1 ? 0 : centre;
  if (mode.transform == "half_pixel_symmetric") {
    double adjustment = round(static_cast<double>(axis.output) / static_cast<float>(scale * input));
    return round(input / 2 * (1 - adjustment)) + (position + 0.5) / scale - 0.5;
  }
  return centre;
}

static double roundNearest(const ResizeMode &resize, const AxisResize &axis, double source) {
  double x = static_cast<float>(source);
  if (resize.shrinksUp && axis.scale < 1)
    return std::ceil(x);
  StringRef mode = resize.nearest;
  // Halves may be off by the rounding of their scale.
  double half = std::floor(x) + 0.5;
  bool isHalf = std::abs(x - half) <= 1e-6;
  if (mode == "round_prefer_floor")
    return isHalf ? half - 0.5 : std::ceil(x - 0.5);
  if (mode == "round_prefer_ceil")
    return isHalf ? half + 0.5 : std::floor(x + 0.5);
  return mode == "ceil" ? std::ceil(x) : std::floor(x);
}

/// The weight of an element at `distance`.
static double weigh(const ResizeMode &mode, double distance) {
  double x = std::abs(distance), a = mode.cubic;
  if (mode.mode == "linear")
    return std::max(1 - x, 0.0);
  if (x <= 1)
    return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

/// The inverse of the factor by which antialias widens the kernel when an image shrinks.
static double getShrink(const ResizeMode &mode, const AxisResize &axis) {
  return mode.antialias ? std::min(axis.scale, 1.0) : 1;
}

/// The first tap, relative to the position; the last is 1 - first.
static int64_t findFirstTap(const ResizeMode &mode, const AxisResize &axis) {
  double radius = mode.mode == "linear" ? 1 : 2;
  return static_cast<int64_t>(std::floor(-radius / getShrink(mode, axis))) + 1;
}

static int64_t countTaps(const ResizeMode &mode, const AxisResize &axis) {
  return mode.mode == "nearest" ? 1 : 2 - 2 * findFirstTap(mode, axis);
}

static Taps findTaps(const ResizeMode &mode, const AxisResize &axis) {
  Taps taps;
  auto clamp = [&](double place) {
    return std::clamp<int64_t>(static_cast<int64_t>(place), 0, axis.input - 1);
  };
  double shrink = getShrink(mode, axis);
  int64_t first = findFirstTap(mode, axis);
  for (int64_t y = 0; y < axis.output; ++y) {
    double x = findSource(mode, axis, y), base = std::floor(x);
    bool isOutside = mode.transform == "tf_crop_and_resize" &&
                     (x < 0 || x > static_cast<double>(axis.input - 1));
    taps.isOutside.push_back(isOutside);
    std::vector<int64_t> places;
    std::vector<double> weights;
    if (mode.mode == "nearest") {
      places = {clamp(roundNearest(mode, axis, x))};
      weights = {1};
    } else {
      double sum = 0;
      for (int64_t i = first; i <= 1 - first; ++i) {
        double place = base + static_cast<double>(i);
        double weight = weigh(mode, (place - x) * shrink);
        if (mode.excludeOutside && (place < 0 || place > static_cast<double>(axis.input - 1)))
          weight = 0;
        places.push_back(clamp(place));
        weights.push_back(weight);
        sum += weight;
      }
      if ((mode.antialias || mode.excludeOutside) && sum != 0)
        for (double &weight : weights)
          weight /= sum;
    }
    taps.places.push_back(std::move(places));
    taps.weights.push_back(std::move(weights));
  }
  return taps;
}

//===----------------------------------------------------------------------===//
// Building
//===----------------------------------------------------------------------===//

/// x repeated `count` times each along `dim`.
static Value repeat(Node &node, Value x, int64_t dim, int64_t count) {
  SmallVector<int64_t> spread(getShape(x)), merged(spread), dims;
  for (int64_t i = 0, rank = spread.size(); i < rank; ++i)
    dims.push_back(i <= dim ? i : i + 1);
  spread.insert(spread.begin() + dim + 1, count);
  merged[dim] *= count;
  return node.reshape(node.broadcast(x, spread, dims), merged);
}

static Value resizeNearest(Node &node, Value x, const AxisResize &axis, const Taps &taps) {
  Dims places;
  for (const std::vector<int64_t> &list : taps.places)
    places.push_back(list[0]);
  int64_t times = axis.output / axis.input;
  bool repeats = axis.output % axis.input == 0;
  for (auto [y, place] : llvm::enumerate(places))
    repeats &= place == static_cast<int64_t>(y) / std::max<int64_t>(times, 1);
  if (repeats)
    return repeat(node, x, axis.dim, times);
  return node.gather(x, node.ints(places), axis.dim);
}

/// A product with an [input, output] matrix of the weights.
static Value resizeByMatrix(Node &node, Value x, const AxisResize &axis, const Taps &taps) {
  std::vector<double> matrix(axis.input * axis.output);
  for (int64_t y = 0; y < axis.output; ++y)
    for (auto [place, weight] : llvm::zip_equal(taps.places[y], taps.weights[y]))
      matrix[place * axis.output + y] += weight;
  loom::ElementKind kind = *loom::getElementKind(getTensorType(x).getElementType());
  Value weights =
      node.constant(loom::HostTensor::fromDoubles(kind, {axis.input, axis.output}, matrix));
  Value product = node.dotGeneral(x, weights, {}, {}, {axis.dim}, {0});
  // The new dimension is the last.
  int64_t rank = getTensorType(x).getRank();
  SmallVector<int64_t> order = llvm::to_vector(llvm::seq<int64_t>(0, rank - 1));
  order.insert(order.begin() + axis.dim, rank - 1);
  return node.transpose(product, order);
}

/// The weighted sum of what each tap reads.
static Value resizeByTaps(Node &node, Value x, const AxisResize &axis, const Taps &taps) {
  loom::ElementKind kind = *loom::getElementKind(getTensorType(x).getElementType());
  Value sum;
  for (size_t i = 0; i < taps.places[0].size(); ++i) {
    Dims places;
    std::vector<double> weights;
    for (int64_t y = 0; y < axis.output; ++y) {
      places.push_back(taps.places[y][i]);
      weights.push_back(taps.weights[y][i]);
    }
    if (llvm::all_of(weights, [](double weight) { return weight == 0; }))
      continue;
    Value read = node.gather(x, node.ints(places), axis.dim);
    Value weight = node.constant(loom::HostTensor::fromDoubles(kind, {axis.output}, weights));
    if (!read)
      return {};
    Value term =
        node.binary<loom::MultiplyOp>(read, node.broadcast(weight, getShape(read), {axis.dim}));
    sum = sum ? node.binary<loom::AddOp>(sum, term) : term;
  }
  return sum;
}

static Value resizeAxis(Node &node, Value x, const ResizeMode &mode, const AxisResize &axis) {
  Taps taps = findTaps(mode, axis);
  Value result;
  if (mode.mode == "nearest") {
    result = resizeNearest(node, x, axis, taps);
  } else {
    // The last dimension is multiplied without transposing; elsewhere few taps cost less than a
    // matrix full of zeros.
    constexpr size_t kMaxTaps = 4;
    constexpr int64_t kMaxMatrix = int64_t(1) << 26;
    bool isLast = axis.dim + 1 == getTensorType(x).getRank();
    bool multiplies = getTensorType(x).getElementType().isF32() &&
                      axis.input * axis.output <= kMaxMatrix &&
                      (isLast || taps.places[0].size() > kMaxTaps);
    result = multiplies ? resizeByMatrix(node, x, axis, taps) : resizeByTaps(node, x, axis, taps);
  }
  if (!result || llvm::none_of(taps.isOutside, [](bool outside) { return outside; }))
    return result;
  std::vector<int64_t> outside(taps.isOutside.begin(), taps.isOutside.end());
  Value mask =
      node.constant(loom::HostTensor::fromInts(loom::ElementKind::Bool, {axis.output}, outside));
  return node.select(node.broadcast(mask, getShape(result), {axis.dim}),
                     node.splatLike(result, mode.fill), result);
}

//===----------------------------------------------------------------------===//
// Import
//===----------------------------------------------------------------------===//

/// The numbers of an operand; empty if it is absent or has no elements. Nothing, with an error, if
/// they are not known at compile time.
static std::optional<std::vector<double>> readNumbers(Node &node, unsigned index, StringRef name) {
  if (!node.hasOperand(index) || getTensorType(node.operand(index)).getNumElements() == 0)
    return std::vector<double>();
  std::optional<loom::HostTensor> tensor = node.foldedOperand(index);
  if (!tensor) {
    node.error() << name << " is not known at compile time; make it an initializer";
    return std::nullopt;
  }
  return tensor->toDoubles();
}

static std::optional<ResizeMode> readMode(Node &node) {
  ResizeMode mode;
  bool isOld = node.getOpset() < 11;
  mode.mode = node.stringAttribute("mode", "nearest");
  mode.nearest = node.stringAttribute("nearest_mode", isOld ? "floor" : "round_prefer_floor");
  mode.transform =
      node.stringAttribute("coordinate_transformation_mode", isOld ? "asymmetric" : "half_pixel");
  mode.cubic = node.floatAttribute("cubic_coeff_a", -0.75);
  mode.fill = node.floatAttribute("extrapolation_value", 0);
  mode.antialias = node.intAttribute("antialias", 0) != 0;
  // Version 10 has no nearest_mode; this is what ONNX Runtime does.
  mode.shrinksUp = isOld;
  mode.excludeOutside = node.intAttribute("exclude_outside", 0) != 0;
  auto check = [&](StringRef name, StringRef value, ArrayRef<StringRef> known) {
    if (llvm::is_contained(known, value))
      return true;
    node.error() << name << " '" << value << "' is not one of " << llvm::join(known, ", ");
    return false;
  };
  if (!check("mode", mode.mode, {"nearest", "linear", "cubic"}) ||
      !check("nearest_mode", mode.nearest,
             {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"}) ||
      !check("coordinate_transformation_mode", mode.transform,
             {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners",
              "asymmetric", "tf_crop_and_resize"}))
    return std::nullopt;
  return mode;
}

/// Sizes from scales, or scales from sizes, of the axes in `list`.
static LogicalResult setSizes(Node &node, MutableArrayRef<AxisResize> list, ArrayRef<double> scales,
                              ArrayRef<double> sizes) {
  if (scales.size() != (scales.empty() ? 0 : list.size()) ||
      sizes.size() != (sizes.empty() ? 0 : list.size()) || scales.empty() == sizes.empty())
    return node.error() << "has " << scales.size() << " scales and " << sizes.size()
                        << " sizes for " << list.size() << " axes; give one of them";
  for (auto [i, axis] : llvm::enumerate(list)) {
    axis.scale = sizes.empty() ? scales[i] : sizes[i] / static_cast<double>(axis.input);
    if (!(axis.scale > 0) || !(axis.scale < 1e9))
      return node.error() << "cannot scale a dimension of " << axis.input << " by " << axis.scale;
    // ONNX Runtime multiplies in f32: 1.3 times 10 is 13.
    axis.output = static_cast<int64_t>(
        sizes.empty() ? std::floor(static_cast<float>(axis.scale * static_cast<double>(axis.input)))
                      : sizes[i]);
  }
  std::string policy = node.stringAttribute("keep_aspect_ratio_policy", "stretch");
  if (policy == "stretch" || sizes.empty())
    return success();
  if (policy != "not_larger" && policy != "not_smaller")
    return node.error() << "keep_aspect_ratio_policy '" << policy
                        << "' is not one of stretch, not_larger, not_smaller";
  double scale = list[0].scale;
  for (const AxisResize &axis : list)
    scale = policy == "not_larger" ? std::min(scale, axis.scale) : std::max(scale, axis.scale);
  for (AxisResize &axis : list) {
    axis.scale = scale;
    axis.output = static_cast<int64_t>(std::floor(scale * static_cast<double>(axis.input) + 0.5));
  }
  return success();
}

/// Reads the regions from operand `index`: begins, then ends.
static LogicalResult setRegion(Node &node, MutableArrayRef<AxisResize> list, unsigned index) {
  auto region = readNumbers(node, index, "roi");
  if (!region)
    return failure();
  if (region->size() != 2 * list.size())
    return node.error() << "roi has " << region->size() << " numbers, expected " << 2 * list.size();
  for (auto [i, axis] : llvm::enumerate(list)) {
    axis.regionBegin = (*region)[i];
    axis.regionEnd = (*region)[i + list.size()];
  }
  return success();
}

/// Interpolated numbers as integers. Without a filter, linear ones are truncated, as ONNX Runtime
/// does; others are rounded, halves away from zero, and may be beyond the elements' range.
static Value toIntegers(Node &node, Value x, const ResizeMode &mode, IntegerType type) {
  if (!x || type.getWidth() == 1 || (mode.mode == "linear" && !mode.antialias))
    return node.convert(x, type);
  Value half = node.select(node.compare(loom::Direction::LT, x, 0.0), node.splatLike(x, -0.5),
                           node.splatLike(x, 0.5));
  Value rounded = node.binary<loom::AddOp>(x, half);
  return type.getWidth() <= 16 ? saturate(node, rounded, type) : node.convert(rounded, type);
}

/// Resizes the axes that change. Other types are converted to f32 for interpolation.
static LogicalResult resize(Node &node, Value x, const ResizeMode &mode,
                            ArrayRef<AxisResize> list) {
  Type element = getTensorType(x).getElementType();
  auto stays = [](const AxisResize &axis) {
    bool isWhole = axis.regionBegin == 0 && axis.regionEnd == 1;
    return axis.input == axis.output && std::abs(axis.scale - 1) < 1e-9 && isWhole;
  };
  bool converts = mode.mode != "nearest" && !isa<FloatType>(element) && !llvm::all_of(list, stays);
  Value result = converts ? node.convert(x, Float32Type::get(node.getContext())) : x;
  for (const AxisResize &axis : list) {
    if (stays(axis))
      continue;
    // Places and weights are computed at import, for every element of the axis.
    if (axis.input < 1 || axis.output < 1 || std::max(axis.input, axis.output) > kMostTableEntries)
      return node.error() << "cannot resize a dimension of " << axis.input << " to " << axis.output;
    constexpr int64_t kMaxTaps = int64_t(1) << 23;
    int64_t taps = 0;
    if (llvm::MulOverflow(countTaps(mode, axis), axis.output, taps) || taps > kMaxTaps)
      return node.error() << "cannot resize a dimension of " << axis.input << " to " << axis.output
                          << ": its table would have " << countTaps(mode, axis) << " times "
                          << axis.output << " entries, of at most " << kMaxTaps;
    result = resizeAxis(node, result, mode, axis);
    if (!result)
      return failure();
  }
  return node.setResult(converts ? toIntegers(node, result, mode, cast<IntegerType>(element))
                                 : result);
}

/// Since version 11: X, roi, scales, sizes.
static LogicalResult importResize(Node &node) {
  Value x = node.operand(0);
  auto mode = readMode(node);
  auto scales = readNumbers(node, 2, "scales"), sizes = readNumbers(node, 3, "sizes");
  if (!x || !mode || !scales || !sizes)
    return failure();
  int64_t rank = getTensorType(x).getRank();
  Dims axes = node.intsAttribute("axes").value_or(llvm::to_vector<6>(llvm::seq<int64_t>(0, rank)));
  if (!node.normalizeAxes(axes, rank))
    return failure();
  SmallVector<AxisResize> list;
  for (int64_t axis : axes) {
    int64_t dim = axis < 0 ? axis + rank : axis;
    list.push_back({dim, getShape(x)[dim], 0, 1});
  }
  if (failed(setSizes(node, list, *scales, *sizes)))
    return failure();
  if (mode->transform == "tf_crop_and_resize" && failed(setRegion(node, list, 1)))
    return failure();
  return resize(node, x, *mode, list);
}

/// Upsample, and Resize of version 10: X, and scales as an operand or, in version 7, an attribute.
static LogicalResult importUpsample(Node &node) {
  Value x = node.operand(0);
  auto mode = readMode(node);
  if (!x || !mode)
    return failure();
  auto scales = node.floatsAttribute("scales");
  if (!scales)
    scales = readNumbers(node, 1, "scales");
  if (!scales)
    return failure();
  SmallVector<AxisResize> list;
  for (auto [dim, size] : llvm::enumerate(getShape(x)))
    list.push_back({static_cast<int64_t>(dim), size, 0, 1});
  if (failed(setSizes(node, list, *scales, {})))
    return failure();
  return resize(node, x, *mode, list);
}

ArrayRef<OpRule> onnx_import::getResizeRules() {
  static constexpr OpRule rules[] = {
      {"Resize", 10, 10, importUpsample},
      {"Resize", 11, 28, importResize},
      {"Upsample", 7, 9, importUpsample},
  };
  return rules;
}
