//===- Windows.cpp - helpers of convolutions and pooling ------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/Windows.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::onnx_import;

/// No dimension, stride or padding is larger.
static constexpr int64_t kLargest = int64_t(1) << 31;

std::optional<Dims> onnx_import::readList(Node &node, StringRef name, size_t count,
                                          int64_t otherwise, int64_t least) {
  std::optional<Dims> given = node.intsAttribute(name);
  // Some exporters write an empty list for the default.
  if (!given || given->empty())
    return Dims(count, otherwise);
  if (given->size() != count) {
    node.error() << name << " has " << given->size() << " numbers, expected " << count;
    return std::nullopt;
  }
  for (int64_t number : *given)
    if (number < least || number > kLargest) {
      node.error() << name << " has " << number << ", expected at least " << least;
      return std::nullopt;
    }
  return given;
}

/// Padding such that there are ceil(size / stride) positions.
static void padSame(WindowShape &window, ArrayRef<int64_t> spatial, bool isUpper) {
  for (size_t i = 0; i < window.rank(); ++i) {
    int64_t positions = llvm::divideCeil(spatial[i], window.strides[i]);
    int64_t total =
        std::max<int64_t>((positions - 1) * window.strides[i] + window.extent(i) - spatial[i], 0);
    window.low[i] = isUpper ? total / 2 : total - total / 2;
    window.high[i] = total - window.low[i];
  }
}

/// Reads pads and auto_pad.
static LogicalResult readPadding(Node &node, WindowShape &window, ArrayRef<int64_t> spatial) {
  size_t rank = window.rank();
  std::string automatic = node.stringAttribute("auto_pad", "NOTSET");
  window.low.assign(rank, 0);
  window.high = window.low;
  if (automatic == "SAME_UPPER" || automatic == "SAME_LOWER") {
    padSame(window, spatial, automatic == "SAME_UPPER");
    return success();
  }
  if (automatic == "VALID")
    return success();
  if (automatic != "NOTSET" && !automatic.empty())
    return node.error() << "auto_pad '" << automatic
                        << "' is not one of NOTSET, SAME_UPPER, SAME_LOWER, VALID";
  std::optional<Dims> pads = readList(node, "pads", 2 * rank, 0, 0);
  if (!pads)
    return failure();
  window.low.assign(pads->begin(), pads->begin() + rank);
  window.high.assign(pads->begin() + rank, pads->end());
  return success();
}

/// In ceil_mode the last window may extend beyond the padded input, if it begins before the end
/// padding.
static void extendToCeil(WindowShape &window, ArrayRef<int64_t> spatial) {
  for (size_t i = 0; i < window.rank(); ++i) {
    int64_t padded = spatial[i] + window.low[i] + window.high[i], stride = window.strides[i];
    int64_t positions = llvm::divideCeil(padded - window.extent(i), stride) + 1;
    if ((positions - 1) * stride >= spatial[i] + window.low[i])
      --positions;
    window.extra[i] = std::max<int64_t>((positions - 1) * stride + window.extent(i) - padded, 0);
  }
}

std::optional<WindowShape> onnx_import::readWindow(Node &node, ArrayRef<int64_t> spatial,
                                                   ArrayRef<int64_t> sizes) {
  size_t rank = spatial.size();
  WindowShape window;
  if (rank == 0) {
    node.error() << "the input has no spatial dimensions";
    return std::nullopt;
  }
  if (sizes.empty() && !node.hasAttribute("kernel_shape")) {
    node.error() << "has no kernel_shape";
    return std::nullopt;
  }
  auto shape = readList(node, "kernel_shape", rank, 1, 1),
       strides = readList(node, "strides", rank, 1, 1),
       dilations = readList(node, "dilations", rank, 1, 1);
  if (!shape || !strides || !dilations)
    return std::nullopt;
  if (!sizes.empty() && node.hasAttribute("kernel_shape") && ArrayRef<int64_t>(*shape) != sizes) {
    node.error() << "kernel_shape is " << toString(*shape) << ", the weight's " << toString(sizes);
    return std::nullopt;
  }
  window.sizes = sizes.empty() ? *shape : Dims(sizes);
  window.strides = *strides;
  window.dilations = *dilations;
  window.extra.assign(rank, 0);
  for (size_t i = 0; i < rank; ++i)
    if (window.sizes[i] < 1 || window.sizes[i] > kLargest) {
      node.error() << "a window of " << toString(window.sizes) << " is not possible";
      return std::nullopt;
    }
  if (failed(readPadding(node, window, spatial)))
    return std::nullopt;
  for (size_t i = 0; i < rank; ++i) {
    int64_t padded = spatial[i] + window.low[i] + window.high[i];
    if (spatial[i] > 0 && padded >= window.extent(i))
      continue;
    node.error() << "a window of " << window.extent(i) << " does not fit into spatial dimension "
                 << i << ", which has " << padded << " elements with padding";
    return std::nullopt;
  }
  if (node.intAttribute("ceil_mode", 0))
    extendToCeil(window, spatial);
  return window;
}

Value onnx_import::convolve(Node &node, Value x, Value weight, const WindowShape &window,
                            ArrayRef<int64_t> inputDilations, int64_t groups) {
  if (!x || !weight)
    return {};
  SmallVector<int64_t> shape{getShape(x)[0], getShape(weight)[0]};
  for (size_t i = 0; i < window.rank(); ++i)
    shape.push_back(window.positions(i, (getShape(x)[i + 2] - 1) * inputDilations[i] + 1));
  return node.emit<loom::ConvolutionOp>(getTensorType(x).clone(shape), x, weight, window.strides,
                                        window.low, window.high, inputDilations, window.dilations,
                                        groups);
}

Value onnx_import::addBias(Node &node, Value x, unsigned index) {
  if (!x || !node.hasOperand(index))
    return x;
  Value bias = node.operand(index);
  if (getShape(bias) != ArrayRef<int64_t>{getShape(x)[1]}) {
    node.error() << "bias is " << toString(getShape(bias)) << " for " << getShape(x)[1]
                 << " channels";
    return {};
  }
  if (failed(node.checkSameElementType(x, bias)))
    return {};
  return node.binary<loom::AddOp>(x, node.broadcast(bias, getShape(x), {1}));
}

Value onnx_import::reduceWindows(Node &node, Value x, dist::ReductionKind kind,
                                 const WindowShape &window) {
  if (!x)
    return {};
  SmallVector<int64_t> shape(getShape(x)), dims, high;
  for (size_t i = 0; i < window.rank(); ++i) {
    shape[i + 2] = window.positions(i, shape[i + 2]);
    dims.push_back(i + 2);
    high.push_back(window.high[i] + window.extra[i]);
  }
  return node.emit<loom::ReduceWindowOp>(getTensorType(x).clone(shape), x, kind, dims, window.sizes,
                                         window.strides, window.low, high, window.dilations);
}
