//===- ContribQuantized.cpp - com.microsoft quantized operators -----------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Operators that ONNX Runtime's quantizers write besides ONNX's own. An operand called x is
// followed by its scale and its zero point, which may be absent.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/OpTable.h"
#include "compiler/onnx/Parts.h"
#include "compiler/onnx/Quantization.h"
#include "compiler/onnx/Windows.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::onnx_import;

using dist::ReductionKind;

static Value optional(Node &node, unsigned index) {
  return node.hasOperand(index) ? node.operand(index) : Value();
}

/// Operand `index`, dequantized to f32.
static Value realOperand(Node &node, unsigned index) {
  return dequantize(node, node.operand(index), node.operand(index + 1), optional(node, index + 2));
}

/// Sets the result to `real`, quantized to the type of operand `like`, with the scale and zero
/// point from operand `scale` on.
static LogicalResult setQuantized(Node &node, Value real, unsigned scale, unsigned like = 0) {
  if (!real || !node.operand(scale) || !node.operand(like))
    return failure();
  return node.setResult(quantize(node, real, node.operand(scale), optional(node, scale + 1),
                                 getTensorType(node.operand(like)).getElementType()));
}

//===----------------------------------------------------------------------===//
// Elementwise
//===----------------------------------------------------------------------===//

template <typename OpT> static LogicalResult importBinary(Node &node) {
  return setQuantized(node, node.binary<OpT>(realOperand(node, 0), realOperand(node, 3)), 6);
}

static LogicalResult importSigmoid(Node &node) {
  return setQuantized(node, node.unary<loom::LogisticOp>(realOperand(node, 0)), 3);
}

static LogicalResult importLeakyRelu(Node &node) {
  Value x = realOperand(node, 0);
  Value small = node.binary<loom::MultiplyOp>(x, node.floatAttribute("alpha", 0.01f));
  return setQuantized(node, node.select(node.compare(loom::Direction::GT, x, 0.0), x, small), 3);
}

/// QLinearWhere: operands are a condition, x and y.
static LogicalResult importWhere(Node &node) {
  Value result = node.select(node.operand(0), realOperand(node, 1), realOperand(node, 4));
  return setQuantized(node, result, 7, 1);
}

//===----------------------------------------------------------------------===//
// Along dimensions
//===----------------------------------------------------------------------===//

/// `opset` selects the version of Softmax: up to 12, a row is everything after `axis`.
static LogicalResult importSoftmax(Node &node) {
  Value x = realOperand(node, 0);
  if (!x)
    return failure();
  SmallVector<int64_t> shape(getShape(x));
  auto axis = node.normalizeAxis(node.intAttribute("axis", -1), shape.size());
  if (!axis)
    return failure();
  if (node.intAttribute("opset", 13) < 13) {
    x = node.reshape(x, {loom::countElements(ArrayRef(shape).take_front(*axis)),
                         loom::countElements(ArrayRef(shape).drop_front(*axis))});
    axis = 1;
  }
  Value result = x ? node.emit<loom::SoftmaxOp>(x.getType(), x, *axis) : x;
  return setQuantized(node, node.reshape(result, shape), 3);
}

/// Scale and zero point of the result come first, then each x.
static LogicalResult importConcat(Node &node) {
  SmallVector<Value> values;
  for (unsigned i = 2; i < node.getNumOperands(); i += 3) {
    values.push_back(realOperand(node, i));
    if (!values.back())
      return failure();
  }
  if (values.empty())
    return node.error() << "has nothing to concatenate";
  ArrayRef<int64_t> first = getShape(values.front());
  auto axis = node.normalizeAxis(node.intAttribute("axis", 0), first.size());
  if (!axis)
    return failure();
  for (Value value : values) {
    Dims shape(getShape(value));
    if (shape.size() == first.size())
      shape[*axis] = first[*axis];
    if (ArrayRef<int64_t>(shape) != first)
      return node.error() << "cannot concatenate " << toString(first) << " and "
                          << toString(getShape(value)) << " along axis " << *axis;
  }
  return setQuantized(node, node.concatenate(values, *axis), 0, 2);
}

//===----------------------------------------------------------------------===//
// Windows
//===----------------------------------------------------------------------===//

/// Runs `function` on x, whose channels may be last, as [n, c, ...].
static Value channelsFirst(Node &node, Value x, bool areLast,
                           llvm::function_ref<Value(Value)> function) {
  Value result = x ? function(areLast ? moveChannels(node, x, /*toFront=*/true) : x) : x;
  return result && areLast ? moveChannels(node, result, /*toFront=*/false) : result;
}

static LogicalResult importAveragePool(Node &node) {
  Value result =
      channelsFirst(node, realOperand(node, 0), node.intAttribute("channels_last", 0) != 0,
                    [&](Value x) { return averagePool(node, x); });
  return setQuantized(node, result, 3);
}

static LogicalResult importGlobalAveragePool(Node &node) {
  Value result = channelsFirst(
      node, realOperand(node, 0), node.intAttribute("channels_last", 0) != 0, [&](Value x) {
        FailureOr<Dims> dims = getSpatialDims(node, x);
        return failed(dims) ? Value() : node.mean(x, *dims, /*keepDims=*/true);
      });
  return setQuantized(node, result, 3);
}

