//===- TimelineFile.h - simulated runs for pictures -------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_SIMULATOR_TIMELINEFILE_H
#define GRIDLOOM_COMPILER_SIMULATOR_TIMELINEFILE_H

#include "compiler/simulator/Runs.h"

namespace gridloom::sim {

/// The text of a plan's timeline.json (docs/plan-format.md): what each stage's streams do and how
/// much memory is live when, of all programs together in at most some ten thousand blocks and
/// points, whatever the runs' lengths.
std::string formatTimeline(std::span<const ProgramRun> runs);

} // namespace gridloom::sim

#endif // GRIDLOOM_COMPILER_SIMULATOR_TIMELINEFILE_H
