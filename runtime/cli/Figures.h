//===- Figures.h - statistics of runs over all ranks ------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CLI_FIGURES_H
#define GRIDLOOM_RUNTIME_CLI_FIGURES_H

#include "runtime/core/Session.h"

namespace gridloom::rt {

/// Collective. One run's statistics over all ranks (combineStats) on rank 0; this rank's own
/// elsewhere.
RunStats gatherStats(Session &session, const RunStats &mine);

/// The run with the median wall time, or the mean of the two in the middle; `runs` must not be
/// empty.
RunStats getMedian(std::span<const RunStats> runs);

/// "20 runs: median 12.1 ms, fastest 11.8 ms, slowest 13.9 ms"
std::string formatSpread(std::span<const RunStats> runs);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CLI_FIGURES_H
