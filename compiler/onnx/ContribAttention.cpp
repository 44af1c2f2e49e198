//===- ContribAttention.cpp - com.microsoft attention ---------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/Attention.h"
#include "compiler/onnx/OpTable.h"
#include "compiler/onnx/Quantization.h"
#include "passes/simplify/Folding.h"

#include <cmath>

using namespace mlir;
using namespace gridloom;
using namespace gridloom::onnx_import;

//===----------------------------------------------------------------------===//
// Attention and MultiHeadAttention
//===----------------------------------------------------------------------===//

namespace {

/// The common part of both operators, on query, key and value of shape [batch, heads, sequence,
/// size]. Masked keys get `mask_filter_value` added, which is finite.
class MaskedAttention {
public:
  explicit MaskedAttention(Node &node) : node(node) {}

  Value query, key, value;

  /// Adds the mask operand: 1 for keys that are seen, [batch, keys] or [batch, queries, keys]; or,
  /// as one dimension, the number of keys in each batch (and, in its second half, the first of
  /// them).
  LogicalResult addMask(Value mask) {
    if (!mask)
      return success();
    int64_t batch = getShape(query)[0], queries = getShape(query)[2], keys = getShape(key)[2];
    ArrayRef<int64_t> shape = getShape(mask);
    Type i64 = IntegerType::get(node.getContext(), 64);
    mask = node.convert(mask, i64);
    Value seen;
    if (shape == ArrayRef<int64_t>{batch, keys})
      seen = positive(node.reshape(mask, {batch, 1, 1, keys}));
    else if (shape == ArrayRef<int64_t>{batch, queries, keys})
      seen = positive(node.reshape(mask, {batch, 1, queries, keys}));
    else if (shape == ArrayRef<int64_t>{batch} || shape == ArrayRef<int64_t>{2 * batch})
      seen = between(mask, batch, keys);
    else
      return node.error() << "a mask of " << toString(shape) << " for " << batch << " x " << queries
                          << " queries and " << keys << " keys is not supported";
    auto type = RankedTensorType::get(getShape(seen), element());
    bias = node.select(seen, node.splat(type, 0),
                       node.splat(type, node.floatAttribute("mask_filter_value", -10000)));
    return success(bool(bias));
  }

  /// Adds a bias that broadcasts to [batch, heads, queries, keys].
  LogicalResult addBias(Value given) {
    if (!given)
      return success();
    if (failed(node.checkSameElementType(query, given)))
      return failure();
    bias = addBiases(node, bias, given);
    return success(bool(bias));
  }

  /// Queries see `past` keys and those up to their own.
  LogicalResult addCausal(int64_t past) {
    Value allowed = allowedKeys(node, getShape(query)[2], getShape(key)[2], {-1, 0}, past, Value());
    auto type = RankedTensorType::get(getShape(allowed), element());
    Value masked = node.splat(type, std::numeric_limits<float>::lowest());
    bias = node.select(allowed, bias ? bias : node.splat(type, 0), masked);
    return success(bool(bias));
  }

  /// Appends key and value to what came before.
  LogicalResult addPast(Value pastKey, Value pastValue) {
    return success((key = append(pastKey, key)) && (value = append(pastValue, value)));
  }

  /// [batch, queries, heads * size].
  Value attend() {
    double scale = node.floatAttribute("scale", 0);
    if (scale == 0)
      scale = 1.0 / std::sqrt(static_cast<double>(getShape(query)[3]));
    scores = attentionScores(node, node.binary<loom::MultiplyOp>(query, scale), key);
    scores = bias ? node.binary<loom::AddOp>(scores, bias) : scores;
    Value probabilities = scores ? node.emit<loom::SoftmaxOp>(scores.getType(), scores, 3) : scores;
    return joinHeads(node, attentionOutput(node, probabilities, value));
  }

private:
  Type element() const { return getTensorType(query).getElementType(); }
  Value positive(Value mask) { return node.compare(loom::Direction::GT, mask, 0.0); }

