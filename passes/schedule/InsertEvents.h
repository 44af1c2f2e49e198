//===- InsertEvents.h - order between streams -------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SCHEDULE_INSERTEVENTS_H
#define GRIDLOOM_PASSES_SCHEDULE_INSERTEVENTS_H

#include "dialects/plan/Plan.h"

namespace gridloom {

/// Slots of a buffer that two iterations of a repeat use at once.
inline constexpr int64_t kSlots = 2;

/// Whether a step uses the buffer from some place after its first element on. Of such a part nobody
/// knows the distance of its slots.
bool hasParts(mlir::Value buffer);

/// Adds the records and waits that make every step start after those whose buffers it reads or
/// overwrites: in the same iteration, and in those before where a repeat comes back to a buffer.
/// Leaves out what existing events imply. Buffers that would stall the next iteration's
/// communication get two slots, but for those that are read in part.
void insertEvents(plan::ProgramOp program);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SCHEDULE_INSERTEVENTS_H
