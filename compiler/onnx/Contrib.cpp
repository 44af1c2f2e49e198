//===- Contrib.cpp - com.microsoft operators ------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Operators that optimizers and exporters write for ONNX Runtime. They mean what ONNX Runtime's CPU
// kernels compute. Attention is in ContribAttention.cpp.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/Narrow.h"
#include "compiler/onnx/OpTable.h"
#include "compiler/onnx/Parts.h"
#include "compiler/onnx/Quantization.h"
#include "compiler/onnx/Recurrent.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::onnx_import;

//===----------------------------------------------------------------------===//
// Activations
//===----------------------------------------------------------------------===//

/// Operand 0 with operand 1, if given, added along the last dimension.
static Value withBias(Node &node) {
  Value x = node.operand(0);
  if (!x || !node.hasOperand(1))
    return x;
  Value bias = node.operand(1);
  if (failed(node.checkSameElementType(x, bias)))
    return {};
  return node.binary<loom::AddOp>(x, bias);
}

template <loom::GeluForm form> static LogicalResult importGelu(Node &node) {
  Value x = withBias(node);
  return node.setResult(x ? node.emit<loom::GeluOp>(x.getType(), x, form) : x);
}

static LogicalResult importQuickGelu(Node &node) {
  Value x = node.operand(0);
  Value scaled = node.binary<loom::MultiplyOp>(x, node.floatAttribute("alpha", 1.702f));
  return node.setResult(node.binary<loom::MultiplyOp>(x, node.unary<loom::LogisticOp>(scaled)));
}

//===----------------------------------------------------------------------===//
// Normalisations
//===----------------------------------------------------------------------===//

/// Fails, with an error, unless operand `index` is a vector of the size of x's last dimension.
static LogicalResult checkVector(Node &node, Value x, unsigned index) {
  if (!x || !node.operand(index))
    return failure();
  ArrayRef<int64_t> shape = getShape(node.operand(index));
  if (getShape(x).empty() || shape != getShape(x).take_back())
    return node.error() << "input " << index << " is " << toString(shape) << " for "
                        << toString(getShape(x));
  return node.checkSameElementType(x, node.operand(index));
}

static Value layerNorm(Node &node, Value x, unsigned scale, unsigned bias, double epsilon) {
  bool hasBias = node.hasOperand(bias);
  if (failed(checkVector(node, x, scale)) || (hasBias && failed(checkVector(node, x, bias))))
    return {};
  return node.emit<loom::LayerNormOp>(x.getType(), x, node.operand(scale),
                                      hasBias ? node.operand(bias) : Value(),
                                      llvm::APFloat(epsilon));
}

static Value rmsNorm(Node &node, Value x, unsigned scale, double epsilon) {
  if (failed(checkVector(node, x, scale)))
    return {};
  return node.emit<loom::RmsNormOp>(x.getType(), x, node.operand(scale), llvm::APFloat(epsilon));
}

static LogicalResult importSimplifiedLayerNormalization(Node &node) {
  Value x = node.operand(0);
  if (!x)
    return failure();
  int64_t rank = getTensorType(x).getRank();
  auto axis = node.normalizeAxis(node.intAttribute("axis", -1), rank);
  if (!axis)
    return failure();
  if (*axis != rank - 1)
    return node.error() << "axis " << *axis << " is not the last of " << toString(getShape(x));
  return node.setResult(rmsNorm(node, x, 1, node.floatAttribute("epsilon", 1e-5f)));
}

/// The sum of input, skip and bias, which is normalised and is also the last result.
static Value sumSkip(Node &node, unsigned bias) {
  Value x = node.operand(0), skip = node.operand(1);
  if (failed(node.checkSameElementType(x, skip)))
    return {};
  Dims shape(getShape(x));
  Value sum = node.binary<loom::AddOp>(x, skip);
  if (node.hasOperand(bias)) {
    if (failed(checkVector(node, sum, bias)))
      return {};
    sum = node.binary<loom::AddOp>(sum, node.operand(bias));
  }
  if (sum && getShape(sum) != ArrayRef<int64_t>(shape)) {
    node.error() << "skip " << toString(getShape(skip)) << " is larger than the input "
                 << toString(shape);
    return {};
  }
  return sum;
}

static LogicalResult importSkipLayerNormalization(Node &node) {
  Value sum = sumSkip(node, 4);
  Value result = layerNorm(node, sum, 2, 3, node.floatAttribute("epsilon", 1e-12f));
  return failure(failed(node.setResult(0, result)) || failed(node.setResult(3, sum)));
}

