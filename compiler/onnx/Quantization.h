//===- Quantization.h - narrow numbers that stand for floats ----*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_ONNX_QUANTIZATION_H
#define GRIDLOOM_COMPILER_ONNX_QUANTIZATION_H

#include "compiler/onnx/Node.h"

namespace gridloom::onnx_import {

/// x, whole numbers, as integers of `type`: what is too large or small becomes the nearest there
/// is. Null, with an error, if `type` is no integer of 8 to 32 bits.
mlir::Value saturate(Node &node, mlir::Value x, mlir::Type type);
/// x / scale, rounded, halves to even, plus the zero point (none if null), saturated to `type`. To
/// an 8-bit float only the sum is rounded, and the node's `saturate` tells what too large numbers
/// become.
mlir::Value quantize(Node &node, mlir::Value x, mlir::Value scale, mlir::Value zeroPoint,
                     mlir::Type type);
/// (x - zero point) * scale, in the scale's type; computed in f32.
mlir::Value dequantize(Node &node, mlir::Value x, mlir::Value scale, mlir::Value zeroPoint);

} // namespace gridloom::onnx_import

#endif // GRIDLOOM_COMPILER_ONNX_QUANTIZATION_H
