//===- LoomWindow.h - arithmetic of sliding windows -------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_DIALECTS_LOOM_LOOMWINDOW_H
#define GRIDLOOM_DIALECTS_LOOM_LOOMWINDOW_H

#include "dialects/loom/Loom.h"

namespace gridloom::loom {

/// The number of positions of a window of `window` elements, `dilation` apart, in a dimension of
/// `size`; 0 if it does not fit.
int64_t countPositions(int64_t size, int64_t window, int64_t stride, int64_t dilation);

/// The size of a dimension of `size` after padding.
int64_t getPaddedSize(int64_t size, int64_t low, int64_t high, int64_t interior);

inline int64_t computeProduct(llvm::ArrayRef<int64_t> numbers) {
  int64_t product = 1;
  for (int64_t number : numbers)
    product *= number;
  return product;
}

/// Whether a convolution without a library is computed as products and sums for each channel, not
/// as a matrix product: few filters read one channel each.
bool isDepthwise(ConvolutionOp op);

} // namespace gridloom::loom

#endif // GRIDLOOM_DIALECTS_LOOM_LOOMWINDOW_H
