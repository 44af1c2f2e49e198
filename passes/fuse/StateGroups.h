//===- StateGroups.h - kernels that update states ---------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_FUSE_STATEGROUPS_H
#define GRIDLOOM_PASSES_FUSE_STATEGROUPS_H

#include "passes/fuse/FusionGroups.h"

namespace gridloom {

/// Joins groups that compute next values of states of one shape, element by element and from shared
/// tensors, with the groups that only they read. A step of an optimizer is then one kernel, which
/// reads gradient, parameter and moments once and overwrites the latter. The results of such groups
/// are in the states' memory, so joining them keeps nothing alive for longer.
void joinStateUpdates(mlir::Block &block, std::vector<FusionGroup> &groups);

/// Replaces a scatter into zeros that is added to a tensor by a scatter into that tensor. If a
/// gradient is the sum of a table's rows and of a product, this touches only the rows.
void scatterIntoSums(mlir::Block &block);

/// Splits sums, products and extrema over all elements into a reduction of rows and one of its
/// results: kernels reduce rows in parallel, and compute the elements on the way.
void cutReductions(mlir::Block &block);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_FUSE_STATEGROUPS_H