  Value between(Value mask, int64_t batch, int64_t keys) {
    Value key = node.iota(RankedTensorType::get({keys}, getTensorType(mask).getElementType()), 0);
    auto bound = [&](int64_t from) {
      return node.reshape(node.slice(mask, 0, from, from + batch), {batch, 1, 1, 1});
    };
    Value seen = node.compare(loom::Direction::LT, key, bound(0));
    if (getShape(mask)[0] == batch)
      return seen;
    return node.binary<loom::AndOp>(seen, node.compare(loom::Direction::GE, key, bound(batch)));
  }

  Value append(Value past, Value x) {
    if (!past || !x)
      return {};
    Dims wanted(getShape(x));
    if (getShape(past).size() == 4)
      wanted[2] = getShape(past)[2];
    if (getShape(past) != ArrayRef<int64_t>(wanted)) {
      node.error() << "the past is " << toString(getShape(past)) << ", expected "
                   << toString(wanted);
      return {};
    }
    return node.concatenate({past, x}, 2);
  }

  Node &node;
  Value bias, scores;
};

} // namespace

/// The index of an operand that an operator does not have.
static constexpr unsigned kNoOperand = ~0u;

/// Attention whose query, key and value are one product of the input, `all`.
static LogicalResult attendToProduct(Node &node, Value all, unsigned maskIndex, unsigned pastIndex,
                                     unsigned biasIndex) {
  if (!all)
    return failure();
  if (node.intAttribute("do_rotary", 0) || node.intAttribute("past_present_share_buffer", 0))
    return node.error() << "do_rotary and past_present_share_buffer are not supported";
  if (getShape(all).size() != 3)
    return node.error() << "the product of input and weights is " << toString(getShape(all))
                        << ", expected [batch, length, columns]";
  int64_t width = getShape(all).back(), heads = node.intAttribute("num_heads", 0);
  Dims sizes = node.intsAttribute("qkv_hidden_sizes").value_or(Dims());
  if (sizes.empty() && width % 3 == 0)
    sizes.assign(3, width / 3);
  if (sizes.size() != 3 || sizes[0] < 1 || sizes[2] < 1 || sizes[0] != sizes[1] ||
      sizes[0] > width || sizes[2] > width || sizes[0] + sizes[1] + sizes[2] != width)
    return node.error() << "the product " << toString(getShape(all))
                        << " is not of query, key and value of " << toString(sizes);
  MaskedAttention attention(node);
  auto part = [&](int64_t start, int64_t size) {
    return splitHeads(node, node.slice(all, 2, start, start + size), heads);
  };
  if (!(attention.query = part(0, sizes[0])) || !(attention.key = part(sizes[0], sizes[1])) ||
      !(attention.value = part(sizes[0] + sizes[1], sizes[2])))
    return failure();
  int64_t past = 0;
  if (node.hasOperand(pastIndex)) {
    Value both = node.operand(pastIndex);
    ArrayRef<int64_t> shape = getShape(both);
    if (shape.size() != 5 || shape[0] != 2)
      return node.error() << "past is " << toString(shape) << ", expected [2, batch, heads, ...]";
    past = shape[3];
    auto half = [&](int64_t index) {
      return node.reshape(node.slice(both, 0, index, index + 1), shape.drop_front());
    };
    if (failed(attention.addPast(half(0), half(1))))
      return failure();
  }
  if (node.hasResult(1)) {
    Dims single(getShape(attention.key));
    single.insert(single.begin(), 1);
    if (attention.key.getType() != attention.value.getType() ||
        failed(node.setResult(1, node.concatenate({node.reshape(attention.key, single),
                                                   node.reshape(attention.value, single)},
                                                  0))))
      return node.error() << "present needs keys and values of one size";
  }
  Value mask = node.hasOperand(maskIndex) ? node.operand(maskIndex) : Value();
  Value bias = node.hasOperand(biasIndex) ? node.operand(biasIndex) : Value();
  if (failed(attention.addMask(mask)) ||
      (node.intAttribute("unidirectional", 0) && failed(attention.addCausal(past))) ||
      failed(attention.addBias(bias)))
    return failure();
  return node.setResult(0, attention.attend());
}

