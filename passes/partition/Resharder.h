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
  int64_t dim = 0;      ///< sliced, scattered or gathered; the concatenated one of an all_to_all
  int64_t splitDim = 0; ///< of an all_to_all
  int64_t padTo = 0;    ///< size the dimension that is cut is padded to first; 0: as it is
  int64_t trimTo = 0;   ///< size the dimension that is joined is trimmed to; 0: as it is
  llvm::SmallVector<int64_t> permutation = {}; ///< of a permute: whose value each member takes
};

/// The steps that turn `from` into `to` soonest, for a tensor of the global type. Free slices,
/// reductions (straight into the dimension that wants the axes where one does), exchanges between
/// dimensions, permutes and gathers are weighed against each other over all axes at once; the bytes
/// are never more than those of reducing everything, gathering everything and slicing. On meshes
/// too large to search it is the best found, that and a greedy way included. Fails when `to` asks
/// for partial values `from` lacks, or a step would communicate over the micro-batch axis.
mlir::FailureOr<llvm::SmallVector<ReshardStep>> planReshard(const dist::Sharding &from,
                                                            const dist::Sharding &to,
                                                            mlir::RankedTensorType global,
                                                            const dist::Mesh &mesh);

/// The cost of the steps for a device, starting from a local value of type `local`.
dist::MoveCost getReshardCost(llvm::ArrayRef<ReshardStep> steps, mlir::RankedTensorType local,
                              const dist::Mesh &mesh);

/// None for what does not communicate.
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
