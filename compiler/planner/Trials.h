//===- Trials.h - candidates weighed and tried out ---------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_PLANNER_TRIALS_H
#define GRIDLOOM_COMPILER_PLANNER_TRIALS_H

#include "compiler/planner/Strategy.h"

namespace gridloom {

/// Chooses the candidate that fits and is the fastest in the simulator. Errors are emitted on the
/// module.
mlir::LogicalResult pickCandidate(mlir::ModuleOp module, const StrategyRequest &request,
                                  Choice &choice);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_PLANNER_TRIALS_H