/// com.microsoft Attention.
static LogicalResult importAttention(Node &node) {
  Value x = node.operand(0), weights = node.operand(1);
  if (failed(node.checkSameElementType(x, weights)))
    return failure();
  if (node.hasOperand(6))
    return node.error() << "do_rotary and past_present_share_buffer are not supported";
  Value all = node.matmul(x, weights);
  if (node.hasOperand(2))
    all = node.binary<loom::AddOp>(all, node.operand(2));
  return attendToProduct(node, all, 3, 4, 5);
}

/// The same for bytes: operands are input, weights, bias, the first two's scales, mask, their zero
/// points, past.
static LogicalResult importQuantizedAttention(Node &node) {
  Type i32 = IntegerType::get(node.getContext(), 32), f32 = Float32Type::get(node.getContext());
  Value product = node.matmul(centre(node, 0, 6, 2, i32), centre(node, 1, 7, 1, i32));
  if (!product || !node.operand(2))
    return failure();
  Value xScale = spread(node, node.operand(3), getShape(product), std::nullopt, 0),
        wScale = spread(node, node.operand(4), getShape(product), std::nullopt, 0);
  Value real = node.binary<loom::MultiplyOp>(node.convert(product, f32),
                                             node.binary<loom::MultiplyOp>(xScale, wScale));
  return attendToProduct(node, node.binary<loom::AddOp>(real, node.operand(2)), 5, 8, kNoOperand);
}

static LogicalResult importMultiHeadAttention(Node &node) {
  Value query = node.operand(0);
  if (!query)
    return failure();
  if (!node.hasOperand(1) || !node.hasOperand(2) || node.hasOperand(8) || node.hasOperand(9))
    return node.error() << "packed key and value and shared buffers are not supported";
  int64_t heads = node.intAttribute("num_heads", 0);
  // The bias is that of query, key and value, one after another.
  Value bias = node.hasOperand(3) ? node.operand(3) : Value();
  int64_t at = 0;
  auto take = [&](Value x) -> Value {
    if (getShape(x).size() == 4)
      return x;
    if (bias && getShape(x).size() == 3) {
      int64_t width = getShape(x)[2];
      if (getShape(bias).size() != 1 || at + width > getShape(bias)[0]) {
        node.error() << "bias " << toString(getShape(bias)) << " is too short for "
                     << toString(getShape(x));
        return {};
      }
      x = node.binary<loom::AddOp>(x, node.slice(bias, 0, at, at + width));
      at += width;
    }
    return splitHeads(node, x, heads);
  };
  MaskedAttention attention(node);
  attention.query = take(query);
  attention.key = attention.query ? take(node.operand(1)) : Value();
  attention.value = attention.key ? take(node.operand(2)) : Value();
  if (!attention.value)
    return failure();
  if (getShape(attention.query).size() != 4 || node.hasOperand(6) != node.hasOperand(7))
    return node.error() << "needs a query of 3 dimensions and both or none of past_key and "
                           "past_value";
  int64_t past = 0;
  if (node.hasOperand(6)) {
    past = getShape(node.operand(6)).size() == 4 ? getShape(node.operand(6))[2] : 0;
    if (failed(attention.addPast(node.operand(6), node.operand(7))))
      return failure();
  }
  Value mask = node.hasOperand(4) ? node.operand(4) : Value();
  Value extra = node.hasOperand(5) ? node.operand(5) : Value();
  if (failed(attention.addMask(mask)) ||
      (node.intAttribute("unidirectional", 0) && failed(attention.addCausal(past))) ||
      failed(attention.addBias(extra)))
    return failure();
  return failure(failed(node.setResult(0, attention.attend())) ||
                 failed(node.setResult(1, attention.key)) ||
                 failed(node.setResult(2, attention.value)));
}

//===----------------------------------------------------------------------===//
// Rotary embedding
//===----------------------------------------------------------------------===//

