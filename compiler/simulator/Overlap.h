//===- Overlap.h - what hides communication ---------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Plain data, free of MLIR.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_SIMULATOR_OVERLAP_H
#define GRIDLOOM_COMPILER_SIMULATOR_OVERLAP_H

#include "compiler/simulator/Runs.h"

namespace gridloom::sim {

/// A step of communication beside the computation of its stage, over all its iterations; seconds.
struct Overlap {
  /// A step that computes while it moves data, and for how long.
  struct Beside {
    size_t step;
    double seconds;
  };
  /// It moves data and nothing computes. Where several collectives do so at once, each counts.
  double exposed = 0;
  /// It waits for its peer and nothing computes.
  double waiting = 0;
  std::vector<Beside> beside; ///< the longest first
};

/// One for each of the stage's steps; all zero for those that compute. Of a step that is timed
/// fewer times than it runs, the others are taken to be like these.
std::vector<Overlap> findOverlaps(const StageRun &run);

} // namespace gridloom::sim

#endif // GRIDLOOM_COMPILER_SIMULATOR_OVERLAP_H
