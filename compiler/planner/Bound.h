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

namespace gridloom {

struct PlanBound {
  double seconds = 0; ///< no plan takes less
  std::string scope;  ///< what it covers, and what it comes from
};

/// Axes of the meshes that certification searches: each more takes ten times as long.
inline constexpr size_t kCertifiedAxes = 3;

/// The meshes of the devices with at most so many axes, but for those that another one can say,
/// whose axes it joins: what is split over a joint axis is split over both of its parts. Axes are
/// named x, y and so on.
std::vector<MeshSpec> listFinestMeshes(int64_t devices, size_t mostAxes);

/// The bound of the simplified program on all devices of the machine; `seconds` is what a plan that
/// was found takes. With `certifies` the search
/// bounds what has no stages on each of the finest meshes, with what `shard` pins.
PlanBound boundPlans(mlir::ModuleOp module, const cluster::Machine &machine, int64_t devices,
                     double seconds, bool certifies, const std::vector<std::string> &shard);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_PLANNER_BOUND_H
