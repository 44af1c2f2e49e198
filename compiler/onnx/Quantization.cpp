//===- Quantization.cpp - narrow numbers that stand for floats ------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// An integer or 8-bit float q stands for (q - zero point) * scale. Bytes are widened to i32 or to
// floats before anything is computed with them.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/Quantization.h"

#include "compiler/onnx/Narrow.h"
#include "compiler/onnx/OpTable.h"
#include "compiler/onnx/Parts.h"
#include "compiler/onnx/Windows.h"

#include "llvm/Support/MathExtras.h"

#include <cmath>

using namespace mlir;
using namespace gridloom;
using namespace gridloom::onnx_import;

//===----------------------------------------------------------------------===//
// Scales and zero points
//===----------------------------------------------------------------------===//

Value onnx_import::spread(Node &node, Value parameter, ArrayRef<int64_t> shape,
                          std::optional<int64_t> axis, int64_t block) {
  if (!parameter)
    return parameter;
  ArrayRef<int64_t> given = getShape(parameter);
  int64_t rank = shape.size();
  if (loom::countElements(given) == 1)
    return node.reshape(parameter, {});
  int64_t dim = axis.value_or(rank - 1);
  bool hasDim = dim >= 0 && dim < rank;
  if (block == 0 && given.size() == 1 && hasDim && given[0] == shape[dim]) {
    Dims aligned(rank, 1);
    aligned[dim] = given[0];
    return node.reshape(parameter, aligned);
  }
  Dims wanted(shape);
  if (block > 0 && hasDim)
    wanted[dim] = llvm::divideCeil(shape[dim], block);
  // The block of each element is computed here.
  if (block > 0 && hasDim && shape[dim] > kMostTableEntries) {
    node.error() << "dimension " << dim << " of " << toString(shape) << " has more than the "
                 << kMostTableEntries << " elements that can be scaled in blocks";
    return {};
  }
  if (block > 0 && hasDim && given == ArrayRef<int64_t>(wanted)) {
    Dims indices;
    for (int64_t i = 0; i < shape[dim]; ++i)
      indices.push_back(i / block);
    return node.gather(parameter, node.ints(indices), dim);
  }
  node.error() << "scale or zero point " << toString(given) << " does not fit " << toString(shape)
               << (block > 0 ? " in blocks of " + std::to_string(block) : "");
  return {};
}

/// The smallest and largest number of an integer type.
static std::optional<std::pair<double, double>> getRange(Type type) {
  auto integer = dyn_cast<IntegerType>(type);
  if (!integer || integer.getWidth() > 32 || integer.getWidth() < 2)
    return std::nullopt;
  double half = std::ldexp(1.0, integer.getWidth() - 1);
  if (integer.isUnsigned())
    return std::pair(0.0, 2 * half - 1);
  return std::pair(-half, half - 1);
}

Value onnx_import::saturate(Node &node, Value x, Type type) {
  auto range = getRange(type);
  if (!range) {
    node.error() << "cannot quantize to " << type;
    return {};
  }
  Value low = node.binary<loom::MaximumOp>(x, range->first);
  return node.convert(node.binary<loom::MinimumOp>(low, range->second), getCarrier(type));
}

Value onnx_import::quantize(Node &node, Value x, Value scale, Value zeroPoint, Type type) {
  Value ratio = node.binary<loom::DivideOp>(x, scale);
  bool isFloat = isa<FloatType>(type);
  if (!isFloat)
    ratio = node.unary<loom::RoundNearestEvenOp>(ratio);
  if (zeroPoint && ratio)
    ratio = node.binary<loom::AddOp>(
        ratio, node.convert(zeroPoint, getTensorType(ratio).getElementType()));
  if (isFloat && isNarrow(type))
    return convertToNarrow(node, ratio, type);
  if (isFloat)
    return node.convert(ratio, type, node.intAttribute("saturate", 1) != 0);
  return ratio ? saturate(node, ratio, type) : ratio;
}

