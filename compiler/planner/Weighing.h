//===- Weighing.h - what a candidate takes, before it is compiled -*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_PLANNER_WEIGHING_H
#define GRIDLOOM_COMPILER_PLANNER_WEIGHING_H

#include "compiler/planner/CostModel.h"
#include "compiler/planner/MemoryEstimate.h"
#include "passes/shard/Shard.h"

namespace gridloom {

/// What the phases up to communication make of a way to split a program.
struct Weighed {
  std::string refusal; ///< the first error; then there is nothing else
  std::vector<Estimate> estimates;
  int64_t estimatedBytes = 0; ///< a device keeps about so much, if that was asked for
  int64_t stages = 1;         ///< of the mesh

  double getSeconds() const;     ///< all specialisations together
  int64_t getLeastBytes() const; ///< of the one that needs most
};

/// Runs the phases on a copy; `estimates` memory as well.
Weighed weigh(mlir::ModuleOp module, ShardOptions options, const MemoryOptions &memory,
              bool estimates);

/// A number of layers, and what a program takes that has so many.
struct WeighedLayers {
  int64_t count;
  Weighed weighed;
};

/// The seconds of a step with so many layers, from what fewer take with their stages merged. Stages
/// take at least so much, since the slowest takes no less than its part.
double extrapolateSeconds(const WeighedLayers &few, const WeighedLayers &more, int64_t layers);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_PLANNER_WEIGHING_H
