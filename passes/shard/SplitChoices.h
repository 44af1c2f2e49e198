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
  double seconds; ///< of a device's share of the work, and what communicates within the operation
};

/// The value's sharding with nothing but the micro-batches that cut it.
dist::Sharding getWholeInTime(mlir::Value value);

/// Every way to put each of the axes on one factor or none, of those that shardings of the
/// operation's tensors can say; the way that leaves all whole first. Where `mayPassSums`, a linear
/// operation also has each of these with operands and result that stay partial sums over axes that
/// split nothing. An axis earlier in the list is major where several split one factor. Tensors stay
/// cut into micro-batches as their shardings say, and costs are those of one. An operation that has
/// `dist.splits`, which its rule allows, has this way alone. Communication to bring operands there
/// and to reduce results is not counted. With `isBound`, costs are what no part takes less than.
std::vector<SplitChoice> listSplitChoices(mlir::Operation *op,
                                          llvm::ArrayRef<mlir::StringAttr> axes,
                                          const dist::Mesh &mesh, bool mayPassSums,
                                          bool isBound = false);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SHARD_SPLITCHOICES_H