/// start + 0, 1, ... for each batch, [batch, count] of i64; `start` has one number, or one per
/// batch.
static Value positionsFrom(Node &node, Value start, int64_t count) {
  Type i64 = IntegerType::get(node.getContext(), 64);
  start = node.convert(start, i64);
  if (!start)
    return {};
  int64_t batch = loom::countElements(getShape(start));
  return node.binary<loom::AddOp>(node.reshape(start, {batch, 1}),
                                  node.iota(RankedTensorType::get({batch, count}, i64), 1));
}

/// Rows of the caches at the given positions rotate x, [batch, heads, sequence, size].
static Value rotateAt(Node &node, Value x, Value cosine, Value sine, Value positions,
                      bool interleaved) {
  if (!x || !positions || !cosine || !sine)
    return {};
  if (getShape(cosine).size() != 2 || getShape(sine).size() != 2) {
    node.error() << "expected caches of rank 2, got " << toString(getShape(cosine)) << " and "
                 << toString(getShape(sine));
    return {};
  }
  return rotate(node, x, node.gather(cosine, positions, 0), node.gather(sine, positions, 0),
                interleaved);
}

static LogicalResult importRotaryEmbedding(Node &node) {
  Value x = node.operand(0), positions = node.operand(1), cosine = node.operand(2),
        sine = node.operand(3);
  if (failed(node.checkSameElementType(x, cosine)) || !positions || !sine)
    return failure();
  bool isPacked = getShape(x).size() == 3;
  if ((!isPacked && getShape(x).size() != 4) || getShape(cosine).size() != 2)
    return node.error() << "expected an input of rank 3 or 4 and a cos_cache of rank 2, got "
                        << toString(getShape(x)) << " and " << toString(getShape(cosine));
  int64_t heads = node.intAttribute("num_heads", 0);
  int64_t size = std::max<int64_t>(2 * getShape(cosine)[1], 1);
  if (heads == 0 && isPacked)
    heads = getShape(x)[2] / size;
  Value split = isPacked ? splitHeads(node, x, heads) : x;
  if (split && loom::countElements(getShape(positions)) == 1)
    positions = positionsFrom(node, positions, getShape(split)[2]);
  Value result =
      rotateAt(node, split, cosine, sine, positions, node.intAttribute("interleaved", 0));
  return node.setResult(isPacked ? joinHeads(node, result) : result);
}

//===----------------------------------------------------------------------===//
// GroupQueryAttention
//===----------------------------------------------------------------------===//

namespace {

/// The cache holds `seqlens_k` + 1 keys of each batch once the step's own are in it.
class GroupQueryImport {
public:
  explicit GroupQueryImport(Node &node) : node(node) {}

  LogicalResult run() {
    if (failed(checkSupported()) || failed(readHeads()) || failed(readLengths()) ||
        failed(rotateHeads()) || failed(readCache()))
      return failure();
    double scale = node.floatAttribute("scale", 0);
    if (scale == 0)
      scale = 1.0 / std::sqrt(static_cast<double>(getShape(query)[3]));
    Value seenKey = key, seenValue = value;
    if (getShape(key)[2] > total) {
      seenKey = node.slice(key, 2, 0, total);
      seenValue = node.slice(value, 2, 0, total);
    }
    Value scores = attentionScores(node, node.binary<loom::MultiplyOp>(query, scale), seenKey);
    if (double cap = node.floatAttribute("softcap", 0); cap > 0)
      scores = softcap(node, scores, cap);
    if (node.hasOperand(10))
      scores = node.binary<loom::AddOp>(scores, node.operand(10));
    Value allowed = getAllowed();
    scores = node.binary<loom::AddOp>(
        scores, maskToBias(node, allowed, getTensorType(query).getElementType()));
    Value output = joinHeads(node, attentionOutput(node, softmax(scores), seenValue));
    return failure(failed(node.setResult(0, output)) || failed(node.setResult(1, key)) ||
                   failed(node.setResult(2, value)));
  }

private:
  LogicalResult checkSupported() {
    if (node.intAttribute("kv_cache_bit_width", 0) ||
        node.stringAttribute("k_quant_type", "NONE") != "NONE" ||
        node.stringAttribute("v_quant_type", "NONE") != "NONE")
      return node.error() << "a quantized cache is not supported";
    if (node.hasOperand(14) || node.hasOperand(15) || node.intAttribute("causal", 1) != 1 ||
        node.intAttribute("sliding_window_cache", 0))
      return node.error() << "norms of query and key, causal = 0 and sliding_window_cache are not "
                             "supported";
    return success();
  }

