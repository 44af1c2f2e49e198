//===- Reasons.h - reasons for replicated values ----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SHARD_REASONS_H
#define GRIDLOOM_PASSES_SHARD_REASONS_H

#include "passes/shard/Propagation.h"

namespace gridloom {

/// The obstacle met by a strategy that tried to split a weight or state, kept on its read or
/// argument while shardings are chosen; null if none tried.
dist::OriginAttr getObstacle(mlir::Value weight);
/// Sets the obstacle; for a weight converted to another type, on the weight itself.
void setObstacle(mlir::Value weight, dist::OriginAttr obstacle);
void removeObstacles(mlir::func::FuncOp func);

/// For every value of a completed propagation that no axis splits, why not: a sentence that names
/// the ONNX node that decides. The axes of micro-batches and of pipeline stages split no value; a
/// mesh without others is the reason.
Propagation::Reasons explainReplicated(const Propagation &state);

/// The same, for values that a strategy tried to split only.
Propagation::Reasons noteObstacles(const Propagation &state);

/// Emits one remark per kind of reason, with the first few of its values.
void remarkReplicated(const Propagation &state, const Propagation::Reasons &reasons);

/// Emits a remark wherever an operation's tensors ask for different splits: the node, the values,
/// what each asks for, and the bytes a device sends either way.
void remarkConflicts(const Propagation &state);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SHARD_REASONS_H
