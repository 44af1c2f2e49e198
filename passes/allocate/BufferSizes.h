//===- BufferSizes.h - bytes of a program's buffers -------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_ALLOCATE_BUFFERSIZES_H
#define GRIDLOOM_PASSES_ALLOCATE_BUFFERSIZES_H

#include "dialects/plan/Plan.h"

namespace gridloom {

/// Sets the bytes of one slot of every buffer: for a weight with its padded rows, for several slots
/// rounded up so that each starts aligned.
void setBufferBytes(plan::ProgramOp program);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_ALLOCATE_BUFFERSIZES_H