  LogicalResult readHeads() {
    int64_t heads = node.intAttribute("num_heads", 0),
            kvHeads = node.intAttribute("kv_num_heads", 0);
    Value x = node.operand(0);
    if (!x)
      return failure();
    if (node.hasOperand(1) != node.hasOperand(2))
      return node.error() << "has one of key and value; it needs both or none";
    if (node.hasOperand(1)) {
      return success((query = splitHeads(node, x, heads)) &&
                     (key = splitHeads(node, node.operand(1), kvHeads)) &&
                     (value = splitHeads(node, node.operand(2), kvHeads)));
    }
    // Query, key and value heads are one after another.
    constexpr int64_t kMaxHeads = 1 << 20;
    if (heads < 1 || kvHeads < 1 || heads > kMaxHeads || kvHeads > kMaxHeads)
      return node.error() << "num_heads is " << heads << " and kv_num_heads " << kvHeads;
    Value all = splitHeads(node, x, heads + 2 * kvHeads);
    query = all ? node.slice(all, 1, 0, heads) : all;
    key = all ? node.slice(all, 1, heads, heads + kvHeads) : all;
    value = all ? node.slice(all, 1, heads + kvHeads, heads + 2 * kvHeads) : all;
    return success(query && key && value);
  }

  LogicalResult readLengths() {
    int64_t batch = getShape(query)[0];
    steps = getShape(query)[2];
    FailureOr<std::optional<double>> known = node.numberOperand(6, "total_sequence_length");
    if (failed(known) || !*known || !node.operand(5))
      return failure();
    total = static_cast<int64_t>(**known);
    if (total < steps || total > (int64_t(1) << 31))
      return node.error() << "total_sequence_length is " << total << " for " << steps << " queries";
    if (loom::countElements(getShape(node.operand(5))) != batch)
      return node.error() << "seqlens_k is " << toString(getShape(node.operand(5)))
                          << ", expected [" << batch << "]";
    Type i64 = IntegerType::get(node.getContext(), 64);
    if (total == steps) {
      before = node.splat(RankedTensorType::get({batch}, i64), 0);
      return success();
    }
    // There are seqlens_k + 1 keys; the last ones are the step's own.
    Value lengths = node.reshape(node.convert(node.operand(5), i64), {batch});
    before = node.binary<loom::AddOp>(lengths, static_cast<double>(1 - steps));
    return success(bool(before));
  }

  LogicalResult rotateHeads() {
    if (!node.intAttribute("do_rotary", 0))
      return success();
    Value cosine = node.operand(7), sine = node.operand(8);
    Value positions = node.hasOperand(9) ? node.operand(9) : positionsFrom(node, before, steps);
    bool interleaved = node.intAttribute("rotary_interleaved", 0);
    return success((query = rotateAt(node, query, cosine, sine, positions, interleaved)) &&
                   (key = rotateAt(node, key, cosine, sine, positions, interleaved)));
  }

  /// The step's keys and values follow those of the past, in a cache that may be larger and is
  /// padded with zeros.
  LogicalResult readCache() {
    if (node.hasOperand(3) != node.hasOperand(4))
      return node.error() << "has one of past_key and past_value; it needs both or none";
    return success((key = update(node.hasOperand(3) ? node.operand(3) : Value(), key)) &&
                   (value = update(node.hasOperand(4) ? node.operand(4) : Value(), value)));
  }

