//===- StridedView.h - values as strides over other values ------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_FUSE_STRIDEDVIEW_H
#define GRIDLOOM_PASSES_FUSE_STRIDEDVIEW_H

#include "dialects/loom/Kernels.h"
#include "dialects/plan/Plan.h"

#include <optional>

namespace gridloom {

/// A tensor as `scale` times elements of `base`: one stride per dimension, in elements. Stride 0
/// repeats an element along the dimension. The first element is `offset` elements behind base's.
struct StridedView {
  mlir::Value base;
  llvm::SmallVector<int64_t> strides;
  int64_t offset = 0;
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

/// All ways to see `value` through transposes, reshapes, broadcasts, slices and scalar factors, the
/// one with the farthest base first. The last is the value itself. Where `offset` is not 0, base is
/// computed, and a library reads from there as fast as from base itself.
llvm::SmallVector<StridedView> traceViews(mlir::Value value);

/// `base` from its element `offset` on, as an operand of a library call: base itself, or a slice of
/// it as a vector, which is an address.
mlir::Value makeViewBase(mlir::OpBuilder &builder, mlir::Value base, int64_t offset);

/// True for slices that are addresses: elements one after another, of what is computed, from a
/// multiple of 16 bytes on.
bool isMemoryView(loom::SliceOp slice);

using loom::getFloatSplat;

/// The operand and factor of a multiplication or division by a splat.
std::optional<std::pair<mlir::Value, double>> matchScale(mlir::Operation *op);

/// True when all of `value` is computed even if only slices of it are read. Of an elementwise
/// operation a kernel might compute less.
bool isReadWhole(mlir::Value value);

/// True when no kernel computes `value` for its only reader, where it reads it.
bool isInMemory(mlir::Value value);

/// True when a library call reads `value`, or a part of it, where it lies.
bool feedsLibrary(mlir::Value value);

/// True when a kernel will read `value`, be it through reshapes, transposes or scalar factors, and
/// nothing that needs it in memory does.
bool feedsKernel(mlir::Value value);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_FUSE_STRIDEDVIEW_H
