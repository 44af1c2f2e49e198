//===- MoveCost.h - cost of splitting an operation --------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_DIALECTS_DIST_MOVECOST_H
#define GRIDLOOM_DIALECTS_DIST_MOVECOST_H

#include "dialects/dist/Factors.h"

namespace gridloom::dist {

/// The cost for one device. Times are compared; reports give the bytes sent.
struct MoveCost {
  double sent = 0; ///< bytes
  double seconds = 0;
  /// In addition, the time to reorder values moved along a dimension that is not the outermost: a
  /// collective reads and writes parts one after another.
  double copySeconds = 0;
};

/// The time of a kernel that reads and writes that many bytes.
double getCopySeconds(double bytes, const Mesh &mesh);

/// The time to put the parts of a tensor along a dimension one after another, or back; 0 if they
/// are so already.
double getOrderSeconds(mlir::RankedTensorType local, size_t dim, const Mesh &mesh);

/// The cost of resharding a tensor from `from` to `to`: one all_gather for dimensions that become
/// whole, one all_to_all for axes that change dimensions. Cutting a replicated tensor is free.
MoveCost getMoveCost(mlir::RankedTensorType type, const Sharding &from, const Sharding &to,
                     const Mesh &mesh);

/// The cost of an operation with these splits: moving its tensors from and to their `shardings`,
/// reducing partial results, and a device's share of the work.
MoveCost getSplitCost(const ShardingRule &rule, llvm::ArrayRef<Sharding> shardings,
                      llvm::ArrayRef<mlir::RankedTensorType> types, const FactorSplits &splits,
                      const Mesh &mesh);

} // namespace gridloom::dist

#endif // GRIDLOOM_DIALECTS_DIST_MOVECOST_H
