//===- RowProducts.h - contractions that kernels do best --------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_FUSE_ROWPRODUCTS_H
#define GRIDLOOM_PASSES_FUSE_ROWPRODUCTS_H

#include "dialects/loom/Contraction.h"

namespace gridloom {

/// Whether `dot` is a product of matrices and a few rows, from 1 to loom::kMaxProductRows, whose
/// operands are in memory as they are read. Its cost is that of reading the matrices, and a kernel
/// that does so can also compute what follows.
bool isRowProduct(loom::DotGeneralOp dot);

/// If matrices are repeated for the rows of several batches, as keys are for the queries of a group
/// of heads: the product of all these rows and the matrix, if there are at most
/// loom::kMaxProductRows. Else `dot` itself.
loom::DotGeneralOp mergeRepeats(loom::DotGeneralOp dot);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_FUSE_ROWPRODUCTS_H
