//===- Attention.h - helpers of attention operators -------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_ONNX_ATTENTION_H
#define GRIDLOOM_COMPILER_ONNX_ATTENTION_H

#include "compiler/onnx/Node.h"

namespace gridloom::onnx_import {

/// [batch, sequence, heads * size] as [batch, heads, sequence, size]. Null, with an error, if the
/// rank is not 3 or `heads` does not divide the last dimension.
mlir::Value splitHeads(Node &node, mlir::Value x, int64_t heads);
/// [batch, heads, sequence, size] as [batch, sequence, heads * size].
mlir::Value joinHeads(Node &node, mlir::Value x);

/// The head dimension of query, [b, q heads, s, d], cut into [b, kv heads, group, s, d], so that
/// every group shares a key and value head without repeating it. Null, with an error, if
/// `kvHeads` does not divide the heads.
mlir::Value groupHeads(Node &node, mlir::Value x, int64_t kvHeads);

/// query times key transposed: [b, q heads, s, d] and [b, kv heads, t, d] give [b, q heads, s, t].
mlir::Value attentionScores(Node &node, mlir::Value query, mlir::Value key);
/// Probabilities [b, q heads, s, t] times value [b, kv heads, t, d].
mlir::Value attentionOutput(Node &node, mlir::Value probabilities, mlir::Value value);

/// cap * tanh(x / cap).
mlir::Value softcap(Node &node, mlir::Value x, double cap);
/// A mask of booleans as a bias of `type`: 0 for keys that it admits, minus infinity for the
/// others.
mlir::Value maskToBias(Node &node, mlir::Value allowed, mlir::Type type);
/// The sum of two biases, of which either may be null.
mlir::Value addBiases(Node &node, mlir::Value a, mlir::Value b);
/// Softmax of scores + bias over the last dimension. Rows whose bias, which may be null, masks
/// every key give zeros.
mlir::Value maskedSoftmax(Node &node, mlir::Value biased, mlir::Value bias);

/// A mask that is true where query s sees key t, as booleans [s, t] or, if `offset` has one number
/// per batch, [b, 1, s, t]: p - left <= t <= p + right with p = s + offset; a negative bound is
/// none. Null, without an error, if there is no bound.
struct KeyWindow {
  int64_t left = -1, right = -1;
};
mlir::Value allowedKeys(Node &node, int64_t queries, int64_t keys, KeyWindow window, int64_t offset,
                        mlir::Value batchOffset);

/// Rotates pairs of x, [b, heads, s, d], by angles whose cosines and sines are [b or 1, s, r / 2];
/// elements from r on do not change. Pairs are neighbours if `interleaved`, else the halves of the
/// first r.
mlir::Value rotate(Node &node, mlir::Value x, mlir::Value cosine, mlir::Value sine,
                   bool interleaved);

} // namespace gridloom::onnx_import

#endif // GRIDLOOM_COMPILER_ONNX_ATTENTION_H
