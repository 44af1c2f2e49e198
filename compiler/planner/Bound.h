//===- Bound.h - lower bound of all plans of a program -----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A lower bound of the sum of a step's computation and communication on a device (CostModel.h),
// over every mesh of the devices, every split and storage, every number of stages and cut into
// them, and every number of micro-batches. It comes from the work alone (WorkBound.h) or, closer
// but slower, from the search's bounds on all meshes of up to kCertifiedAxes axes. Memory is
// ignored: plans that do not fit count, too.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_PLANNER_BOUND_H
#define GRIDLOOM_COMPILER_PLANNER_BOUND_H

#include "compiler/planner/Meshes.h"

#include <functional>

namespace gridloom {

struct PlanBound {
  double seconds = 0; ///< no plan takes less
  std::string scope;  ///< what it covers and how it was computed
};

/// Most axes of a mesh that certification searches: each more takes ten times as long.
inline constexpr size_t kCertifiedAxes = 3;

/// What is known about the plans, and how closely to bound them.
struct BoundRequest {
  double seconds = 0;     ///< the least sum of a known plan
  bool certifies = false; ///< bound plans without micro-batches by the search, too
  size_t mostAxes = 0;    ///< most axes that a candidate splits over, without the pipeline's
  bool isPinned = false;  ///< the user or the model pins splits of some values
  /// Whether time to certify is over. May be null.
  std::function<bool()> isOver;
};

/// Bounds the plans of the simplified program on all devices of the machine. Pins name axes of one
/// mesh and are ignored, which only lowers the bound. If the search cannot bound all meshes, runs
/// out of time, or exceeds a known plan, the bound by work counts, and the scope gives the reason.
PlanBound boundPlans(mlir::ModuleOp module, const cluster::Machine &machine, int64_t devices,
                     const BoundRequest &request);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_PLANNER_BOUND_H
