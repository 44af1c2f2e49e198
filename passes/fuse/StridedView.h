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

/// A tensor as `scale` times elements of `base`, with one stride per dimension, in elements. Stride
/// 0 repeats an element along the dimension. The first element is element `offset` of base.
struct StridedView {
  mlir::Value base;
  llvm::SmallVector<int64_t> strides;
  int64_t offset = 0;
  double scale = 1;
  /// The operations between base and the value, for their locations.
  llvm::SmallVector<mlir::Operation *> path;
};

/// Strides of a value in memory: row-major, with a weight's padded rows.
llvm::SmallVector<int64_t> getMemoryStrides(mlir::Value value);

/// Strides under which elements of `shape` with `strides` are read in order as `newShape`; nullopt
/// if a new dimension would need two strides.
std::optional<llvm::SmallVector<int64_t>> reshapeStrides(llvm::ArrayRef<int64_t> shape,
                                                         llvm::ArrayRef<int64_t> strides,
                                                         llvm::ArrayRef<int64_t> newShape);

/// All views of `value` through transposes, reshapes, broadcasts, slices and scalar factors, the
/// one with the farthest base first and the value itself last. If `offset` is not 0, base is a
/// computed value, and a library reads from there as fast as from base itself.
llvm::SmallVector<StridedView> traceViews(mlir::Value value);

/// `base` from element `offset` on, as an operand of a library call: base itself, or a slice of it
/// as a vector, which costs nothing.
mlir::Value makeViewBase(mlir::OpBuilder &builder, mlir::Value base, int64_t offset);

using loom::getFloatSplat;
using loom::isMemoryView;

/// The operand and factor of a multiplication or division by a splat.
std::optional<std::pair<mlir::Value, double>> matchScale(mlir::Operation *op);

/// Whether a library may scale by the factor at another place than the program does: larger or
/// smaller ones may leave the range of f32 at one place and not at the other, and 0 hides NaN.
bool isModerate(double factor);

/// True if all of `value` is computed even if only slices of it are read. A kernel might compute
/// less of an elementwise operation.
bool isReadWhole(mlir::Value value);

/// True unless a kernel computes `value` where its only reader reads it.
bool isInMemory(mlir::Value value);

/// True if a library call reads `value`, or a part of it, in place.
bool feedsLibrary(mlir::Value value);

/// True if a kernel will read `value`, possibly through reshapes, transposes or scalar factors, and
/// no library call needs it in memory.
bool feedsKernel(mlir::Value value);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_FUSE_STRIDEDVIEW_H
