//===- WeightUse.h - roles of weights ---------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_DIALECTS_LOOM_WEIGHTUSE_H
#define GRIDLOOM_DIALECTS_LOOM_WEIGHTUSE_H

#include "llvm/ADT/StringRef.h"

namespace gridloom::loom {

/// On a read of a weight in a program that will be trained: its role for the ONNX operator that
/// reads it, if the operations no longer show it. One of the following.
inline constexpr llvm::StringLiteral kUse = "loom.use";
inline constexpr llvm::StringLiteral kRecurrentWeight = "recurrent weight";
inline constexpr llvm::StringLiteral kEmbedding = "embedding"; // unless it is multiplied, too
inline constexpr llvm::StringLiteral kNormScale = "norm scale";
inline constexpr llvm::StringLiteral kNormBias = "norm bias";
inline constexpr llvm::StringLiteral kBias = "bias";

/// On a module, and on arguments that are such states: other weights of the model that are tied to
/// one, {name, transposed} each; on a module also `to`, the weight.
inline constexpr llvm::StringLiteral kTied = "loom.tied";

/// On a function of entry `train_step`, until the step is built: the ONNX nodes that would compute
/// something else in training mode, {op, node} each.
inline constexpr llvm::StringLiteral kEvaluated = "loom.evaluated";

} // namespace gridloom::loom

#endif // GRIDLOOM_DIALECTS_LOOM_WEIGHTUSE_H
