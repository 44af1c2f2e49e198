//===- Splits.h - how operations are split, as the program says -*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The shard phase decides how every operation is split and writes it on the operation as
// `dist.splits`; partitioning executes what stands there.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_DIALECTS_DIST_SPLITS_H
#define GRIDLOOM_DIALECTS_DIST_SPLITS_H

#include "dialects/dist/Factors.h"

namespace gridloom::dist {

/// How one operation is split: SplitsAttr as plain data.
struct OpSplits {
  FactorSplits factors;
  /// Axes over which the operands stay partial sums, and so does the result.
  AxisList unreduced;

  SplitsAttr getAttr(mlir::MLIRContext *context) const;
};

/// The splits that stand on an operation with that rule. Fails, with an error on the operation, if
/// there are none or the operation cannot be split so on the mesh.
mlir::FailureOr<OpSplits> readSplits(mlir::Operation *op, const ShardingRule &rule,
                                     const Mesh &mesh);

/// The shardings with which an operation that is split so reads its operands and makes its results,
/// in that order: results are partial over the axes of reduction factors.
llvm::SmallVector<Sharding> getSplitShardings(mlir::Operation *op, const ShardingRule &rule,
                                              const OpSplits &splits, const Mesh &mesh);

/// The factors' splits that follow from the shardings of an operation's operands and result, where
/// they disagree by cost. Fails, with an error on the operation, if one has no sharding.
mlir::FailureOr<FactorSplits> getImpliedSplits(mlir::Operation *op, const ShardingRule &rule,
                                               const Mesh &mesh);

/// On the operation that reads a weight, and on the argument of a state: how it lies in memory. It
/// does not spread; what reads it otherwise is given a reshard.
inline constexpr llvm::StringLiteral kStorage = "dist.storage";

/// How a weight's or state's value lies in memory; null where nothing says so.
ShardingAttr getStorage(mlir::Value value);
void setStorage(mlir::Value value, ShardingAttr storage);
/// How the program is given a value: as it is stored, or as it is split.
ShardingAttr getGivenSharding(mlir::Value value);

/// True when each device holds the same elements of a tensor in both shardings: nothing has to be
/// done to come from one to the other.
bool areSamePlacement(const Sharding &a, const Sharding &b, mlir::RankedTensorType type,
                      const Mesh &mesh);

} // namespace gridloom::dist

#endif // GRIDLOOM_DIALECTS_DIST_SPLITS_H
