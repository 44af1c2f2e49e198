//===- Reasons.h - reasons for replicated values ----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SHARD_REASONS_H
#define GRIDLOOM_PASSES_SHARD_REASONS_H

#include "passes/shard/Propagation.h"

namespace gridloom {

/// What a strategy that tried to split a weight or state met, kept on its read or argument while
/// shardings are chosen; null where none tried.
dist::OriginAttr getObstacle(mlir::Value weight);
/// Notes it. Of a weight that is computed with in another type, on the weight.
void setObstacle(mlir::Value weight, dist::OriginAttr obstacle);
void removeObstacles(mlir::func::FuncOp func);

/// For every value of a completed propagation that no axis splits, why not: a sentence that names
/// the ONNX node that decides. Axes that cut in time and the one of
/// the pipeline's stages split no value; where the mesh has no other, that is the reason.
Propagation::Reasons explainReplicated(const Propagation &state);

/// The same where a strategy tried to split the value, and of the others none.
Propagation::Reasons noteObstacles(const Propagation &state);

/// Emits a remark per kind of reason, with the first few of the values that have it.
void remarkReplicated(const Propagation &state, const Propagation::Reasons &reasons);

/// Emits a remark wherever an operation's tensors ask for different splits: the node, the values,
/// what each asks for, and the bytes a device sends either way.
void remarkConflicts(const Propagation &state);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SHARD_REASONS_H