Value onnx_import::dequantize(Node &node, Value x, Value scale, Value zeroPoint) {
  if (!x || !scale)
    return {};
  Type element = getTensorType(scale).getElementType();
  // Differences of 32-bit integers are exact in i32 only, all others in f32.
  bool isWide = getTensorType(x).getElementTypeBitWidth() > 16;
  Type exact = isWide ? Type(IntegerType::get(node.getContext(), 32))
                      : Type(Float32Type::get(node.getContext()));
  Value centred = node.convert(x, exact);
  if (zeroPoint)
    centred = node.binary<loom::SubtractOp>(centred, node.convert(zeroPoint, exact));
  Type wide = Float32Type::get(node.getContext());
  Value product =
      node.binary<loom::MultiplyOp>(node.convert(centred, wide), node.convert(scale, wide));
  return node.convert(product, element);
}

//===----------------------------------------------------------------------===//
// QuantizeLinear and DequantizeLinear
//===----------------------------------------------------------------------===//

namespace {
struct Parameters {
  Value scale, zeroPoint;
};
} // namespace

/// Operands 1 and 2 for x along the node's axis.
static FailureOr<Parameters> readParameters(Node &node, Value x) {
  if (!x)
    return failure();
  ArrayRef<int64_t> shape = getShape(x);
  int64_t axis = node.intAttribute("axis", 1), block = node.intAttribute("block_size", 0);
  int64_t rank = shape.size();
  // A scalar has no axis, and the default is no dimension of a vector.
  if (axis < -rank || axis >= rank)
    axis = 0;
  if (block < 0)
    return node.error() << "block_size is " << block;
  axis = axis < 0 ? axis + rank : axis;
  Parameters result;
  result.scale = spread(node, node.operand(1), shape, axis, block);
  if (!result.scale)
    return failure();
  if (node.hasOperand(2) && !(result.zeroPoint = spread(node, node.operand(2), shape, axis, block)))
    return failure();
  return result;
}

static LogicalResult importQuantizeLinear(Node &node) {
  Value x = node.operand(0);
  FailureOr<Parameters> parameters = readParameters(node, x);
  if (failed(parameters))
    return failure();
  Type type = IntegerType::get(node.getContext(), 8, IntegerType::Unsigned);
  if (node.intAttribute("output_dtype", 0) != 0)
    type = node.convertedType(node.intAttribute("output_dtype", 0));
  if (node.hasOperand(2))
    type = node.getElement(2);
  Type wide = Float32Type::get(node.getContext());
  if (!type)
    return failure();
  return node.setResult(0,
                        quantize(node, node.convert(x, wide), node.convert(parameters->scale, wide),
                                 parameters->zeroPoint, type),
                        isNarrow(type) ? type : Type());
}

static LogicalResult importDequantizeLinear(Node &node) {
  Value x = node.operand(0);
  FailureOr<Parameters> parameters = readParameters(node, x);
  if (failed(parameters))
    return failure();
  Value result = dequantize(node, x, parameters->scale, parameters->zeroPoint);
  if (int64_t wanted = node.intAttribute("output_dtype", 0); wanted != 0) {
    Type type = node.elementType(wanted);
    if (!type)
      return failure();
    result = node.convert(result, type);
  }
  return node.setResult(result);
}

Value Quantized::centred(Node &node) const {
  Type i32 = IntegerType::get(node.getContext(), 32);
  return node.binary<loom::SubtractOp>(node.convert(values, i32), node.convert(zeroPoint, i32));
}

