//===- Windows.h - helpers of convolutions and pooling ----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_ONNX_WINDOWS_H
#define GRIDLOOM_COMPILER_ONNX_WINDOWS_H

#include "compiler/onnx/Node.h"

namespace gridloom::onnx_import {

/// A window's attributes, one number per spatial dimension; padding is not negative.
struct WindowShape {
  Dims sizes, strides, dilations, low, high;
  /// Padding that ceil_mode adds after `high`, so that the last window is complete.
  Dims extra;

  size_t rank() const { return sizes.size(); }
  /// Elements from a window's first to its last, both included.
  int64_t extent(size_t i) const { return (sizes[i] - 1) * dilations[i] + 1; }
  /// Positions in dimension i of `size` elements.
  int64_t positions(size_t i, int64_t size) const {
    return (size + low[i] + high[i] + extra[i] - extent(i)) / strides[i] + 1;
  }
};

/// Reads kernel_shape (or takes `sizes`, if not empty), strides, dilations, pads, auto_pad and
/// ceil_mode for spatial dimensions of `spatial` elements. Nothing, with an error, if a list has
/// another length or a window does not fit.
std::optional<WindowShape> readWindow(Node &node, llvm::ArrayRef<int64_t> spatial,
                                      llvm::ArrayRef<int64_t> sizes = {});

/// The integers of attribute `name`, or `otherwise` for each of `count`; nothing, with an error, if
/// their number is not `count` or one is below `least`.
std::optional<Dims> readList(Node &node, llvm::StringRef name, size_t count, int64_t otherwise,
                             int64_t least);

/// The convolution of x, [n, c, spatial...], without a bias.
mlir::Value convolve(Node &node, mlir::Value x, mlir::Value weight, const WindowShape &window,
                     llvm::ArrayRef<int64_t> inputDilations, int64_t groups);

/// Adds one number per channel to x, [n, c, ...]; x itself if operand `index` is absent. Null, with
/// an error, if their number differs.
mlir::Value addBias(Node &node, mlir::Value x, unsigned index);

/// The window of a pooling operator on x, [n, c, spatial...]. Nothing, with an error, if it does
/// not fit.
std::optional<WindowShape> readPool(Node &node, mlir::Value x);

/// Reduces the windows of all dimensions of x, [n, c, spatial...], but the first two.
mlir::Value reduceWindows(Node &node, mlir::Value x, dist::ReductionKind kind,
                          const WindowShape &window);

} // namespace gridloom::onnx_import

#endif // GRIDLOOM_COMPILER_ONNX_WINDOWS_H
