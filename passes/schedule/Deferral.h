//===- Deferral.h - later starts that take less memory ----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SCHEDULE_DEFERRAL_H
#define GRIDLOOM_PASSES_SCHEDULE_DEFERRAL_H

#include "passes/schedule/ListRun.h"

#include "llvm/ADT/STLFunctionalExtras.h"

namespace gridloom {

/// Changes `order`, which runList gave, to one in which starts that take memory come later, if that
/// lowers the most memory in use and the estimated end stays; returns the starts that are deferred.
/// `added` says per node how many bytes results of a start have more than the operands it frees;
/// one that adds none starts as soon as it can. `getPeak` gives the most bytes in use in an order.
std::vector<unsigned> deferStarts(llvm::ArrayRef<ScheduleNode> nodes, llvm::ArrayRef<int64_t> added,
                                  llvm::function_ref<int64_t(llvm::ArrayRef<unsigned>)> getPeak,
                                  ListOrder &order);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SCHEDULE_DEFERRAL_H
