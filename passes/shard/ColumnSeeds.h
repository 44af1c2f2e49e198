//===- ColumnSeeds.h - weights split by column, then by row -----*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SHARD_COLUMNSEEDS_H
#define GRIDLOOM_PASSES_SHARD_COLUMNSEEDS_H

#include "passes/shard/Propagation.h"

namespace gridloom {

/// Splits weights by column over the axis, one after the other in program order, where no value has
/// to be gathered for it: where a later contraction takes the split dimension by row. What does not
/// work out is taken back as soon as that is certain; with `explains`, while that is not too much
/// work, only when it has spread as far as it goes, to note the first obstacle on the weight.
void seedColumns(Propagation &state, mlir::func::FuncOp func, mlir::StringAttr axis, bool explains);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SHARD_COLUMNSEEDS_H
