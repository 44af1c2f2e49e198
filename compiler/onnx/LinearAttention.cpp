//===- LinearAttention.cpp - attention with a recurrent state -------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/Attention.h"
#include "compiler/onnx/OpTable.h"
#include "compiler/onnx/Recurrent.h"

#include <cmath>

using namespace mlir;
using namespace gridloom;
using namespace gridloom::onnx_import;

namespace {

/// ai.onnx LinearAttention, computed in f32. The state is [batch, kv heads, key size, value size].
class LinearAttentionImport {
public:
  explicit LinearAttentionImport(Node &node) : node(node) {}

  LogicalResult run() {
    if (failed(readHeads()) || failed(readRule()) || failed(readState()))
      return failure();
    Type element = getTensorType(node.operand(0)).getElementType();
    int64_t steps = getShape(query)[2];
    Value output;
    if (!gate && !rate) {
      output = attendAtOnce();
    } else {
      if (failed(checkUnrolled(node, steps)))
        return failure();
      SmallVector<Value> outputs;
      for (int64_t i = 0; i < steps; ++i)
        outputs.push_back(step(i));
      output = node.concatenate(outputs, 2);
    }
    output = node.convert(joinHeads(node, output), element);
    return failure(failed(node.setResult(0, output)) ||
                   failed(node.setResult(1, node.convert(state, stateType))));
  }

private:
  Value split(unsigned index, int64_t heads) {
    Value x = node.operand(index);
    return splitHeads(node, node.convert(x, Float32Type::get(node.getContext())), heads);
  }

  LogicalResult readHeads() {
    int64_t heads = node.intAttribute("q_num_heads", 0);
    kvHeads = node.intAttribute("kv_num_heads", 0);
    if (!(query = split(0, heads)) || !(key = split(1, kvHeads)) || !(value = split(2, kvHeads)))
      return failure();
    size = getShape(query)[3];
    if (getShape(query)[2] == 0 || getShape(key)[2] != getShape(query)[2] ||
        getShape(value)[2] != getShape(query)[2] || getShape(key)[3] != size || size == 0 ||
        getShape(key)[0] != getShape(query)[0] || getShape(value)[0] != getShape(query)[0])
      return node.error() << "query " << toString(getShape(query)) << ", key "
                          << toString(getShape(key)) << " and value " << toString(getShape(value))
                          << " do not fit together";
    double scale = node.floatAttribute("scale", 0);
    if (scale == 0)
      scale = 1.0 / std::sqrt(static_cast<double>(size));
    query = node.binary<loom::MultiplyOp>(query, scale);
    return success();
  }

  /// Decay (gate) and update rate, each [batch, kv heads, steps, 1 or key size], where the rule has
  /// them.
  LogicalResult readRule() {
    std::string rule = node.stringAttribute("update_rule", "gated_delta");
    bool isGated = rule == "gated" || rule == "gated_delta";
    bool isDelta = rule == "delta" || rule == "gated_delta";
    if (!isGated && !isDelta && rule != "linear")
      return node.error() << "update_rule '" << rule
                          << "' is not one of linear, gated, delta, gated_delta";
    if (isGated != node.hasOperand(4) || isDelta != node.hasOperand(5))
      return node.error() << "update_rule '" << rule << "' "
                          << (isGated ? "needs" : "does not take") << " a decay and "
                          << (isDelta ? "needs" : "does not take") << " a beta";
    if (isGated && !(gate = node.unary<loom::ExpOp>(split(4, kvHeads))))
      return failure();
    if (isDelta) {
      ArrayRef<int64_t> shape = getShape(node.operand(5));
      rate = split(5, shape.empty() || shape.back() == 1 ? 1 : kvHeads);
      if (!rate)
        return failure();
      if (getShape(rate)[3] != 1)
        return node.error() << "beta " << toString(shape)
                            << " does not have one number for each of " << kvHeads << " heads";
    }
    Dims rows{getShape(key)[0], getShape(key)[2]};
    for (unsigned index : {4u, 5u})
      if (node.hasOperand(index) &&
          getShape(node.operand(index)).take_front(2) != ArrayRef<int64_t>(rows))
        return node.error() << "input " << index << " is "
                            << toString(getShape(node.operand(index))) << " for " << rows[0]
                            << " x " << rows[1] << " steps";
    if (gate && getShape(gate)[3] != 1 && getShape(gate)[3] != size)
      return node.error() << "decay has " << getShape(gate)[3]
                          << " numbers for each head, expected 1 or " << size;
    return success();
  }

  LogicalResult readState() {
    Dims wanted{getShape(key)[0], kvHeads, size, getShape(value)[3]};
    Type f32 = Float32Type::get(node.getContext());
    stateType = getTensorType(node.operand(0)).getElementType();
    if (!node.hasOperand(3)) {
      state = node.splat(RankedTensorType::get(wanted, f32), 0);
      return success(bool(state));
    }
    stateType = getTensorType(node.operand(3)).getElementType();
    state = node.convert(node.operand(3), f32);
    if (getShape(state) != ArrayRef<int64_t>(wanted))
      return node.error() << "past_state is " << toString(getShape(state)) << ", expected "
                          << toString(wanted);
    return success();
  }

  /// key transposed times value over all steps: what they add to the state.
  Value outer(Value k, Value v) { return node.dotGeneral(k, v, {0, 1}, {0, 1}, {2}, {2}); }

  /// Without decay and correction every step sees the sum of those before: causal attention without
  /// a softmax, and the past.
  Value attendAtOnce() {
    int64_t steps = getShape(query)[2];
    Value past = attentionOutput(node, query, state);
    Value scores = attentionScores(node, query, key);
    Value allowed = allowedKeys(node, steps, steps, {-1, 0}, 0, {});
    scores = node.select(allowed, scores, node.splatLike(scores, 0));
    state = node.binary<loom::AddOp>(state, outer(key, value));
    return node.binary<loom::AddOp>(past, attentionOutput(node, scores, value));
  }

  /// One step: the state decays, its answer to the key is subtracted from the value, and the
  /// product of key and value is added.
  Value step(int64_t i) {
    auto at = [&](Value x) { return node.slice(x, 2, i, i + 1); };
    Value k = at(key), v = at(value);
    if (gate)
      state = node.binary<loom::MultiplyOp>(state, node.transpose(at(gate), {0, 1, 3, 2}));
    if (rate)
      v = node.binary<loom::MultiplyOp>(
          at(rate), node.binary<loom::SubtractOp>(v, attentionOutput(node, k, state)));
    state = node.binary<loom::AddOp>(state, outer(k, v));
    return attentionOutput(node, at(query), state);
  }

  Node &node;
  Value query, key, value, gate, rate, state;
  Type stateType;
  int64_t kvHeads = 0, size = 0;
};

} // namespace

static LogicalResult importLinearAttention(Node &node) { return LinearAttentionImport(node).run(); }

ArrayRef<OpRule> onnx_import::getLinearAttentionRules() {
  static constexpr OpRule rules[] = {{"LinearAttention", 27, 28, importLinearAttention}};
  return rules;
}
