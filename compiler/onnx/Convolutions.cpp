//===- Convolutions.cpp - Conv and its relatives --------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/OpTable.h"
#include "compiler/onnx/Parts.h"
#include "compiler/onnx/Windows.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::onnx_import;

/// Checks the ranks of input and weight, and that the channels fit the groups. A transposed
/// convolution's weight has the input's channels first.
static LogicalResult checkChannels(Node &node, Value x, Value weight, int64_t groups,
                                   bool isTransposed) {
  if (failed(node.checkSameElementType(x, weight)))
    return failure();
  ArrayRef<int64_t> shape = getShape(x), kernel = getShape(weight);
  if (shape.size() < 3 || kernel.size() != shape.size())
    return node.error() << "cannot convolve " << toString(shape) << " with " << toString(kernel);
  if (groups < 1 || kernel[0] % groups || shape[1] % groups ||
      (isTransposed ? kernel[0] != shape[1] : kernel[1] != shape[1] / groups))
    return node.error() << "weight " << toString(kernel) << " in " << groups
                        << " groups does not fit " << shape[1] << " input channels";
  return success();
}

Value onnx_import::convolution(Node &node) {
  Value x = node.operand(0), weight = node.operand(1);
  int64_t groups = node.intAttribute("group", 1);
  if (failed(checkChannels(node, x, weight, groups, /*isTransposed=*/false)))
    return {};
  auto window = readWindow(node, getShape(x).drop_front(2), getShape(weight).drop_front(2));
  if (!window)
    return {};
  Dims dense(window->rank(), 1);
  return addBias(node, convolve(node, x, weight, *window, dense, groups), 2);
}

Value onnx_import::moveChannels(Node &node, Value x, bool toFront) {
  int64_t rank = x ? getTensorType(x).getRank() : 0;
  if (rank < 3)
    return x;
  Dims order = llvm::to_vector<6>(llvm::seq<int64_t>(0, rank));
  if (toFront)
    std::rotate(order.begin() + 1, order.end() - 1, order.end());
  else
    std::rotate(order.begin() + 1, order.begin() + 2, order.end());
  return node.transpose(x, order);
}

static LogicalResult importConv(Node &node) { return node.setResult(convolution(node)); }

//===----------------------------------------------------------------------===//
// ConvTranspose
//===----------------------------------------------------------------------===//

namespace {
/// A transposed convolution. `low` elements of its full result, (n - 1) * stride + extent per
/// dimension, are cut off in front and `high` at the end, where negative ones add zeros.
struct TransposedWindow {
  Dims sizes, strides, dilations, low, high;
};
} // namespace

/// Cuts `total` elements of dimension i; SAME_UPPER takes the larger half at the end.
static void cut(TransposedWindow &window, size_t i, int64_t total, bool isUpper) {
  int64_t positive = std::max<int64_t>(total, 0);
  window.low[i] = isUpper ? positive / 2 : positive - positive / 2;
  window.high[i] = total - window.low[i];
}

static std::optional<TransposedWindow> readTransposed(Node &node, ArrayRef<int64_t> spatial,
                                                      ArrayRef<int64_t> sizes) {
  size_t rank = spatial.size();
  auto strides = readList(node, "strides", rank, 1, 1),
       dilations = readList(node, "dilations", rank, 1, 1),
       pads = readList(node, "pads", 2 * rank, 0, 0),
       padding = readList(node, "output_padding", rank, 0, 0),
       output = readList(node, "output_shape", rank, -1, 1);
  if (!strides || !dilations || !pads || !padding || !output)
    return std::nullopt;
  TransposedWindow window{Dims(sizes), *strides, *dilations, Dims(rank), Dims(rank)};
  std::string automatic = node.stringAttribute("auto_pad", "NOTSET");
  bool isUpper = automatic == "SAME_UPPER", isSame = isUpper || automatic == "SAME_LOWER";
  if (!isSame && automatic != "NOTSET" && automatic != "VALID") {
    node.error() << "auto_pad '" << automatic
                 << "' is not one of NOTSET, SAME_UPPER, SAME_LOWER, VALID";
    return std::nullopt;
  }
  for (size_t i = 0; i < rank; ++i) {
    int64_t full = (spatial[i] - 1) * window.strides[i] + (sizes[i] - 1) * window.dilations[i] + 1 +
                   (*padding)[i];
    if ((*output)[i] >= 0) {
      cut(window, i, full - (*output)[i], isUpper);
      window.high[i] -= (*padding)[i];
    } else if (isSame) {
      cut(window, i, full - spatial[i] * window.strides[i], isUpper);
      window.high[i] -= (*padding)[i];
    } else {
      window.low[i] = automatic == "VALID" ? 0 : (*pads)[i];
      window.high[i] = (automatic == "VALID" ? 0 : (*pads)[i + rank]) - (*padding)[i];
    }
  }
  return window;
}

