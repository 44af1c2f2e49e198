//===- Work.h - kernels and library calls as the cost library sees them -*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_DIALECTS_PLAN_WORK_H
#define GRIDLOOM_DIALECTS_PLAN_WORK_H

#include "cluster/Costs.h"
#include "dialects/plan/Plan.h"

namespace gridloom::plan {

/// The work of a kernel or library call, on tensors as the fuse phase has it or on buffers as a
/// program has it, or of a copy. Of an input that a kernel only gathers from it reads no more than
/// it gathers. Kernels are looked up in `symbols`.
cluster::Work getWork(mlir::Operation *op, mlir::SymbolTableCollection &symbols);

} // namespace gridloom::plan

#endif // GRIDLOOM_DIALECTS_PLAN_WORK_H
