//===- GatherWindow.h - room for gathered parameters ------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SCHEDULE_GATHERWINDOW_H
#define GRIDLOOM_PASSES_SCHEDULE_GATHERWINDOW_H

#include "mlir/IR/Block.h"

namespace gridloom {

/// Moves each all_gather of a parameter (`dist.gathered`) to its first use, so that the program
/// says where it is needed; the schedule decides when it starts.
void sinkGathers(mlir::Block &block);

/// The operations that all_gathers of parameters have to wait for, so that gathered parameters
/// never take more bytes than the function's window (`dist.gather_window`): pairs of a parameter's
/// last use, after which its memory is free, and the start. Assumes that compute follows the
/// program, so that all earlier last uses are over, too; earlier starts have waited for no later
/// use.
llvm::SmallVector<std::pair<mlir::Operation *, mlir::Operation *>>
findGatherWaits(mlir::Block &block);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SCHEDULE_GATHERWINDOW_H
