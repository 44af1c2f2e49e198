//===- BuildProgram.h - from tensors to buffers -----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SCHEDULE_BUILDPROGRAM_H
#define GRIDLOOM_PASSES_SCHEDULE_BUILDPROGRAM_H

#include "passes/schedule/ListSchedule.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace gridloom {

/// On a plan.while: the most iterations it can have, if known. For estimates.
inline constexpr llvm::StringLiteral kTrips = "plan.trips";

/// The stream on which a collective or transfer of a `dist.start` runs.
plan::StreamAttr getStream(mlir::Operation *communication);

/// Replaces a scheduled stage function by a plan.program of its name, without events between
/// streams. Without `overlap` the compute stream waits for each group as soon as it is started.
/// `deferred` groups wait for all compute before them.
plan::ProgramOp buildProgram(mlir::func::FuncOp func, bool overlap, const DeferredStarts &deferred);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SCHEDULE_BUILDPROGRAM_H
