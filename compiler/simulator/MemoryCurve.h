//===- MemoryCurve.h - a stage's memory over time ---------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_SIMULATOR_MEMORYCURVE_H
#define GRIDLOOM_COMPILER_SIMULATOR_MEMORYCURVE_H

#include "compiler/simulator/Runs.h"
#include "compiler/simulator/Submission.h"

namespace gridloom::sim {

/// The memory of an allocated program when its steps run at the times of `spans`, its stage's. A
/// buffer is live in an iteration from its first use there to its last one; a buffer of several
/// slots always is. Buffers that are computed in place of others are the same bytes.
MemoryCurve traceMemory(plan::ProgramOp program, const Submission &submission,
                        const std::vector<std::vector<Span>> &spans);

} // namespace gridloom::sim

#endif // GRIDLOOM_COMPILER_SIMULATOR_MEMORYCURVE_H
