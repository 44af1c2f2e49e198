//===- Halo.h - positions a device needs of its neighbours' shards --*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// For a convolution whose image is cut over devices, or a slice or concatenation along a cut
// dimension: what a device computes needs positions of the input that are not all in its own shard.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_DIALECTS_LOOM_HALO_H
#define GRIDLOOM_DIALECTS_LOOM_HALO_H

#include "dialects/dist/ShardingRule.h"

#include <optional>

namespace gridloom::loom {

/// The split of one dimension of a tensor: `global` elements over the devices along `axes`, in
/// row-major order of their positions.
struct CutDim {
  int64_t dim;
  int64_t global;
  llvm::ArrayRef<mlir::StringAttr> axes;
};

/// Positions that the devices of a group need: device i those from starts[i] on, `size` of them.
/// Between elements of the tensor there are `interior` positions without an element: element e is
/// at position e * (interior + 1). Positions may be outside the tensor.
struct Window {
  llvm::SmallVector<int64_t> starts;
  int64_t size;
  int64_t interior = 0;

  /// Device i needs positions from i * step + begin on.
  static Window regular(int64_t devices, int64_t step, int64_t begin, int64_t size,
                        int64_t interior = 0);
};

/// Fetches a device's part of `cut.dim`, given its shard: exchanges elements with neighbours by
/// permutes, or gathers the dimension if that moves less. Positions without an element become
/// `fill`, a scalar of the element type, or are unspecified without one.
mlir::Value fetchWindow(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value shard,
                        const CutDim &cut, const Window &window,
                        std::optional<mlir::Attribute> fill);

/// The communication of fetchWindow for one dimension, per device.
struct WindowMoves {
  bool gathers = false;             ///< all shards; otherwise `moved`
  llvm::SmallVector<int64_t> moved; ///< by permute, its elements along the dimension
};

/// Plans fetchWindow for a dimension of `global` elements in shards of `local`, if each of `parts`
/// devices computes `part` positions of the factor.
WindowMoves planWindowMoves(const dist::WindowDim &window, int64_t global, int64_t local,
                            int64_t parts, int64_t part);

/// The number of devices along the axes of the mesh of the module that `builder` inserts into.
int64_t getNumParts(mlir::OpBuilder &builder, llvm::ArrayRef<mlir::StringAttr> axes);

/// This device's index along `axes` times `step`: a scalar i64.
mlir::Value getShardStart(mlir::OpBuilder &builder, mlir::Location loc,
                          llvm::ArrayRef<mlir::StringAttr> axes, int64_t step);

/// start + 0, start + 1, ...: an i64 tensor of `size`.
mlir::Value getPositions(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value start,
                         int64_t size);

/// `value` where `row`, an i1 tensor along `dim`, is true; elsewhere `other`, a tensor of the same
/// type or a scalar of the element type.
mlir::Value selectAlong(mlir::OpBuilder &builder, mlir::Location loc, int64_t dim, mlir::Value row,
                        mlir::Value value, mlir::Value other);
mlir::Value selectAlong(mlir::OpBuilder &builder, mlir::Location loc, int64_t dim, mlir::Value row,
                        mlir::Value value, mlir::Attribute other);

/// Adds a dimension of an operation's only input and its output to a rule: one factor of the
/// output's size, whose part of the input is fetched as `window` says, unless `isSame`.
void addWindowDim(dist::ShardingRule &rule, dist::TensorFactors &in, dist::TensorFactors &out,
                  int64_t size, bool isSame, dist::WindowDim window);

} // namespace gridloom::loom

#endif // GRIDLOOM_DIALECTS_LOOM_HALO_H
