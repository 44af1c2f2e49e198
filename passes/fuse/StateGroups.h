//===- StateGroups.h - kernels that update states ---------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_FUSE_STATEGROUPS_H
#define GRIDLOOM_PASSES_FUSE_STATEGROUPS_H

#include "passes/fuse/FusionGroups.h"

namespace gridloom {

/// Joins groups that compute next values of states of one shape, element by element, from tensors
/// that they share, with the groups that only they read. A step of an optimizer is then one kernel,
/// which reads gradient, parameter and moments once and writes over the latter. What such groups
/// compute lies in the states' memory, so joining them keeps nothing alive for longer.
void joinStateUpdates(mlir::Block &block, std::vector<FusionGroup> &groups);

/// Has a scatter that adds into zeros add into what its result is added to: of a gradient that is
/// the sum of a table's rows and of a product, it then touches the rows alone.
void scatterIntoSums(mlir::Block &block);

/// Makes sums, products and extrema of all elements those of rows, then of the rows' results:
/// kernels reduce rows in parallel, and compute what they reduce on the way.
void cutReductions(mlir::Block &block);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_FUSE_STATEGROUPS_H