static LogicalResult importSkipSimplifiedLayerNormalization(Node &node) {
  Value sum = sumSkip(node, 3);
  Value result = rmsNorm(node, sum, 2, node.floatAttribute("epsilon", 1e-12f));
  return failure(failed(node.setResult(0, result)) || failed(node.setResult(3, sum)));
}

namespace {

/// Word, position and, if there are segments, segment embeddings, normalised. If `isQuantized`,
/// operands 2 to 6 are bytes, whose scales are six operands later and zero points eleven.
class EmbeddingImport {
public:
  EmbeddingImport(Node &node, bool isQuantized) : node(node), isQuantized(isQuantized) {}

  LogicalResult run() {
    Value sum = addEmbeddings();
    Value result = sum ? normalize(sum) : sum;
    if (!result || failed(node.setResult(0, result)) ||
        (!isQuantized && failed(node.setResult(2, sum))))
      return failure();
    return node.hasResult(1) ? countTokens() : success();
  }

private:
  /// Operand `index`, dequantized if the operator is quantized.
  Value real(unsigned index, Value x) const {
    return isQuantized ? dequantize(node, x, node.operand(index + 6), node.operand(index + 11)) : x;
  }
  /// Rows of table `index`.
  Value rows(unsigned index, Value ids) const {
    return real(index, node.gather(node.operand(index), ids, 0));
  }

  Value addEmbeddings() const {
    Value ids = node.operand(0), words = node.operand(2), positions = node.operand(3);
    if (!ids || !words || !positions)
      return {};
    ArrayRef<int64_t> shape = getShape(ids);
    if (shape.size() != 2 || getShape(words).size() != 2 || getShape(positions).size() != 2) {
      node.error() << "expected rank 2, got input_ids " << toString(shape) << ", word_embedding "
                   << toString(getShape(words)) << " and position_embedding "
                   << toString(getShape(positions));
      return {};
    }
    if (node.hasOperand(1) != node.hasOperand(4)) {
      node.error() << "has one of segment_ids and segment_embedding; it needs both or none";
      return {};
    }
    Value sum = rows(2, ids);
    if (!isQuantized && node.hasOperand(8)) {
      sum = node.binary<loom::AddOp>(sum, rows(3, node.operand(8)));
    } else if (shape[1] > getShape(positions)[0]) {
      node.error() << "a sequence of " << shape[1] << " for " << getShape(positions)[0]
                   << " positions";
      return {};
    } else {
      sum = node.binary<loom::AddOp>(sum, real(3, node.slice(positions, 0, 0, shape[1])));
    }
    return node.hasOperand(1) ? node.binary<loom::AddOp>(sum, rows(4, node.operand(1))) : sum;
  }

  Value normalize(Value sum) const {
    for (unsigned index : {5u, 6u})
      if (!node.operand(index) || getShape(node.operand(index)) != getShape(sum).take_back()) {
        node.error() << "input " << index << " is "
                     << (node.hasOperand(index) ? toString(getShape(node.operand(index)))
                                                : "absent")
                     << " for " << toString(getShape(sum));
        return {};
      }
    Value scale = real(5, node.operand(5)), bias = real(6, node.operand(6));
    if (!scale || !bias)
      return {};
    return node.emit<loom::LayerNormOp>(sum.getType(), sum, scale, bias,
                                        llvm::APFloat(node.floatAttribute("epsilon", 1e-12f)));
  }

  /// The number of tokens that the mask admits.
  LogicalResult countTokens() const {
    Type i32 = IntegerType::get(node.getContext(), 32);
    int64_t batch = getShape(node.operand(0))[0];
    Value count = node.hasOperand(7)
                      ? node.reduce(node.convert(node.operand(7), i32), dist::ReductionKind::Sum,
                                    {1}, /*keepDims=*/false)
                      : node.splat(RankedTensorType::get({batch}, i32), 0);
    return node.setResult(1, count);
  }

  Node &node;
  bool isQuantized;
};

} // namespace

template <bool isQuantized> static LogicalResult importEmbedLayerNormalization(Node &node) {
  return EmbeddingImport(node, isQuantized).run();
}

//===----------------------------------------------------------------------===//
// Matrix products
//===----------------------------------------------------------------------===//

