//===- MoveCost.h - cost of splitting an operation --------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_DIALECTS_DIST_MOVECOST_H
#define GRIDLOOM_DIALECTS_DIST_MOVECOST_H

#include "dialects/dist/Factors.h"

namespace gridloom::dist {

/// A round of a collective, a multiply-add, and a byte of memory traffic, as the bytes that a link
/// carries in the same time. The rates are those of the planner's "cpu": 80 us, 35 Gflop/s and
/// 8 GB/s beside 2 GB/s.
inline constexpr double kStepBytes = 160e3;
inline constexpr double kBytesPerMultiplyAdd = 2.0 / 17.5;
inline constexpr double kBytesPerMemoryByte = 0.25;

/// The cost for one device, in bytes sent: work and waiting count as the bytes that a link carries
/// in the same time, on the slowest machine the planner knows.
struct MoveCost {
  double sent = 0; ///< bytes
  double rest = 0; ///< latency and work, as bytes
  double total() const { return sent + rest; }
};

/// The cost of resharding a tensor from `from` to `to` by ring algorithms. Cutting a replicated
/// tensor is free.
MoveCost getMoveCost(mlir::RankedTensorType type, const Sharding &from, const Sharding &to,
                     const Mesh &mesh);

/// The cost of an operation with its factors split so: moving its tensors from and to their
/// `layouts`, reducing partial results, and a device's share of the work.
MoveCost getSplitCost(const ShardingRule &rule, llvm::ArrayRef<Sharding> shardings,
                      llvm::ArrayRef<mlir::RankedTensorType> types, const FactorSplits &splits,
                      const Mesh &mesh);

} // namespace gridloom::dist

#endif // GRIDLOOM_DIALECTS_DIST_MOVECOST_H