FailureOr<Quantized> onnx_import::quantizeByRange(Node &node, Value x) {
  if (!x)
    return failure();
  if (getTensorType(x).getNumElements() == 0)
    return node.error() << "input " << toString(getShape(x)) << " has no elements";
  Dims all = llvm::to_vector(llvm::seq<int64_t>(0, getTensorType(x).getRank()));
  auto extreme = [&](dist::ReductionKind kind) {
    return node.reduce(x, kind, all, /*keepDims=*/false);
  };
  Value high = node.binary<loom::MaximumOp>(extreme(dist::ReductionKind::Max), 0.0);
  Value low = node.binary<loom::MinimumOp>(extreme(dist::ReductionKind::Min), 0.0);
  Value range = node.binary<loom::SubtractOp>(high, low);
  Value scale = node.binary<loom::DivideOp>(range, 255.0);
  // If all numbers are zero, any scale except 0 works; ONNX Runtime's is 1.
  scale =
      node.select(node.compare(loom::Direction::EQ, range, 0.0), node.splatLike(scale, 1), scale);
  Type byte = IntegerType::get(node.getContext(), 8, IntegerType::Unsigned);
  Value zero = node.unary<loom::RoundNearestEvenOp>(
      node.binary<loom::DivideOp>(node.unary<loom::NegateOp>(low), scale));
  Quantized result;
  result.scale = scale;
  result.zeroPoint = zero ? saturate(node, zero, byte) : zero;
  result.values = quantize(node, x, scale, result.zeroPoint, byte);
  if (!result.values)
    return failure();
  return result;
}

