//===- CostModel.h - predicted time and memory ------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_PLANNER_COSTMODEL_H
#define GRIDLOOM_COMPILER_PLANNER_COSTMODEL_H

#include "mlir/IR/BuiltinOps.h"

#include <string>
#include <vector>

namespace gridloom {

/// One operation that takes time, for reports.
struct OperationCost {
  std::string node, op;
  double seconds = 0;
};

/// The predicted cost of one specialisation per step, in seconds per device.
struct Estimate {
  std::string entry, dims; ///< "main", "batch=8,sequence=32"
  double compute = 0, communication = 0, exposed = 0, step = 0;
  double bubble = 0; ///< share of the step the slowest stage waits
  /// A lower bound of memory per device, the maximum over devices: weights, states, inputs and
  /// outputs.
  int64_t leastBytes = 0;
  std::vector<OperationCost> operations; ///< most expensive first
};

/// Estimates every specialisation of a partitioned module on the machine that it is split for:
/// operations and communication one after another, pipelines by (m + p - 1) steps of the slowest
/// stage.
std::vector<Estimate> estimate(mlir::ModuleOp module);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_PLANNER_COSTMODEL_H