/// [C, M / groups, window...] to [M, C / groups, window...], mirrored: a transposed convolution is
/// the convolution of this weight with the input, which has zeros between its elements.
static Value mirrorWeight(Node &node, Value weight, int64_t groups) {
  ArrayRef<int64_t> shape = getShape(weight);
  int64_t inputs = shape[0] / groups, outputs = shape[1],
          count = loom::countElements(shape.drop_front(2));
  // The order of the kernel's elements is computed here.
  if (count > kMostTableEntries) {
    node.error() << "a kernel of " << count << " elements is larger than the " << kMostTableEntries
                 << " that can be mirrored";
    return {};
  }
  Value split = node.reshape(weight, {groups, inputs, outputs, count});
  Value swapped = node.transpose(split, {0, 2, 1, 3});
  Dims reversed, result{groups * outputs, inputs};
  for (int64_t i = count; i-- > 0;)
    reversed.push_back(i);
  llvm::append_range(result, shape.drop_front(2));
  Value mirrored = count == 1 ? swapped : node.gather(swapped, node.ints(reversed), 3);
  return node.reshape(mirrored, result);
}

/// Whether the windows of neighbouring elements touch but do not overlap, and no zeros are added.
static bool isDisjoint(const TransposedWindow &window) {
  bool isSpread = false;
  for (auto [size, stride, dilation, low, high] :
       llvm::zip_equal(window.sizes, window.strides, window.dilations, window.low, window.high)) {
    if (size != stride || (size > 1 && dilation != 1) || low < 0 || high < 0)
      return false;
    isSpread |= size > 1;
  }
  return isSpread;
}

/// A transposed convolution with disjoint windows: a product for each element of the input, whose
/// parts then go to their places (Shi et al. 2016, "Is the deconvolution layer the same as a
/// convolutional layer?"). `weight` is [C, M / groups, window...].
static Value spreadWindows(Node &node, Value x, Value weight, const TransposedWindow &window,
                           int64_t groups) {
  ArrayRef<int64_t> shape = getShape(weight), input = getShape(x);
  size_t rank = window.sizes.size();
  int64_t inputs = shape[0] / groups, outputs = shape[1], count = loom::countElements(window.sizes);
  Value split = node.reshape(weight, {groups, inputs, outputs, count});
  Dims ones(rank, 1), zeros(rank, 0), flat{groups * outputs * count, inputs};
  llvm::append_range(flat, ones);
  Value y = convolve(node, x, node.reshape(node.transpose(split, {0, 2, 3, 1}), flat),
                     WindowShape{ones, ones, ones, zeros, zeros, zeros}, ones, groups);
  if (!y)
    return {};
  Dims parts{input[0], groups * outputs}, order{0, 1}, result = parts;
  llvm::append_range(parts, window.sizes);
  llvm::append_range(parts, input.drop_front(2));
  for (size_t i = 0; i < rank; ++i) {
    order.push_back(2 + rank + i);
    order.push_back(2 + i);
    result.push_back(input[i + 2] * window.sizes[i]);
  }
  y = node.reshape(node.transpose(node.reshape(y, parts), order), result);
  for (size_t i = 0; i < rank; ++i)
    y = node.slice(y, i + 2, window.low[i], result[i + 2] - window.high[i]);
  return y;
}

