//===- Weighing.h - estimates of a candidate before compiling -----*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_PLANNER_WEIGHING_H
#define GRIDLOOM_COMPILER_PLANNER_WEIGHING_H

#include "compiler/planner/CostModel.h"
#include "compiler/planner/MemoryEstimate.h"
#include "passes/shard/Shard.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace gridloom {

/// Estimates for a way to split a program, times from the phases up to communicate.
struct Weighed {
  std::string refusal; ///< the first error; if there is one, the rest is unset
  std::vector<Estimate> estimates;
  int64_t stages = 1; ///< of the mesh
  // Only of a program weighed as a whole; unset if it cannot be fused:
  std::vector<StageMemory> memory;         ///< estimates
  mlir::OwningOpRef<mlir::ModuleOp> fused; ///< the program as the fuse phase leaves it

  double getSeconds() const;     ///< all specialisations together
  int64_t getLeastBytes() const; ///< of the one that needs most
};

/// Runs the phases on a copy. `isWhole`: goes on to the fuse phase and estimates memory, too.
Weighed weigh(mlir::ModuleOp module, ShardOptions options, const MemoryOptions &memory,
              bool isWhole);

/// The estimates for a program with `count` layers.
struct WeighedLayers {
  int64_t count;
  Weighed weighed;
};

/// Extrapolates the seconds of a step with `layers` layers from programs with fewer, whose stages
/// are merged. A lower bound if there are stages: the slowest takes at least an even share.
double extrapolateSeconds(const WeighedLayers &few, const WeighedLayers &more, int64_t layers);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_PLANNER_WEIGHING_H
