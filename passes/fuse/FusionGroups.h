//===- FusionGroups.h - operations that share a kernel ----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_FUSE_FUSIONGROUPS_H
#define GRIDLOOM_PASSES_FUSE_FUSIONGROUPS_H

#include "dialects/plan/Plan.h"

#include "llvm/ADT/SetVector.h"

namespace gridloom {

/// The kind of an operation for fusion. Which loops its kernel gets is decided later, by code
/// generation (plan::Skeleton).
enum class FusionKind {
  Boundary,    // not part of any kernel: weights, tables, views in memory, communication
  Generator,   // repeated in every kernel that reads it: broadcasts, splats, index arithmetic
  Elementwise, // one element in, one out
  RowWise,     // each row of the last dimension on its own
  RowReduce,   // reduces the last dimension
  Reduce,      // reduces others, to values that are worth sharing out among threads
  Stencil,     // reduces the window of each element
  Product,     // sums products of two tensors in memory for each element
  IndexMap,    // moves elements, keeping runs of the last dimension together
  Join,        // joins a few tensors: each part of the kernel's loops reads one of them
  Gather,      // reads rows of a table
  Opaque,      // a kernel of its own
};

/// The most values that a kernel reads. Each is a parameter, and so is each result and size; PTX
/// before version 8.1 allows 4,352 bytes of them.
constexpr size_t kMostInputs = 400;

FusionKind getFusionKind(mlir::Operation *op);

/// The operations of one kernel. `root` computes its last output; `others`, which come before it,
/// compute more. An operation can be in several groups only if it is a Generator, moves elements
/// that are in memory, or costs no more than reading its result would.
struct FusionGroup {
  mlir::Operation *root;
  llvm::SmallVector<mlir::Operation *, 0> others;
  llvm::SmallSetVector<mlir::Operation *, 8> ops;
};

/// Cuts concatenations of more values than a kernel may read.
void cutConcatenations(mlir::Block &block);

/// Groups all operations of `block` that compute, in the order of their roots. Unused operations
/// are in no group. Contractions are kernels; with `hasProducts` operations after them can join,
/// else they are on their own.
std::vector<FusionGroup> formFusionGroups(mlir::Block &block, bool hasProducts = false);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_FUSE_FUSIONGROUPS_H
