//===- CostModel.h - predicted time and memory ------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_PLANNER_COSTMODEL_H
#define GRIDLOOM_COMPILER_PLANNER_COSTMODEL_H

#include "mlir/IR/BuiltinOps.h"

#include <vector>

namespace gridloom {

/// What decides which ways to split a program are worth simulating, per specialisation.
struct Estimate {
  double seconds = 0;      ///< of a step
  double microSeconds = 0; ///< of a micro-batch through all stages
  int64_t microbatches = 1;
  /// A lower bound of memory per device, the maximum over devices: weights, states, inputs and
  /// outputs.
  int64_t leastBytes = 0;
};

/// Estimates every specialisation of a partitioned module on the machine that it is split for:
/// operations and communication one after another. A pipeline takes one micro-batch through all
/// stages and m - 1 times its slowest stage.
std::vector<Estimate> estimate(mlir::ModuleOp module);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_PLANNER_COSTMODEL_H
