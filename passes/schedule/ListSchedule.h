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

/// Groups that start later than they could, to take memory later.
using DeferredStarts = llvm::SmallPtrSet<mlir::Operation *, 8>;

/// Sorts the operations of `block`, terminator last. Communication starts when its operands are
/// ready; `dist.done` stands before its first reader. Without `overlap` compute stands still while
/// a group runs. `mesh` says how long each takes. Collectives whose results take more memory than
/// their operands give back start so late that compute need not wait, where that lowers the most
/// memory in use; they are returned, for they must also wait for the compute before them.
DeferredStarts listSchedule(mlir::Block &block, const dist::Mesh &mesh, bool overlap);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SCHEDULE_LISTSCHEDULE_H
