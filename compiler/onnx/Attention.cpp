//===- Attention.cpp - helpers of attention operators ---------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/Attention.h"

#include "compiler/onnx/GraphImporter.h"
#include "compiler/onnx/OpTable.h"
#include "passes/simplify/Folding.h"

#include <cmath>

using namespace mlir;
using namespace gridloom;
using namespace gridloom::onnx_import;

static constexpr double kInfinity = std::numeric_limits<double>::infinity();

//===----------------------------------------------------------------------===//
// Heads
//===----------------------------------------------------------------------===//

Value onnx_import::splitHeads(Node &node, Value x, int64_t heads) {
  if (!x)
    return x;
  ArrayRef<int64_t> shape = getShape(x);
  if (shape.size() != 3 || heads < 1 || shape[2] % heads) {
    node.error() << "cannot split " << toString(shape) << " into " << heads << " heads";
    return {};
  }
  Value split = node.reshape(x, {shape[0], shape[1], heads, shape[2] / heads});
  return node.transpose(split, {0, 2, 1, 3});
}

Value onnx_import::joinHeads(Node &node, Value x) {
  x = node.transpose(x, {0, 2, 1, 3});
  if (!x)
    return x;
  ArrayRef<int64_t> shape = getShape(x);
  return node.reshape(x, {shape[0], shape[1], shape[2] * shape[3]});
}

Value onnx_import::groupHeads(Node &node, Value x, int64_t kvHeads) {
  if (!x)
    return x;
  ArrayRef<int64_t> shape = getShape(x);
  if (kvHeads < 1 || shape[1] % kvHeads) {
    node.error() << shape[1] << " query heads cannot share " << kvHeads << " key and value heads";
    return {};
  }
  // Groups of one stay as they are.
  if (shape[1] == kvHeads)
    return x;
  return node.reshape(x, {shape[0], kvHeads, shape[1] / kvHeads, shape[2], shape[3]});
}

/// Contracts the last dimension of x, [b, heads, s, n], with dimension `contract` of y, [b, kv
/// heads, ., .].
static Value multiplyHeads(Node &node, Value x, Value y, int64_t contract) {
  if (!x || !y)
    return {};
  Dims shape(getShape(x));
  Value grouped = groupHeads(node, x, getShape(y)[1]);
  if (!grouped)
    return {};
  int64_t last = getTensorType(grouped).getRank() - 1;
  if (getShape(x)[0] != getShape(y)[0] || shape.back() != getShape(y)[contract]) {
    node.error() << "heads of " << toString(getShape(x)) << " and " << toString(getShape(y))
                 << " cannot be multiplied";
    return {};
  }
  Value product = node.dotGeneral(grouped, y, {0, 1}, {0, 1}, {last}, {contract});
  shape.back() = getShape(y)[contract == 3 ? 2 : 3];
  return node.reshape(product, shape);
}

Value onnx_import::attentionScores(Node &node, Value query, Value key) {
  return multiplyHeads(node, query, key, 3);
}

Value onnx_import::attentionOutput(Node &node, Value probabilities, Value value) {
  return multiplyHeads(node, probabilities, value, 2);
}

//===----------------------------------------------------------------------===//
// Masks
//===----------------------------------------------------------------------===//

Value onnx_import::softcap(Node &node, Value x, double cap) {
  return node.binary<loom::MultiplyOp>(
      node.unary<loom::TanhOp>(node.binary<loom::DivideOp>(x, cap)), cap);
}

Value onnx_import::maskToBias(Node &node, Value allowed, Type type) {
  if (!allowed)
    return allowed;
  RankedTensorType biasType = RankedTensorType::get(getShape(allowed), type);
  return node.select(allowed, node.splat(biasType, 0), node.splat(biasType, -kInfinity));
}

Value onnx_import::addBiases(Node &node, Value a, Value b) {
  if (!a || !b)
    return a ? a : b;
  return node.binary<loom::AddOp>(a, b);
}

Value onnx_import::maskedSoftmax(Node &node, Value biased, Value bias) {
  if (!biased)
    return biased;
  int64_t last = getTensorType(biased).getRank() - 1;
  Value result = node.emit<loom::SoftmaxOp>(biased.getType(), biased, last);
  if (!bias)
    return result;
  Value peak = node.reduce(bias, dist::ReductionKind::Max, {getTensorType(bias).getRank() - 1},
                           /*keepDims=*/true);
  Value isMasked = node.compare(loom::Direction::EQ, peak, -kInfinity);
  if (!isMasked || getSplat(isMasked) == 0.0)
    return isMasked ? result : Value();
  return node.select(isMasked, node.splatLike(result, 0), result);
}

