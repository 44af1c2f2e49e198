//===- ColumnSeeds.h - weights split by column, then by row -----*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SHARD_COLUMNSEEDS_H
#define GRIDLOOM_PASSES_SHARD_COLUMNSEEDS_H

#include "passes/shard/Propagation.h"

namespace gridloom {

/// Splits weights by column over `axis`, in program order, where a later contraction takes the
/// split dimension by row, so that no value has to be gathered. A split that does not work out is
/// undone as soon as that is certain; with `explains`, and within a limit of work, only after it
/// has propagated fully, to note the first obstacle on the weight.
void seedColumns(Propagation &state, mlir::func::FuncOp func, mlir::StringAttr axis, bool explains);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SHARD_COLUMNSEEDS_H
