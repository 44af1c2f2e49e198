//===- Narrow.h - numbers of fewer than 8 bits ------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Files pack INT4, UINT4, INT2, UINT2 and FLOAT4E2M1 into bytes. Programs hold one number per byte,
// as the smallest type that has all of them: i8, ui8, f8E4M3FN. Only the importer knows, by name,
// which values are narrow; ONNX operators may only move and convert them.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_ONNX_NARROW_H
#define GRIDLOOM_COMPILER_ONNX_NARROW_H

#include "compiler/onnx/Emitter.h"
#include "runtime/core/OnnxScanner.h"

namespace gridloom::onnx_import {

/// The narrow type of a TensorProto.DataType; null of any other.
mlir::Type getNarrowType(mlir::MLIRContext *context, int64_t onnxType);
bool isNarrow(mlir::Type type);
/// The type that holds a narrow one in a program; any other holds itself.
mlir::Type getCarrier(mlir::Type type);

/// x as numbers of a narrow type, in its carrier: integers keep their lowest bits, floats are
/// rounded to the nearest, halves to even, and saturated.
mlir::Value convertToNarrow(Emitter &emitter, mlir::Value x, mlir::Type type);

/// Bytes, [..., n], as the i32 numbers of `bits` that they hold, [..., n * 8 / bits]: the lowest
/// bits first.
mlir::Value unpackBits(Emitter &emitter, mlir::Value bytes, int64_t bits);
/// The numbers, in their carrier, that the bytes of a packed tensor hold.
mlir::Value unpack(Emitter &emitter, mlir::Value bytes, const rt::PackedNumbers &packed);

} // namespace gridloom::onnx_import

#endif // GRIDLOOM_COMPILER_ONNX_NARROW_H