Value onnx_import::allowedKeys(Node &node, int64_t queries, int64_t keys, KeyWindow window,
                               int64_t offset, Value batchOffset) {
  if (window.left < 0 && window.right < 0)
    return {};
  Type i64 = IntegerType::get(node.getContext(), 64);
  auto type = RankedTensorType::get({queries, keys}, i64);
  Value key = node.iota(type, 1);
  Value position = node.binary<loom::AddOp>(node.iota(type, 0), static_cast<double>(offset));
  if (batchOffset) {
    int64_t batch = loom::countElements(getShape(batchOffset));
    position = node.binary<loom::AddOp>(position, node.reshape(batchOffset, {batch, 1, 1, 1}));
  }
  Value allowed;
  auto require = [&](loom::Direction direction, int64_t shift) {
    Value bound = node.binary<loom::AddOp>(position, static_cast<double>(shift));
    Value holds = node.compare(direction, key, bound);
    allowed = allowed ? node.binary<loom::AndOp>(allowed, holds) : holds;
  };
  if (window.right >= 0)
    require(loom::Direction::LE, std::min(window.right, keys));
  if (window.left >= 0)
    require(loom::Direction::GE, -std::min(window.left, keys + queries + offset));
  return allowed;
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

namespace {

/// ai.onnx Attention. Steps set members that later ones read; a null value ends the import.
class AttentionImport {
public:
  explicit AttentionImport(Node &node) : node(node) {}

  LogicalResult run() {
    if (failed(readHeads()) || failed(readCache()) || failed(readMasks()))
      return failure();
    int64_t mode = node.intAttribute("qk_matmul_output_mode", 0);
    if (mode < 0 || mode > 3)
      return node.error() << "qk_matmul_output_mode is " << mode << ", expected 0 to 3";
    Value scores = getScores();
    SmallVector<Value, 4> stages{scores};
    if (double cap = node.floatAttribute("softcap", 0); cap > 0)
      scores = softcap(node, scores, cap);
    stages.push_back(scores);
    scores = bias ? node.binary<loom::AddOp>(scores, bias) : scores;
    stages.push_back(scores);
    Type precision = computed;
    if (node.hasAttribute("softmax_precision") &&
        !(precision = node.elementType(node.intAttribute("softmax_precision", 1))))
      return failure();
    Value probabilities =
        maskedSoftmax(node, node.convert(scores, precision), needsGuard ? bias : Value());
    probabilities = wide(probabilities);
    stages.push_back(probabilities);
    Value output = node.convert(attentionOutput(node, probabilities, wide(value)), element);
    return failure(failed(node.setResult(0, isPacked ? joinHeads(node, output) : output)) ||
                   failed(node.setResult(1, key)) || failed(node.setResult(2, value)) ||
                   failed(node.setResult(3, node.convert(stages[mode], element))));
  }

private:
  /// Query, key and value as [batch, heads, sequence, size].
  LogicalResult readHeads() {
    query = node.operand(0), key = node.operand(1), value = node.operand(2);
    if (failed(node.checkSameElementType(query, key)) || !value)
      return failure();
    element = getTensorType(query).getElementType();
    computed =
        element.getIntOrFloatBitWidth() == 16 ? Float32Type::get(node.getContext()) : element;
    isPacked = getShape(query).size() == 3;
    if (isPacked) {
      int64_t heads = node.intAttribute("q_num_heads", 0);
      int64_t kvHeads = node.intAttribute("kv_num_heads", 0);
      return success((query = splitHeads(node, query, heads)) &&
                     (key = splitHeads(node, key, kvHeads)) &&
                     (value = splitHeads(node, value, kvHeads)));
    }
    for (Value x : {query, key, value})
      if (getShape(x).size() != 4)
        return node.error() << "expected an input of rank 4, got " << toString(getShape(x));
    return success();
  }

  /// Puts the past keys and values before the present ones. A cache kept outside has a length per
  /// batch instead.
  LogicalResult readCache() {
    if (node.hasOperand(4) != node.hasOperand(5))
      return node.error() << "has one of past_key and past_value; it needs both or none";
    if (!node.hasOperand(4))
      return success();
    past = getShape(node.operand(4)).size() == 4 ? getShape(node.operand(4))[2] : 0;
    auto append = [&](Value before, Value x) -> Value {
      ArrayRef<int64_t> shape = getShape(before);
      Dims wanted(getShape(x));
      wanted[2] = past;
      if (shape != ArrayRef<int64_t>(wanted) || failed(node.checkSameElementType(before, x))) {
        node.error() << "the past is " << toString(shape) << ", expected " << toString(wanted);
        return {};
      }
      return node.concatenate({before, x}, 2);
    };
    return success((key = append(node.operand(4), key)) &&
                   (value = append(node.operand(5), value)));
  }

  LogicalResult readMasks() {
    int64_t queries = getShape(query)[2], keys = getShape(key)[2];
    KeyWindow window{node.intAttribute("left_window_size", -1),
                     node.intAttribute("right_window_size", -1)};
    if (node.intAttribute("is_causal", 0))
      window.right = 0;
    Value lengths, batchOffset;
    int64_t offset = past;
    if (node.hasOperand(6)) {
      lengths = node.convert(node.operand(6), IntegerType::get(node.getContext(), 64));
      if (getShape(lengths) != ArrayRef<int64_t>{getShape(query)[0]})
        return node.error() << "nonpad_kv_seqlen is " << toString(getShape(lengths))
                            << ", expected [" << getShape(query)[0] << "]";
      batchOffset = past ? Value() : lengths;
      offset = past ? past : -queries;
    }
    Value allowed = allowedKeys(node, queries, keys, window, offset, batchOffset);
    // With a causal mask, each query sees at least its own key.
    bool seesOne = offset >= 0 && !batchOffset;
    if (lengths) {
      Value padding = node.compare(
          loom::Direction::LT,
          node.iota(RankedTensorType::get({keys}, getTensorType(lengths).getElementType()), 0),
          node.reshape(lengths, {getShape(lengths)[0], 1, 1, 1}));
      allowed = allowed ? node.binary<loom::AndOp>(allowed, padding) : padding;
      seesOne = false;
    }
    if (node.hasOperand(3))
      return addMask(allowed, keys);
    bias = maskToBias(node, allowed, computed);
    needsGuard = !seesOne;
    return success(bias || !allowed);
  }

  LogicalResult addMask(Value allowed, int64_t keys) {
    Value mask = padMask(node.operand(3), keys);
    if (!mask)
      return failure();
    if (getTensorType(mask).getElementType().isInteger(1)) {
      allowed = allowed ? node.binary<loom::AndOp>(allowed, mask) : mask;
      bias = maskToBias(node, allowed, computed);
      return success(bool(bias));
    }
    Value own = maskToBias(node, allowed, computed);
    bias = addBiases(node, own, wide(mask));
    return success(bias && (own || !allowed));
  }

  /// Keys beyond the mask's end are masked.
  Value padMask(Value mask, int64_t keys) {
    ArrayRef<int64_t> shape = getShape(mask);
    int64_t missing = shape.empty() || shape.back() == 1 ? 0 : keys - shape.back();
    if (missing < 0) {
      node.error() << "the mask is " << toString(shape) << " for " << keys << " keys";
      return {};
    }
    if (missing == 0)
      return mask;
    Dims padding(shape);
    padding.back() = missing;
    RankedTensorType type = getTensorType(mask).clone(padding);
    Value fill = node.splat(type, type.getElementType().isInteger(1) ? 0 : -kInfinity);
    return node.concatenate({mask, fill}, shape.size() - 1);
  }

  Value getScores() {
    double scale = 1.0 / std::sqrt(static_cast<double>(getShape(query)[3]));
    if (node.hasAttribute("scale"))
      scale = node.floatAttribute("scale", 1);
    return attentionScores(node, node.binary<loom::MultiplyOp>(wide(query), scale), wide(key));
  }

  /// 16-bit numbers are computed in f32.
  Value wide(Value x) const { return node.convert(x, computed); }

  Node &node;
  Value query, key, value, bias;
  /// The operands' element type, and that of the computation.
  Type element, computed;
  bool isPacked = false, needsGuard = true;
  int64_t past = 0;
};

} // namespace

static LogicalResult importAttention(Node &node) { return AttentionImport(node).run(); }

/// Scores and probabilities may be changed by subgraphs.
static LogicalResult importFlexAttention(Node &node) {
  Value query = node.operand(0), key = node.operand(1), value = node.operand(2);
  if (failed(node.checkSameElementType(query, key)) ||
      failed(node.checkSameElementType(key, value)))
    return failure();
  for (Value x : {query, key, value})
    if (getShape(x).size() != 4)
      return node.error() << "expected an input of rank 4, got " << toString(getShape(x));
  Type element = getTensorType(query).getElementType();
  Type precision = element.isF64() ? element : Float32Type::get(node.getContext());
  if (node.hasAttribute("softmax_precision") &&
      !(precision = node.elementType(node.intAttribute("softmax_precision", 1))))
    return failure();
  double scale = 1.0 / std::sqrt(static_cast<double>(getShape(query)[3]));
  scale = std::sqrt(node.floatAttribute("scale", scale));
  Value scores = attentionScores(node, node.binary<loom::MultiplyOp>(query, scale),
                                 node.binary<loom::MultiplyOp>(key, scale));
  scores = node.convert(scores, precision);
  auto modify = [&](StringRef name, Value x) -> Value {
    if (!x || !node.hasAttribute(name))
      return x;
    const onnx::GraphProto *graph = node.graphAttribute(name);
    if (!graph)
      return {};
    GraphImporter body(node.getImporter(), *graph, node.getLoc(), node.getBuilder(), nullptr);
    FailureOr<SmallVector<Value>> changed = body.importSubgraph(x);
    if (failed(changed))
      return {};
    if (changed->size() == 1 && changed->front().getType() == x.getType())
      return changed->front();
    node.error() << "graph '" << name << "' must keep the type " << x.getType();
    return {};
  };
  scores = modify("score_mod", scores);
  if (!scores)
    return failure();
  Value probabilities = modify("prob_mod", node.emit<loom::SoftmaxOp>(scores.getType(), scores, 3));
  Value output = attentionOutput(node, probabilities, node.convert(value, precision));
  return node.setResult(node.convert(output, element));
}

//===----------------------------------------------------------------------===//
// Rotary embedding
//===----------------------------------------------------------------------===//

Value onnx_import::rotate(Node &node, Value x, Value cosine, Value sine, bool interleaved) {
  if (!x || !cosine || !sine)
    return {};
  ArrayRef<int64_t> shape = getShape(x), angles = getShape(cosine);
  int64_t half = angles.empty() ? 0 : angles.back(), rotated = 2 * half;
  bool fits = angles.size() == 3 && angles == getShape(sine) && half >= 1 && rotated <= shape[3] &&
              (angles[0] == 1 || angles[0] == shape[0]) && angles[1] == shape[2];
  if (!fits) {
    node.error() << "cannot rotate " << toString(shape) << " by cosines " << toString(angles)
                 << " and sines " << toString(getShape(sine));
    return {};
  }
  auto perHead = [&](Value table) { return node.reshape(table, {angles[0], 1, angles[1], half}); };
  cosine = perHead(cosine), sine = perHead(sine);
  Value real = interleaved ? node.slice(x, 3, 0, rotated, 2) : node.slice(x, 3, 0, half);
  Value imaginary = interleaved ? node.slice(x, 3, 1, rotated, 2) : node.slice(x, 3, half, rotated);
  auto multiply = [&](Value a, Value b) { return node.binary<loom::MultiplyOp>(a, b); };
  Value newReal = node.binary<loom::SubtractOp>(multiply(cosine, real), multiply(sine, imaginary));
  Value newImaginary = node.binary<loom::AddOp>(multiply(sine, real), multiply(cosine, imaginary));
  if (!newReal || !newImaginary)
    return {};
  Value result;
  if (interleaved) {
    Dims single(getShape(newReal));
    Dims joined = single;
    single.push_back(1);
    joined.back() = rotated;
    result = node.reshape(
        node.concatenate({node.reshape(newReal, single), node.reshape(newImaginary, single)}, 4),
        joined);
  } else {
    result = node.concatenate({newReal, newImaginary}, 3);
  }
  if (rotated == shape[3])
    return result;
  return node.concatenate({result, node.slice(x, 3, rotated, shape[3])}, 3);
}

static LogicalResult importRotaryEmbedding(Node &node) {
  Value x = node.operand(0), cosine = node.operand(1), sine = node.operand(2);
  if (failed(node.checkSameElementType(x, cosine)) || failed(node.checkSameElementType(x, sine)))
    return failure();
  bool isPacked = getShape(x).size() == 3;
  if (!isPacked && getShape(x).size() != 4)
    return node.error() << "expected an input of rank 3 or 4, got " << toString(getShape(x));
  Value heads = isPacked ? splitHeads(node, x, node.intAttribute("num_heads", 0)) : x;
  if (node.hasOperand(3)) {
    if (getShape(cosine).size() != 2 || getShape(sine).size() != 2)
      return node.error() << "expected caches of rank 2, got " << toString(getShape(cosine))
                          << " and " << toString(getShape(sine));
    cosine = node.gather(cosine, node.operand(3), 0);
    sine = node.gather(sine, node.operand(3), 0);
  }
  int64_t rotated = node.intAttribute("rotary_embedding_dim", 0);
  if (rotated != 0 && cosine && rotated != 2 * getShape(cosine).back())
    return node.error() << "rotary_embedding_dim is " << rotated << " for a cache of "
                        << getShape(cosine).back() << " angles";
  Value result = rotate(node, heads, cosine, sine, node.intAttribute("interleaved", 0));
  return node.setResult(isPacked ? joinHeads(node, result) : result);
}

ArrayRef<OpRule> onnx_import::getAttentionRules() {
  static constexpr OpRule rules[] = {
      {"Attention", 23, 28, importAttention},
      {"FlexAttention", 1, 1, importFlexAttention, "ai.onnx.preview"},
      {"RotaryEmbedding", 23, 28, importRotaryEmbedding},
  };
  return rules;
}