static LogicalResult importConvTranspose(Node &node) {
  Value x = node.operand(0), weight = node.operand(1);
  int64_t groups = node.intAttribute("group", 1);
  if (failed(checkChannels(node, x, weight, groups, /*isTransposed=*/true)))
    return failure();
  ArrayRef<int64_t> sizes = getShape(weight).drop_front(2);
  std::optional<Dims> given = readList(node, "kernel_shape", sizes.size(), 1, 1);
  if (!given)
    return failure();
  if (node.hasAttribute("kernel_shape") && ArrayRef<int64_t>(*given) != sizes)
    return node.error() << "kernel_shape is " << toString(*given) << ", the weight's "
                        << toString(sizes);
  auto transposed = readTransposed(node, getShape(x).drop_front(2), sizes);
  if (!transposed)
    return failure();

  size_t rank = sizes.size();
  WindowShape window{transposed->sizes, Dims(rank, 1), transposed->dilations,
                     Dims(rank),        Dims(rank),    Dims(rank, 0)};
  Dims cutLow(rank), cutHigh(rank);
  for (size_t i = 0; i < rank; ++i) {
    // Cropped outputs are not computed where that only means less padding.
    int64_t low = window.extent(i) - 1 - transposed->low[i],
            high = window.extent(i) - 1 - transposed->high[i];
    window.low[i] = std::max<int64_t>(low, 0);
    window.high[i] = std::max<int64_t>(high, 0);
    cutLow[i] = window.low[i] - low;
    cutHigh[i] = window.high[i] - high;
    int64_t size = (getShape(x)[i + 2] - 1) * transposed->strides[i] + 1;
    int64_t left = window.positions(i, size) - cutLow[i] - cutHigh[i];
    if (getShape(x)[i + 2] < 1 || left < 1)
      return node.error() << "spatial dimension " << i << " of the output would have " << left
                          << " elements";
  }
  if (isDisjoint(*transposed))
    return node.setResult(addBias(node, spreadWindows(node, x, weight, *transposed, groups), 2));
  Value y =
      convolve(node, x, mirrorWeight(node, weight, groups), window, transposed->strides, groups);
  for (size_t i = 0; y && i < rank; ++i)
    y = node.slice(y, i + 2, cutLow[i], getShape(y)[i + 2] - cutHigh[i]);
  return node.setResult(addBias(node, y, 2));
}

//===----------------------------------------------------------------------===//
// CausalConvWithState
//===----------------------------------------------------------------------===//

/// A convolution per channel that sees present and past positions. The positions that the next call
/// needs are the second result.
static LogicalResult importCausalConvWithState(Node &node) {
  Value x = node.operand(0), weight = node.operand(1);
  if (failed(node.checkSameElementType(x, weight)))
    return failure();
  ArrayRef<int64_t> shape = getShape(x), kernel = getShape(weight);
  if (shape.size() != 3 || kernel.size() != 3 || kernel[0] != shape[1] || kernel[1] != 1 ||
      kernel[2] < 1 || shape[2] < 1)
    return node.error() << "cannot convolve " << toString(shape) << " with " << toString(kernel)
                        << "; expected [batch, channels, length] and [channels, 1, k]";
  int64_t past = kernel[2] - 1;
  Dims stateShape{shape[0], shape[1], past};
  Value state =
      node.hasOperand(3) ? node.operand(3) : node.splat(getTensorType(x).clone(stateShape), 0);
  if (failed(node.checkSameElementType(x, state)))
    return failure();
  if (getShape(state) != ArrayRef<int64_t>(stateShape))
    return node.error() << "past_state is " << toString(getShape(state)) << ", expected "
                        << toString(stateShape);
  Value whole = past == 0 ? x : node.concatenate({state, x}, 2);
  WindowShape window{{kernel[2]}, {1}, {1}, {0}, {0}, {0}};
  // One operation rounds once: 16-bit floats are computed in f32 up to the end.
  Type element = getTensorType(x).getElementType();
  Value y = convolve(node, node.widen(whole), node.widen(weight), window, {1}, shape[1]);
  if (node.hasOperand(2)) {
    if (getShape(node.operand(2)) != ArrayRef<int64_t>{shape[1]})
      return node.error() << "bias is " << toString(getShape(node.operand(2))) << " for "
                          << shape[1] << " channels";
    y = node.binary<loom::AddOp>(y, node.broadcast(node.widen(node.operand(2)), getShape(y), {1}));
  }
  std::string activation = node.stringAttribute("activation", "none");
  if (activation == "silu" || activation == "swish")
    y = node.binary<loom::MultiplyOp>(y, node.unary<loom::LogisticOp>(y));
  else if (activation != "none")
    return node.error() << "activation '" << activation << "' is not one of none, silu, swish";
  if (failed(node.setResult(0, node.convert(y, element))))
    return failure();
  if (!node.hasResult(1))
    return success();
  int64_t length = getShape(whole)[2];
  return node.setResult(1, node.slice(whole, 2, length - past, length));
}

ArrayRef<OpRule> onnx_import::getConvolutionRules() {
  static constexpr OpRule rules[] = {
      {"CausalConvWithState", 27, 28, importCausalConvWithState},
      {"Conv", 1, 28, importConv},
      {"ConvTranspose", 1, 28, importConvTranspose},
  };
  return rules;
}
