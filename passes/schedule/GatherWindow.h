//===- GatherWindow.h - room for gathered parameters ------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SCHEDULE_GATHERWINDOW_H
#define GRIDLOOM_PASSES_SCHEDULE_GATHERWINDOW_H

#include "mlir/IR/Block.h"

namespace gridloom {

/// Moves each all_gather of a parameter (`dist.gathered`) to its first use: the program says where
/// it is needed, not when it starts.
void sinkGathers(mlir::Block &block);

/// Which all_gathers of parameters have to wait for which operation, so that never more are
/// gathered than the function's window (`dist.gather_window`) has bytes for: pairs of the last use
/// of a parameter that must be gone, and the start. Holds for an order in which compute follows the
/// program, where all last uses before that one are over, too; earlier starts have waited for no
/// later use.
llvm::SmallVector<std::pair<mlir::Operation *, mlir::Operation *>>
findGatherWaits(mlir::Block &block);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SCHEDULE_GATHERWINDOW_H
