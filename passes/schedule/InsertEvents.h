//===- InsertEvents.h - order between streams -------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SCHEDULE_INSERTEVENTS_H
#define GRIDLOOM_PASSES_SCHEDULE_INSERTEVENTS_H

#include "dialects/plan/Plan.h"

namespace gridloom {

/// Slots of a buffer that is double-buffered: two iterations of a repeat use it at once.
inline constexpr int64_t kSlots = 2;

/// Whether an alias starts after the buffer's first element. Double-buffering needs the distance
/// between slots, which is unknown for such parts.
bool hasParts(mlir::Value buffer);

/// Adds the records and waits that make every step start after the steps whose buffers it reads or
/// overwrites: those of the same iteration, and of earlier ones if a repeat reuses the buffer.
/// Leaves out what existing events imply. Double-buffers the buffers that would stall the next
/// iteration's communication, unless they are read in part.
void insertEvents(plan::ProgramOp program);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SCHEDULE_INSERTEVENTS_H
