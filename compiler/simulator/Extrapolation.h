//===- Extrapolation.h - many micro-batches from some -----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Once a pipeline is full, each further micro-batch adds the same to every time. So a run of some
// micro-batches and one of half as many tell what more of them take. Free of MLIR.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_SIMULATOR_EXTRAPOLATION_H
#define GRIDLOOM_COMPILER_SIMULATOR_EXTRAPOLATION_H

#include "compiler/simulator/Runs.h"

namespace gridloom::sim {

/// The fewest micro-batches that are run, if there are as many, however many steps they have. The
/// number of slots is small and divides half of it, so that both runs end in the same slot.
inline constexpr int64_t kLeastShown = 64;

/// How many of `count` micro-batches are run, if each has `steps` steps in all stages together:
/// all, unless these are very many steps; then at least `kLeastShown`.
int64_t countShown(int64_t count, int64_t steps);

/// Turns the run of `shown` micro-batches into one of `count`, using that of `fewer`: the times of
/// steps and the figures of stages and of the whole. Timed steps and memory stay those of `shown`.
void extrapolate(ProgramRun &run, const ProgramRun &less, int64_t fewer, int64_t shown,
                 int64_t count);

} // namespace gridloom::sim

#endif // GRIDLOOM_COMPILER_SIMULATOR_EXTRAPOLATION_H