static LogicalResult importDynamicQuantizeLinear(Node &node) {
  FailureOr<Quantized> result = quantizeByRange(node, node.operand(0));
  return failure(failed(result) || failed(node.setResult(0, result->values)) ||
                 failed(node.setResult(1, result->scale)) ||
                 failed(node.setResult(2, result->zeroPoint)));
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

Value onnx_import::centre(Node &node, unsigned index, unsigned zeroPoint, int64_t axisFromEnd,
                          Type type) {
  Value x = node.operand(index);
  Value wide = x ? node.convert(x, type) : x;
  if (!wide || !node.hasOperand(zeroPoint))
    return wide;
  Value point = node.convert(node.operand(zeroPoint), type);
  int64_t rank = getTensorType(x).getRank();
  if (point && getTensorType(point).getRank() <= 1)
    point = spread(node, point, getShape(x), std::max<int64_t>(rank - axisFromEnd, 0), 0);
  return point ? node.binary<loom::SubtractOp>(wide, point) : point;
}

static LogicalResult importMatMulInteger(Node &node) {
  Type i32 = IntegerType::get(node.getContext(), 32);
  Value x = centre(node, 0, 2, 2, i32), y = centre(node, 1, 3, 1, i32);
  return node.setResult(node.matmul(x, y));
}

/// Operands are x, its scale and zero point, the same of y, and the result's scale and zero point.
static LogicalResult importQLinearMatMul(Node &node) {
  Type i32 = IntegerType::get(node.getContext(), 32), f32 = Float32Type::get(node.getContext());
  Value product = node.matmul(centre(node, 0, 2, 2, i32), centre(node, 3, 5, 1, i32));
  if (!product || !node.operand(1) || !node.operand(4) || !node.operand(6) || !node.operand(7))
    return failure();
  ArrayRef<int64_t> shape = getShape(product);
  int64_t rank = shape.size();
  auto scaleOf = [&](unsigned index, int64_t axis) {
    return spread(node, node.convert(node.operand(index), f32), shape, std::max<int64_t>(axis, 0),
                  0);
  };
  Value xScale = scaleOf(1, rank - 2), yScale = scaleOf(4, rank - 1), scale = scaleOf(6, rank - 1);
  Value zeroPoint = spread(node, node.operand(7), shape, rank - 1, 0);
  if (!xScale || !yScale || !scale || !zeroPoint)
    return failure();
  Value factor = node.binary<loom::DivideOp>(node.binary<loom::MultiplyOp>(xScale, yScale), scale);
  Value real = node.binary<loom::MultiplyOp>(node.convert(product, f32), factor);
  return node.setResult(quantize(node, real, node.splat(RankedTensorType::get({}, f32), 1),
                                 zeroPoint, getTensorType(node.operand(7)).getElementType()));
}

/// The convolution of centred integers, padded with zeros, which stand for the zero point.
static Value convolveIntegers(Node &node, Value x, Value weight) {
  if (!x || !weight)
    return {};
  ArrayRef<int64_t> input = getShape(x), shape = getShape(weight);
  int64_t groups = node.intAttribute("group", 1);
  if (input.size() < 3 || shape.size() != input.size() || groups < 1 ||
      input[1] != shape[1] * groups || shape[0] % groups) {
    node.error() << "cannot convolve " << toString(input) << " with " << toString(shape) << " in "
                 << groups << " groups";
    return {};
  }
  std::optional<WindowShape> window = readWindow(node, input.drop_front(2), shape.drop_front(2));
  if (!window)
    return {};
  return convolve(node, x, weight, *window, Dims(input.size() - 2, 1), groups);
}

/// Operand `index` minus its zero point, which may be one for each element of dimension 0.
static Value centreChannels(Node &node, unsigned index, unsigned zeroPoint, Type type) {
  Value x = node.operand(index);
  return x ? centre(node, index, zeroPoint, getTensorType(x).getRank(), type) : x;
}

static LogicalResult importConvInteger(Node &node) {
  Type i32 = IntegerType::get(node.getContext(), 32);
  return node.setResult(
      convolveIntegers(node, centreChannels(node, 0, 2, i32), centreChannels(node, 1, 3, i32)));
}

static LogicalResult importQLinearConv(Node &node) {
  Type i32 = IntegerType::get(node.getContext(), 32), f32 = Float32Type::get(node.getContext());
  bool areLast = node.intAttribute("channels_last", 0) != 0;
  Value x = centreChannels(node, 0, 2, i32);
  Value product = convolveIntegers(node, areLast ? moveChannels(node, x, /*toFront=*/true) : x,
                                   centreChannels(node, 3, 5, i32));
  if (product && node.hasOperand(8))
    product = addBias(node, product, 8);
  if (!product || !node.operand(1) || !node.operand(4) || !node.operand(6) || !node.operand(7))
    return failure();
  auto scaleOf = [&](unsigned index) {
    return spread(node, node.convert(node.operand(index), f32), getShape(product), 1, 0);
  };
  Value xScale = scaleOf(1), wScale = scaleOf(4), scale = scaleOf(6);
  if (!xScale || !wScale || !scale)
    return failure();
  Value factor = node.binary<loom::DivideOp>(node.binary<loom::MultiplyOp>(xScale, wScale), scale);
  Value real = node.binary<loom::MultiplyOp>(node.convert(product, f32), factor);
  Value result = quantize(node, real, node.splat(RankedTensorType::get({}, f32), 1),
                          spread(node, node.operand(7), getShape(product), 1, 0),
                          getTensorType(node.operand(7)).getElementType());
  return node.setResult(areLast ? moveChannels(node, result, /*toFront=*/false) : result);
}

ArrayRef<OpRule> onnx_import::getQuantizationRules() {
  static constexpr StringLiteral ms = "com.microsoft";
  static constexpr OpRule rules[] = {
      {"ConvInteger", 10, 28, importConvInteger},
      {"DequantizeLinear", 10, 28, importDequantizeLinear},
      {"DequantizeLinear", 1, 1, importDequantizeLinear, ms},
      {"DynamicQuantizeLinear", 11, 28, importDynamicQuantizeLinear},
      {"MatMulInteger", 10, 28, importMatMulInteger},
      {"QLinearConv", 10, 28, importQLinearConv},
      {"QLinearConv", 1, 1, importQLinearConv, ms},
      {"QLinearMatMul", 10, 28, importQLinearMatMul},
      {"QuantizeLinear", 10, 28, importQuantizeLinear},
      {"QuantizeLinear", 1, 1, importQuantizeLinear, ms},
  };
  return rules;
}
