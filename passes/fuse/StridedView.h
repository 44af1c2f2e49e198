//===- StridedView.h - values as strides over other values ------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_FUSE_STRIDEDVIEW_H
#define GRIDLOOM_PASSES_FUSE_STRIDEDVIEW_H

#include "dialects/plan/Plan.h"

#include <optional>

namespace gridloom {

/// A tensor as `scale` times elements of `base`: one stride per dimension, in elements. Stride 0
/// repeats an element along the dimension.
struct StridedView {
  mlir::Value base;
  llvm::SmallVector<int64_t> strides;
  double scale = 1;
  /// The operations between base and the value, for their locations.
  llvm::SmallVector<mlir::Operation *> path;
};

/// Strides of a value as it lies in memory: row-major, with a weight's padded rows.
llvm::SmallVector<int64_t> getMemoryStrides(mlir::Value value);

/// Strides under which elements of `shape` with `strides` are read in order as `newShape`; none
/// when a new dimension would need two strides.
std::optional<llvm::SmallVector<int64_t>> reshapeStrides(llvm::ArrayRef<int64_t> shape,
                                                         llvm::ArrayRef<int64_t> strides,
                                                         llvm::ArrayRef<int64_t> newShape);

/// All ways to see `value` through transposes, reshapes, broadcasts and scalar factors, the one
/// with the farthest base first. The last is the value itself.
llvm::SmallVector<StridedView> traceViews(mlir::Value value);

/// The number every element of `value` has, if it is a splat of a float.
std::optional<double> getFloatSplat(mlir::Value value);

/// The operand and factor of a multiplication or division by a splat.
std::optional<std::pair<mlir::Value, double>> matchScale(mlir::Operation *op);

/// True when a kernel will read `value`, be it through reshapes, transposes or scalar factors.
bool feedsKernel(mlir::Value value);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_FUSE_STRIDEDVIEW_H
