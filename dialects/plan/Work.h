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

/// The work of a kernel, library call or copy, on tensors (fuse phase) or on buffers (in a
/// program). An input that a kernel only gathers from counts for no more than is gathered. Kernels
/// are looked up in `symbols`.
cluster::Work getWork(mlir::Operation *op, mlir::SymbolTableCollection &symbols);

} // namespace gridloom::plan

#endif // GRIDLOOM_DIALECTS_PLAN_WORK_H
