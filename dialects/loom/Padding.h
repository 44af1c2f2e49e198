//===- Padding.h - shards of sizes that do not divide evenly ----*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_DIALECTS_LOOM_PADDING_H
#define GRIDLOOM_DIALECTS_LOOM_PADDING_H

#include "dialects/dist/ShardingRule.h"
#include "dialects/loom/Loom.h"

namespace gridloom::loom {

/// The type with another size of `dim`.
mlir::RankedTensorType withDim(mlir::RankedTensorType type, int64_t dim, int64_t size);

/// Appends zeros along `dim` up to `size`; the value itself if it has that size.
mlir::Value padDim(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value value, int64_t dim,
                   int64_t size);

/// The value that a concatenation pads, its only part that is not constant; null if there is none.
mlir::Value getPadded(ConcatenateOp op);

/// The first `size` elements of `dim`; the value itself if it has no more.
mlir::Value trimDim(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value value, int64_t dim,
                    int64_t size);

/// Replaces a shard's elements beyond the global `size` of `dim` by the reduction's neutral
/// element. `axes` are the mesh axes that cut the dimension.
mlir::Value maskPadding(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value shard,
                        int64_t dim, int64_t size, llvm::ArrayRef<mlir::StringAttr> axes,
                        dist::ReductionKind reduction);

/// The element x with reduction(x, y) = y: 0, 1, or an extreme of the type.
mlir::Attribute getNeutralElement(mlir::Type element, dist::ReductionKind reduction);

/// What a device adds to a sum for an element that another device has: 0, or -0 for floats, since
/// -0 + 0 is 0.
mlir::Attribute getAbsent(mlir::Type element);

} // namespace gridloom::loom

#endif // GRIDLOOM_DIALECTS_LOOM_PADDING_H