/// MaxPool of bytes whose channels are last.
static LogicalResult importNhwcMaxPool(Node &node) {
  return node.setResult(
      channelsFirst(node, node.operand(0), /*areLast=*/true, [&](Value x) -> Value {
        std::optional<WindowShape> window = readPool(node, x);
        return window ? reduceWindows(node, x, ReductionKind::Max, *window) : Value();
      }));
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

/// (a - zero point) times (b - zero point), scaled, plus the bias: operands a, b, their scales,
/// their zero points, bias.
static LogicalResult importMatMulIntegerToFloat(Node &node) {
  Type i32 = IntegerType::get(node.getContext(), 32), f32 = Float32Type::get(node.getContext());
  Value product = node.matmul(centre(node, 0, 4, 2, i32), centre(node, 1, 5, 1, i32));
  Value result = node.convert(product, f32);
  if (!result)
    return failure();
  for (unsigned index : {2u, 3u}) {
    Value scale = spread(node, node.operand(index), getShape(product), std::nullopt, 0);
    if (!scale)
      return failure();
    result = node.binary<loom::MultiplyOp>(result, scale);
  }
  if (node.hasOperand(6))
    result = node.binary<loom::AddOp>(result, node.operand(6));
  return node.setResult(result);
}

/// a, quantized by its range, times b: operands a, b, b's scale and zero point, bias.
static LogicalResult importDynamicQuantizeMatMul(Node &node) {
  Type i32 = IntegerType::get(node.getContext(), 32);
  FailureOr<Quantized> a = quantizeByRange(node, node.operand(0));
  if (failed(a))
    return failure();
  Value product = node.matmul(a->centred(node), centre(node, 1, 3, 1, i32));
  if (!product)
    return failure();
  Value scale = spread(node, node.operand(2), getShape(product), std::nullopt, 0);
  Value result =
      node.binary<loom::MultiplyOp>(node.convert(product, Float32Type::get(node.getContext())),
                                    node.binary<loom::MultiplyOp>(a->scale, scale));
  if (node.hasOperand(4))
    result = node.binary<loom::AddOp>(result, node.operand(4));
  return node.setResult(result);
}

/// alpha * a * b + c, where a and b may be transposed and c has the product's scale. The result is
/// bytes if it has a scale, else floats.
static LogicalResult importGemm(Node &node) {
  Type i32 = IntegerType::get(node.getContext(), 32), f32 = Float32Type::get(node.getContext());
  int64_t aContract = node.intAttribute("transA", 0) ? 0 : 1;
  int64_t bContract = node.intAttribute("transB", 0) ? 1 : 0;
  Value a = centre(node, 0, 2, aContract == 1 ? 2 : 1, i32),
        b = centre(node, 3, 5, bContract == 0 ? 1 : 2, i32);
  if (!a || !b)
    return failure();
  if (getShape(a).size() != 2 || getShape(b).size() != 2 ||
      getShape(a)[aContract] != getShape(b)[bContract])
    return node.error() << "operands " << toString(getShape(a)) << " and " << toString(getShape(b))
                        << " cannot be multiplied with transA = " << 1 - aContract
                        << ", transB = " << bContract;
  Value product = node.dotGeneral(a, b, {}, {}, {aContract}, {bContract});
  if (product && node.hasOperand(6))
    product = node.binary<loom::AddOp>(product, node.operand(6));
  if (!product)
    return failure();
  Value aScale = spread(node, node.operand(1), getShape(product), 0, 0),
        bScale = spread(node, node.operand(4), getShape(product), 1, 0);
  Value scale = node.binary<loom::MultiplyOp>(node.binary<loom::MultiplyOp>(aScale, bScale),
                                              node.floatAttribute("alpha", 1));
  Value real = node.binary<loom::MultiplyOp>(node.convert(product, f32), scale);
  return node.hasOperand(7) ? setQuantized(node, real, 7) : node.setResult(real);
}

ArrayRef<OpRule> onnx_import::getContribQuantizedRules() {
  static constexpr StringLiteral ms = "com.microsoft";
  static constexpr OpRule rules[] = {
      {"DynamicQuantizeMatMul", 1, 1, importDynamicQuantizeMatMul, ms},
      {"MatMulIntegerToFloat", 1, 1, importMatMulIntegerToFloat, ms},
      {"NhwcMaxPool", 1, 1, importNhwcMaxPool, ms},
      {"QGemm", 1, 1, importGemm, ms},
      {"QLinearAdd", 1, 1, importBinary<loom::AddOp>, ms},
      {"QLinearAveragePool", 1, 1, importAveragePool, ms},
      {"QLinearConcat", 1, 1, importConcat, ms},
      {"QLinearGlobalAveragePool", 1, 1, importGlobalAveragePool, ms},
      {"QLinearLeakyRelu", 1, 1, importLeakyRelu, ms},
      {"QLinearMul", 1, 1, importBinary<loom::MultiplyOp>, ms},
      {"QLinearSigmoid", 1, 1, importSigmoid, ms},
      {"QLinearSoftmax", 1, 1, importSoftmax, ms},
      {"QLinearWhere", 1, 1, importWhere, ms},
  };
  return rules;
}
