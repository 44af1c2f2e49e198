//===- ConvolutionPhases.h - convolutions without zeros ---------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_LAYOUT_CONVOLUTIONPHASES_H
#define GRIDLOOM_PASSES_LAYOUT_CONVOLUTIONPHASES_H

#include "dialects/loom/Loom.h"

namespace gridloom {

/// Computes a convolution of an input with zeros between its elements, as in transposed
/// convolutions and gradients of strided ones, without multiplying the zeros. With s - 1 zeros
/// between elements, every s-th element of the result reads the same elements of the window: each
/// of these phases is a convolution of the original input with a part of the window (Shi et al.
/// 2016, "Is the deconvolution layer the same as a convolutional layer?"). Returns the result, [N,
/// O, positions...], or null if nothing is gained or a dilated dimension has a stride or a dilated
/// window.
mlir::Value splitIntoPhases(loom::ConvolutionOp op, mlir::OpBuilder &builder);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_LAYOUT_CONVOLUTIONPHASES_H
