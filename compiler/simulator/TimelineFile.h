//===- TimelineFile.h - timeline.json: simulated runs to draw ---*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_SIMULATOR_TIMELINEFILE_H
#define GRIDLOOM_COMPILER_SIMULATOR_TIMELINEFILE_H

#include "compiler/simulator/Runs.h"

namespace gridloom::sim {

/// The text of a plan's timeline.json (docs/plan-format.md): what each stage's streams do, and how
/// much memory is live when. All programs together have at most about 20,000 blocks and 4,000
/// points, whatever the runs' lengths.
std::string formatTimeline(std::span<const ProgramRun> runs);

} // namespace gridloom::sim

#endif // GRIDLOOM_COMPILER_SIMULATOR_TIMELINEFILE_H
