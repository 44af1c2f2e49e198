//===- Quantization.h - narrow numbers that stand for floats ----*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_ONNX_QUANTIZATION_H
#define GRIDLOOM_COMPILER_ONNX_QUANTIZATION_H

#include "compiler/onnx/Node.h"

namespace gridloom::onnx_import {

/// Converts whole numbers x to integers of `type`, in its carrier, clamped to its range. Null, with
/// an error, if `type` is no integer of 2 to 32 bits.
mlir::Value saturate(Node &node, mlir::Value x, mlir::Type type);
/// x / scale, rounded, halves to even, plus the zero point (none if null), saturated to `type`. For
/// floats only the sum is rounded, and the node's `saturate` decides what numbers that are too
/// large become. `type` may be narrow.
mlir::Value quantize(Node &node, mlir::Value x, mlir::Value scale, mlir::Value zeroPoint,
                     mlir::Type type);
/// A scale or zero point reshaped so that it broadcasts with `shape`: one number, one for each
/// element of `axis` (not given: of the last dimension), or one for each block of `block` along it.
mlir::Value spread(Node &node, mlir::Value parameter, llvm::ArrayRef<int64_t> shape,
                   std::optional<int64_t> axis, int64_t block);
/// Operand `index` minus its zero point, operand `zeroPoint`, in `type`. A zero point of one
/// dimension is one for each element of `axis`, counted from the end.
mlir::Value centre(Node &node, unsigned index, unsigned zeroPoint, int64_t axisFromEnd,
                   mlir::Type type);

/// Floats as unsigned bytes: one scale and zero point, from the range of all of them.
struct Quantized {
  mlir::Value values, scale, zeroPoint;
  /// The values minus the zero point, as i32.
  mlir::Value centred(Node &node) const;
};
/// The range includes zero. Fails, with an error, if x has no elements.
llvm::FailureOr<Quantized> quantizeByRange(Node &node, mlir::Value x);

/// (x - zero point) * scale, in the scale's type; computed in f32.
mlir::Value dequantize(Node &node, mlir::Value x, mlir::Value scale, mlir::Value zeroPoint);

} // namespace gridloom::onnx_import

#endif // GRIDLOOM_COMPILER_ONNX_QUANTIZATION_H
