//===- Interference.h - buffers that may share memory -----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_ALLOCATE_INTERFERENCE_H
#define GRIDLOOM_PASSES_ALLOCATE_INTERFERENCE_H

#include "passes/schedule/ProgramTimeline.h"

namespace gridloom {

/// Iterations of a repeat in which all orders between uses of two buffers show.
inline constexpr int64_t kInterferenceIterations = 4;

/// True when `step` launches a kernel that may write its output `to` over input `from`, and reads
/// nothing else of `from`.
bool canWriteOver(mlir::Operation *step, mlir::Value from, mlir::Value to);

/// True when all accesses `from` are over before the first of `to` begins. With `inPlace`, a step
/// that reads `fromBuffer` for the last time may be the one that writes `toBuffer` over it.
bool isOverBefore(const ProgramTimeline &timeline, llvm::ArrayRef<ProgramTimeline::Access> from,
                  llvm::ArrayRef<ProgramTimeline::Access> to, mlir::Value fromBuffer,
                  mlir::Value toBuffer, bool inPlace);

/// True when two root buffers of one slot may share memory in all iterations: wholly or partly, or,
/// with `inPlace`, only as exactly the same bytes.
bool canShareMemory(const ProgramTimeline &timeline, mlir::Value a, mlir::Value b, bool inPlace);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_ALLOCATE_INTERFERENCE_H
