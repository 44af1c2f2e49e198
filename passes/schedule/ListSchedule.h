//===- ListSchedule.h - the order of a stage's work -------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SCHEDULE_LISTSCHEDULE_H
#define GRIDLOOM_PASSES_SCHEDULE_LISTSCHEDULE_H

#include "dialects/dist/Sharding.h"
#include "dialects/plan/Plan.h"

#include "llvm/ADT/SmallPtrSet.h"

namespace gridloom {

/// Groups that start later than they could, so that they take memory later.
using DeferredStarts = llvm::SmallPtrSet<mlir::Operation *, 8>;

/// Sorts the operations of `block`, terminator last. Communication starts when its operands are
/// ready; `dist.done` comes before its first reader. Without `overlap` compute stops while a group
/// runs. `mesh` gives the times. Collectives whose results take more memory than their operands
/// free start as late as possible without delaying compute, if that lowers peak memory; they are
/// returned, because they must also wait for the compute before them.
DeferredStarts listSchedule(mlir::Block &block, const dist::Mesh &mesh, bool overlap);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SCHEDULE_LISTSCHEDULE_H