/// Swaps the last two dimensions if `swap`; moves the first one before the last if `batch`.
static Value orient(Node &node, Value x, bool swap, bool batch) {
  int64_t rank = x ? getTensorType(x).getRank() : 0;
  if (rank < 2)
    return x;
  Dims order = llvm::to_vector(llvm::seq<int64_t>(0, rank));
  if (batch)
    std::rotate(order.begin(), order.begin() + 1, order.end() - 1);
  if (swap)
    std::swap(order[rank - 1], order[rank - 2]);
  return node.transpose(x, order);
}

static LogicalResult importFusedMatMul(Node &node) {
  Value x = node.operand(0), y = node.operand(1);
  if (failed(node.checkSameElementType(x, y)))
    return failure();
  x = orient(node, x, node.intAttribute("transA", 0), node.intAttribute("transBatchA", 0));
  y = orient(node, y, node.intAttribute("transB", 0), node.intAttribute("transBatchB", 0));
  Value product = node.matmul(x, y);
  double alpha = node.floatAttribute("alpha", 1);
  return node.setResult(alpha == 1 ? product : node.binary<loom::MultiplyOp>(product, alpha));
}

/// Applies the function that attribute `activation` names.
static Value activated(Node &node, Value x, std::optional<double> alpha,
                       std::optional<double> beta) {
  std::string name = node.stringAttribute("activation", "");
  if (name.empty())
    return x;
  if (name != "Clip")
    return activateByName(node, name, alpha, beta, x);
  if (alpha)
    x = node.binary<loom::MaximumOp>(x, *alpha);
  return beta ? node.binary<loom::MinimumOp>(x, *beta) : x;
}

/// A convolution, plus operand 3, then an activation.
static LogicalResult importFusedConv(Node &node) {
  Value sum = convolution(node);
  if (node.hasOperand(3))
    sum = node.binary<loom::AddOp>(sum, node.operand(3));
  std::vector<double> parameters =
      node.floatsAttribute("activation_params").value_or(std::vector<double>());
  auto parameter = [&](size_t i) {
    return i < parameters.size() ? std::optional(parameters[i]) : std::nullopt;
  };
  return node.setResult(activated(node, sum, parameter(0), parameter(1)));
}

static LogicalResult importFusedGemm(Node &node) {
  auto parameter = [&](StringRef name) {
    return node.hasAttribute(name) ? std::optional(node.floatAttribute(name, 0)) : std::nullopt;
  };
  return node.setResult(
      activated(node, gemm(node), parameter("activation_alpha"), parameter("activation_beta")));
}

namespace {
struct Blocks {
  int64_t columns, depth, bits, size;
  int64_t count() const { return (depth + size - 1) / size; }
  /// Bytes that hold `n` numbers.
  int64_t bytes(int64_t n) const { return (n * bits + 7) / 8; }
};
} // namespace

/// Zero points per column and block, [n, blocks, 1], in `type`; null if absent, for the middle of
/// the range.
static FailureOr<Value> getZeroPoints(Node &node, const Blocks &blocks, Type type) {
  if (!node.hasOperand(3))
    return Value();
  Value points = node.operand(3);
  Dims shape{blocks.columns, blocks.count(), 1};
  if (isa<FloatType>(getTensorType(points).getElementType())) {
    if (getTensorType(points).getNumElements() != blocks.columns * blocks.count())
      return node.error() << "zero_points is " << toString(getShape(points)) << ", expected ["
                          << blocks.columns << ", " << blocks.count() << "]";
    return node.reshape(node.convert(points, type), shape);
  }
  int64_t bytes = blocks.bytes(blocks.count());
  if (getTensorType(points).getNumElements() != blocks.columns * bytes)
    return node.error() << "zero_points is " << toString(getShape(points)) << ", expected ["
                        << blocks.columns << ", " << bytes << "]";
  Value all = unpackBits(node, node.reshape(points, {blocks.columns, bytes}), blocks.bits);
  all = all ? node.slice(all, 1, 0, blocks.count()) : all;
  return node.reshape(node.convert(all, type), shape);
}

