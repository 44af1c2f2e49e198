//===- Splits.h - the splits of operations in a program ---------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The shard phase decides how every operation is split and records it as `dist.splits`;
// partitioning carries it out.
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

/// The splits of an operation with that rule. Fails, with an error on the operation, if it has none
/// or cannot be split so on the mesh.
mlir::FailureOr<OpSplits> readSplits(mlir::Operation *op, const ShardingRule &rule,
                                     const Mesh &mesh);

/// The shardings of the operands that an operation with these splits reads, and of the results that
/// it makes: results are partial over the axes of reduction factors.
llvm::SmallVector<Sharding> getSplitShardings(mlir::Operation *op, const ShardingRule &rule,
                                              const OpSplits &splits, const Mesh &mesh);

/// The splits of factors implied by the shardings of an operation's operands and results, by cost
/// where they disagree. Fails, with an error on the operation, if one has no sharding.
mlir::FailureOr<FactorSplits> getImpliedSplits(mlir::Operation *op, const ShardingRule &rule,
                                               const Mesh &mesh);

/// On the operation that reads a weight, and on the argument of a state: how it lies in memory. It
/// does not propagate; readers that need another sharding get a reshard.
inline constexpr llvm::StringLiteral kStorage = "dist.storage";

/// How a weight's or state's value lies in memory; null if not given.
ShardingAttr getStorage(mlir::Value value);
void setStorage(mlir::Value value, ShardingAttr storage);
/// The sharding in which the program gets a value: its storage, or else its sharding.
ShardingAttr getGivenSharding(mlir::Value value);

/// True if each device holds the same elements of a tensor in both shardings, so that no reshard is
/// needed.
bool areSamePlacement(const Sharding &a, const Sharding &b, mlir::RankedTensorType type,
                      const Mesh &mesh);

} // namespace gridloom::dist

#endif // GRIDLOOM_DIALECTS_DIST_SPLITS_H
