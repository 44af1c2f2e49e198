//===- SplitChoices.h - the ways to split an operation ----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SHARD_SPLITCHOICES_H
#define GRIDLOOM_PASSES_SHARD_SPLITCHOICES_H

#include "dialects/dist/Factors.h"

namespace gridloom {

/// One way to split an operation's factors.
struct SplitChoice {
  dist::SplitsAttr splits;
  /// The shardings that its tensors then have: operands, then results, which may be unreduced.
  llvm::SmallVector<dist::ShardingAttr> shardings;
  double seconds; ///< of a device's share of the work, and of communication within the operation
};

/// The value whole, but cut into micro-batches as its sharding says.
dist::Sharding getWholeInTime(mlir::Value value);

/// The sharding without partial values.
dist::ShardingAttr getReduced(dist::ShardingAttr sharding, const dist::Mesh &mesh);

/// Every way to put each of the axes on one factor or none that shardings of the operation's
/// tensors can express, the way without splits first. Of several axes on one factor the earlier in
/// the list is major. With `mayPassSums`, a linear operation also has each way with operands and
/// result that stay partial sums over axes that split nothing. Tensors stay cut into micro-batches
/// as their shardings say; costs are those of one micro-batch, without communication to bring
/// operands into place and to reduce results. An operation that has `dist.splits`, which its rule
/// must allow, has this way alone. With `isBound`, costs are lower bounds.
std::vector<SplitChoice> listSplitChoices(mlir::Operation *op,
                                          llvm::ArrayRef<mlir::StringAttr> axes,
                                          const dist::Mesh &mesh, bool mayPassSums,
                                          bool isBound = false);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SHARD_SPLITCHOICES_H