/// Dequantizes packed numbers with their scales and zero points to the matrix [n, k].
static Value dequantizeBlocks(Node &node, const Blocks &blocks) {
  Value packed = node.operand(1), scales = node.operand(2);
  if (!packed || !scales)
    return {};
  int64_t blob = blocks.bytes(blocks.size);
  if (getTensorType(packed).getNumElements() != blocks.columns * blocks.count() * blob ||
      getTensorType(scales).getNumElements() != blocks.columns * blocks.count()) {
    node.error() << "B " << toString(getShape(packed)) << " and scales "
                 << toString(getShape(scales)) << " are not those of N = " << blocks.columns
                 << ", K = " << blocks.depth << " in blocks of " << blocks.size;
    return {};
  }
  Type type = getTensorType(scales).getElementType();
  FailureOr<Value> points = getZeroPoints(node, blocks, type);
  if (failed(points))
    return {};
  Value numbers =
      unpackBits(node, node.reshape(packed, {blocks.columns, blocks.count(), blob}), blocks.bits);
  numbers = node.convert(numbers, type);
  Value centred =
      *points ? node.binary<loom::SubtractOp>(numbers, *points)
              : node.binary<loom::SubtractOp>(numbers, static_cast<double>(1 << (blocks.bits - 1)));
  Value scaled = node.binary<loom::MultiplyOp>(
      centred, node.reshape(scales, {blocks.columns, blocks.count(), 1}));
  scaled = node.reshape(scaled, {blocks.columns, blocks.count() * blocks.size});
  return scaled ? node.slice(scaled, 1, 0, blocks.depth) : scaled;
}

static LogicalResult importMatMulNBits(Node &node) {
  Value x = node.operand(0);
  Blocks blocks{node.intAttribute("N", 0), node.intAttribute("K", 0), node.intAttribute("bits", 4),
                node.intAttribute("block_size", 0)};
  if (!x)
    return failure();
  constexpr int64_t kLimit = int64_t(1) << 31;
  if (blocks.columns < 1 || blocks.depth < 1 || blocks.size < 1 || blocks.columns > kLimit ||
      blocks.depth > kLimit || blocks.size > kLimit || blocks.size * blocks.bits % 8 ||
      (blocks.bits != 2 && blocks.bits != 4 && blocks.bits != 8))
    return node.error() << "N = " << blocks.columns << ", K = " << blocks.depth
                        << ", bits = " << blocks.bits << ", block_size = " << blocks.size
                        << " are not supported";
  if (node.hasOperand(4))
    return node.error() << "g_idx is not supported; quantize without reordering";
  if (node.intAttribute("weight_prepacked", 0))
    return node.error() << "weight_prepacked is for one GPU; quantize without it";
  if (getShape(x).empty() || getShape(x).back() != blocks.depth)
    return node.error() << "A is " << toString(getShape(x)) << " for K = " << blocks.depth;
  Value weight = dequantizeBlocks(node, blocks);
  Value wide = weight ? node.convert(weight, getTensorType(x).getElementType()) : Value();
  if (!wide)
    return failure();
  Value product = node.dotGeneral(x, wide, {}, {}, {getTensorType(x).getRank() - 1}, {1});
  if (!node.hasOperand(5))
    return node.setResult(product);
  if (!product || failed(checkVector(node, product, 5)))
    return failure();
  return node.setResult(node.binary<loom::AddOp>(product, node.operand(5)));
}

ArrayRef<OpRule> onnx_import::getContribRules() {
  static constexpr StringLiteral ms = "com.microsoft";
  static constexpr OpRule rules[] = {
      {"BiasGelu", 1, 1, importGelu<loom::GeluForm::Erf>, ms},
      {"EmbedLayerNormalization", 1, 1, importEmbedLayerNormalization<false>, ms},
      {"QEmbedLayerNormalization", 1, 1, importEmbedLayerNormalization<true>, ms},
      {"FastGelu", 1, 1, importGelu<loom::GeluForm::Tanh>, ms},
      {"FusedConv", 1, 1, importFusedConv, ms},
      {"FusedGemm", 1, 1, importFusedGemm, ms},
      {"FusedMatMul", 1, 1, importFusedMatMul, ms},
      {"Gelu", 1, 1, importGelu<loom::GeluForm::Erf>, ms},
      {"MatMulNBits", 1, 1, importMatMulNBits, ms},
      {"QuickGelu", 1, 1, importQuickGelu, ms},
      // ONNX Runtime has this one in the standard domain.
      {"SimplifiedLayerNormalization", 7, 28, importSimplifiedLayerNormalization},
      {"SimplifiedLayerNormalization", 1, 1, importSimplifiedLayerNormalization, ms},
      {"SkipLayerNormalization", 1, 1, importSkipLayerNormalization, ms},
      {"SkipSimplifiedLayerNormalization", 1, 1, importSkipSimplifiedLayerNormalization, ms},
  };
  return rules;
}
