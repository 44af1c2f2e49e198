//===- RowProducts.h - contractions that kernels do best --------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_FUSE_ROWPRODUCTS_H
#define GRIDLOOM_PASSES_FUSE_ROWPRODUCTS_H

#include "dialects/loom/Contraction.h"

namespace gridloom {

/// Whether `dot` is the product of a few rows and matrices, one row at least and
/// loom::kMaxProductRows at most, whose operands lie in memory as they are read: reading the
/// matrices is what it costs, and a kernel that does so also does what follows.
bool isRowProduct(loom::DotGeneralOp dot);

/// If matrices are repeated for the rows of several batches, as keys are for the queries of a group
/// of heads: the product of all these rows and the matrix, if they are loom::kMaxProductRows at
/// most. Else `dot` itself.
loom::DotGeneralOp mergeRepeats(loom::DotGeneralOp dot);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_FUSE_ROWPRODUCTS_H
