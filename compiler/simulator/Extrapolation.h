//===- Extrapolation.h - many micro-batches from some -----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A pipeline that has filled goes on alike: each further micro-batch adds the same to every time.
// So a run of some micro-batches and one of half as many say what more of them take. Free of MLIR.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_SIMULATOR_EXTRAPOLATION_H
#define GRIDLOOM_COMPILER_SIMULATOR_EXTRAPOLATION_H

#include "compiler/simulator/Runs.h"

namespace gridloom::sim {

/// Micro-batches that are run however many steps they have. Slots, of which there are few, divide
/// half of it: both runs end in the same one.
inline constexpr int64_t kLeastShown = 64;

/// How many micro-batches are run, of `count` that have so many steps each in all stages together:
/// all, unless these are very many steps; never fewer than `kLeastShown` of more.
int64_t countShown(int64_t count, int64_t steps);

/// Turns the run of `shown` micro-batches into one of `count`, by that of `fewer`: the times of
/// steps and the figures of stages and of the whole. The timed steps and the memory stay those
/// shown.
void extrapolate(ProgramRun &run, const ProgramRun &less, int64_t fewer, int64_t shown,
                 int64_t count);

} // namespace gridloom::sim

#endif // GRIDLOOM_COMPILER_SIMULATOR_EXTRAPOLATION_H
