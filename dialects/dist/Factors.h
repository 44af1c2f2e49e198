//===- Factors.h - from shardings to factors and back -----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_DIALECTS_DIST_FACTORS_H
#define GRIDLOOM_DIALECTS_DIST_FACTORS_H

#include "dialects/dist/Sharding.h"

namespace gridloom::dist {

/// A factor that two tensors of one operation want split differently, or an axis two factors want.
struct FactorConflict {
  int64_t factor;
  int64_t loser;   ///< index of the tensor whose sharding gave way
  AxisList wanted; ///< the split that it wants of the factor
  /// Bytes a device sends for the operation as it is split, and with the loser's split; equal if
  /// that is not possible.
  double sent = 0, otherwise = 0;
};

/// The split of an operation's factors: per factor the axes, major to minor, and the granule of its
/// cuts.
struct FactorSplits {
  llvm::SmallVector<AxisList> axes;
  llvm::SmallVector<int64_t> granules;

  explicit FactorSplits(size_t numFactors = 0) : axes(numFactors), granules(numFactors, 1) {}
  /// True if the last shards of the factor hold fewer elements than the first, or none.
  bool isPadded(const ShardingRule &rule, size_t factor, const Mesh &mesh) const;
};

/// Merges the shardings of all tensors (operands, then results) into the split of each factor. If
/// tensors disagree, the cheapest split wins (getSplitCost), then the one that more bytes already
/// have. An axis splits one factor only; factors that need replication stay whole, and so does what
/// the sharding of some tensor cannot express.
FactorSplits mergeFactors(const ShardingRule &rule, llvm::ArrayRef<Sharding> shardings,
                          llvm::ArrayRef<mlir::RankedTensorType> types, const Mesh &mesh,
                          llvm::SmallVectorImpl<FactorConflict> *conflicts = nullptr);

/// Why a rule's factors cannot be split so on the mesh, as the rest of a sentence about the
/// operation; empty if they can.
std::string findFault(const ShardingRule &rule, const FactorSplits &splits, const Mesh &mesh);

/// The sharding of tensor `index` for these splits of the factors.
Sharding project(const ShardingRule &rule, size_t index, const FactorSplits &splits,
                 const Mesh &mesh);

/// The types of an operation's tensors: operands, then results.
llvm::SmallVector<mlir::RankedTensorType> getTensorTypes(mlir::Operation *op);

} // namespace gridloom::dist

#endif // GRIDLOOM_DIALECTS_DIST_FACTORS_H
