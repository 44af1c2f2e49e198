//===- Bound.h - what no plan of a program goes below ------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A bound of the sum of all that a device computes and sends in a step (CostModel.h), over every
// mesh of the devices, every split and storage, every number of stages and every cut into them, and
// every number of micro-batches. It comes from the work alone (WorkBound.h), or, which takes longer
// and is closer, from the search's bounds on all meshes of some axes. The memory of devices is left
// out: a plan that does not fit counts, too.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_PLANNER_BOUND_H
#define GRIDLOOM_COMPILER_PLANNER_BOUND_H

#include "compiler/planner/Meshes.h"

#include <functional>

namespace gridloom {

struct PlanBound {
  double seconds = 0; ///< no plan takes less
  std::string scope;  ///< what it covers, and what it comes from
};

/// Axes of the meshes that certification searches: each more takes ten times as long.
inline constexpr size_t kCertifiedAxes = 3;

/// What is known of plans, and how closely to bound them.
struct BoundRequest {
  double seconds = 0;     ///< the least that a plan is known to take
  bool certifies = false; ///< the search bounds what has no stages on each of the finest meshes
  size_t mostAxes = 0;    ///< that a plan may split over, stages apart
  bool isPinned = false;  ///< the user or the model says how some values are split
  /// There is no more time to certify. May be null.
  std::function<bool()> isOver;
};

/// The bound of the simplified program on all devices of the machine. Pins are left out, for they
/// name axes of a mesh: without them no more is taken. Where the search cannot bound all plans, or
/// not in time, or one takes less than it says, the bound by work counts, and the scope says so.
PlanBound boundPlans(mlir::ModuleOp module, const cluster::Machine &machine, int64_t devices,
                     const BoundRequest &request);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_PLANNER_BOUND_H
