//===- Resharder.h - from one sharding to another ---------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_PARTITION_RESHARDER_H
#define GRIDLOOM_PASSES_PARTITION_RESHARDER_H

#include "dialects/dist/MoveCost.h"

namespace gridloom {

/// One step of a reshard, on local values.
struct ReshardStep {
  enum Kind { Slice, ReduceScatter, AllReduce, AllToAll, AllGather, Permute } kind;
  dist::AxisList axes;
  int64_t dim = 0;      ///< sliced, scattered, gathered, or concatenated by an all_to_all
  int64_t splitDim = 0; ///< of an all_to_all
  int64_t padTo = 0;    ///< size to which the dimension that is cut is padded first; 0: not padded
  int64_t trimTo = 0;   ///< size to which the dimension that is joined is trimmed; 0: not trimmed
  llvm::SmallVector<int64_t> permutation = {}; ///< of a permute: whose value each member takes
};

/// The fastest steps from `from` to `to` for a tensor of type `global`. Weighs free slices,
/// reductions (straight into a dimension that needs the axes), exchanges between dimensions,
/// permutes and gathers over all axes at once. Never sends more bytes than reducing everything,
/// gathering everything and slicing. On meshes too large to search, returns the best steps found,
/// which may be those or a greedy choice. Fails if `to` has partial values that `from` lacks, or if
/// a step would communicate over the micro-batch axis.
mlir::FailureOr<llvm::SmallVector<ReshardStep>> planReshard(const dist::Sharding &from,
                                                            const dist::Sharding &to,
                                                            mlir::RankedTensorType global,
                                                            const dist::Mesh &mesh);

/// The cost of the steps for a device, starting from a local value of type `local`.
dist::MoveCost getReshardCost(llvm::ArrayRef<ReshardStep> steps, mlir::RankedTensorType local,
                              const dist::Mesh &mesh);

/// The collective of a step; nullopt if it does not communicate.
std::optional<cluster::Collective> getCollective(ReshardStep::Kind kind);

/// The types of a device's tensor after each step, from `local` before the first.
llvm::SmallVector<mlir::RankedTensorType> getStepTypes(llvm::ArrayRef<ReshardStep> steps,
                                                       mlir::RankedTensorType local,
                                                       const dist::Mesh &mesh);

/// Emits the steps on the local `value`; returns the result.
mlir::Value emitReshard(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value value,
                        llvm::ArrayRef<ReshardStep> steps, dist::ReductionKind reduction,
                        const dist::Mesh &mesh);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_PARTITION_RESHARDER_H
