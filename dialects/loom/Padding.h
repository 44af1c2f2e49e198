//===- Padding.h - shards of sizes that do not divide -----------*- C++ -*-===//
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

/// Zeros after the elements of `dim`, so that it has `size`; the value itself when it has.
mlir::Value padDim(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value value, int64_t dim,
                   int64_t size);

/// What a concatenation pads: its only part that is no constant; null if it has none or several.
mlir::Value getPadded(ConcatenateOp op);

/// The first `size` elements of `dim`; the value itself when it has no more.
mlir::Value trimDim(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value value, int64_t dim,
                    int64_t size);

/// A shard whose elements beyond the global `size` of `dim` are the reduction's neutral element.
/// `axes` are the mesh axes that cut the dimension.
mlir::Value maskPadding(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value shard,
                        int64_t dim, int64_t size, llvm::ArrayRef<mlir::StringAttr> axes,
                        dist::ReductionKind reduction);

/// x with reduction(x, y) = y: 0, 1, or the type's extremes.
mlir::Attribute getNeutralElement(mlir::Type element, dist::ReductionKind reduction);

} // namespace gridloom::loom

#endif // GRIDLOOM_DIALECTS_LOOM_PADDING_H
