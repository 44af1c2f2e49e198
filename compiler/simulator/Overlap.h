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

/// How a step of communication overlaps its stage's computation, over all iterations; in seconds.
struct Overlap {
  /// A step that computes while the communication moves data, and for how long.
  struct Beside {
    size_t step;
    double seconds;
  };
  /// Time in which it moves data and nothing computes; of collectives at the same time each counts.
  double exposed = 0;
  /// Time in which it waits for its peer and nothing computes.
  double waiting = 0;
  std::vector<Beside> beside; ///< the longest first
};

/// One for each of the stage's steps; zero for those that compute. If a step is timed fewer times
/// than it runs, the other runs are taken to be like these.
std::vector<Overlap> findOverlaps(const StageRun &run);

} // namespace gridloom::sim

#endif // GRIDLOOM_COMPILER_SIMULATOR_OVERLAP_H
