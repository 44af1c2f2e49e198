//===- Deferral.h - later starts that save memory ---------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SCHEDULE_DEFERRAL_H
#define GRIDLOOM_PASSES_SCHEDULE_DEFERRAL_H

#include "passes/schedule/ListRun.h"

#include "llvm/ADT/STLFunctionalExtras.h"

namespace gridloom {

/// Replaces `order`, a result of runList, by one in which starts that take memory come later, if
/// that lowers peak memory and does not delay the estimated end; returns the deferred starts.
/// `added`: per node, the bytes of a start's results beyond the operands that it frees; a start
/// that adds none is not deferred. `getPeak` returns the peak memory of an order in bytes.
std::vector<unsigned> deferStarts(llvm::ArrayRef<ScheduleNode> nodes, llvm::ArrayRef<int64_t> added,
                                  llvm::function_ref<int64_t(llvm::ArrayRef<unsigned>)> getPeak,
                                  ListOrder &order);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SCHEDULE_DEFERRAL_H