  Value update(Value past, Value fresh) {
    Dims wanted(getShape(fresh));
    int64_t capacity = past && getShape(past).size() == 4 ? getShape(past)[2] : 0;
    wanted[2] = capacity;
    if (past && getShape(past) != ArrayRef<int64_t>(wanted)) {
      node.error() << "the past is " << toString(getShape(past)) << ", expected "
                   << toString(wanted);
      return {};
    }
    int64_t size = std::max(capacity, total);
    auto extend = [&](Value x) -> Value {
      if (!x)
        return x;
      wanted[2] = size - getShape(x)[2];
      return wanted[2] == 0
                 ? x
                 : node.concatenate({x, node.splat(getTensorType(x).clone(wanted), 0)}, 2);
    };
    if (total == steps)
      return extend(fresh);
    if (!past) {
      node.error() << "has no past, but total_sequence_length is " << total << " for " << steps
                   << " queries";
      return {};
    }
    if (std::optional<double> start = getSplat(before)) {
      // All batches continue at one place.
      auto at = static_cast<int64_t>(*start);
      if (at < 0 || at > capacity || at + steps > size) {
        node.error() << "a past of " << capacity << " keys cannot be continued at " << at;
        return {};
      }
      return extend(node.concatenate({node.slice(past, 2, 0, at), fresh}, 2));
    }
    if (steps != 1) {
      node.error() << "seqlens_k must be known at compile time where " << steps
                   << " queries continue a past";
      return {};
    }
    // Each batch's key goes to its own place.
    Value place =
        node.iota(RankedTensorType::get({size}, getTensorType(before).getElementType()), 0);
    place = node.reshape(place, {1, 1, size, 1});
    Value start = node.reshape(before, {getShape(before)[0], 1, 1, 1});
    Value old = node.select(node.compare(loom::Direction::LT, place, start), extend(past),
                            node.splat(getTensorType(past).clone({1}), 0));
    return node.select(node.compare(loom::Direction::EQ, place, start), fresh, old);
  }

  Value getAllowed() {
    KeyWindow window{-1, 0};
    // The window counts the query's own key.
    if (int64_t local = node.intAttribute("local_window_size", -1); local > 0)
      window.left = local - 1;
    if (std::optional<double> start = getSplat(before))
      return allowedKeys(node, steps, total, window, static_cast<int64_t>(*start), Value());
    return allowedKeys(node, steps, total, window, 0, before);
  }

  /// With a sink, an additional key without a value takes a share of the probabilities.
  Value softmax(Value scores) {
    if (!scores)
      return scores;
    bool hasSink = node.hasOperand(11);
    if (!hasSink && node.intAttribute("smooth_softmax", 0) != 1)
      return node.emit<loom::SoftmaxOp>(scores.getType(), scores, 3);
    Dims column(getShape(scores));
    column[3] = 1;
    Value sink = node.splat(getTensorType(scores).clone(column), 0);
    if (hasSink) {
      Value given = node.operand(11);
      if (getShape(given) != ArrayRef<int64_t>{column[1]}) {
        node.error() << "head_sink is " << toString(getShape(given)) << ", expected [" << column[1]
                     << "]";
        return {};
      }
      sink = node.broadcast(given, column, {1});
    }
    Value all = node.concatenate({scores, sink}, 3);
    Value shares = all ? node.emit<loom::SoftmaxOp>(all.getType(), all, 3) : all;
    return shares ? node.slice(shares, 3, 0, getShape(scores)[3]) : shares;
  }

  Node &node;
  Value query, key, value;
  /// The number of past keys of each batch, i64.
  Value before;
  int64_t steps = 0, total = 0;
};

} // namespace

static LogicalResult importGroupQueryAttention(Node &node) { return GroupQueryImport(node).run(); }

ArrayRef<OpRule> onnx_import::getContribAttentionRules() {
  static constexpr StringLiteral ms = "com.microsoft";
  static constexpr OpRule rules[] = {
      {"Attention", 1, 1, importAttention, ms},
      {"GroupQueryAttention", 1, 1, importGroupQueryAttention, ms},
      {"MultiHeadAttention", 1, 1, importMultiHeadAttention, ms},
      {"QAttention", 1, 1, importQuantizedAttention, ms},
      {"RotaryEmbedding", 1, 1, importRotaryEmbedding, ms},
  };
  return rules;
}
