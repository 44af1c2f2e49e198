//===- Parts.h - operators that others are made of --------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Helpers that fused and quantized operators share with the operators they combine. Null values
// mean that an error was reported.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_ONNX_PARTS_H
#define GRIDLOOM_COMPILER_ONNX_PARTS_H

#include "compiler/onnx/Node.h"

namespace gridloom::onnx_import {

/// The convolution of operands 0 and 1, [n, c, spatial...] and [m, c / group, window...], with the
/// bias that operand 2 may be.
mlir::Value convolution(Node &node);
/// alpha * x * y + beta * c of operands 0 to 2, of which c may be absent.
mlir::Value gemm(Node &node);
/// AveragePool of x, [n, c, spatial...].
mlir::Value averagePool(Node &node, mlir::Value x);
/// max(0, min(1, alpha * x + beta)). The derivative at the bounds is 0.
mlir::Value hardSigmoid(Node &node, mlir::Value x, double alpha, double beta);
/// The root of order `p` of a sum of powers of absolute values. If it will be differentiated, the
/// root of 0 is that of 1, minus 1, whose derivative is finite: zeros have the gradient 0.
mlir::Value takeRoot(Node &node, mlir::Value sum, int64_t p = 2);
/// The spatial dimensions of x, [n, c, spatial...]. Fails, with an error, if there are none.
llvm::FailureOr<Dims> getSpatialDims(Node &node, mlir::Value x);
/// [n, spatial..., c] as [n, c, spatial...] or, if not `toFront`, the other way round.
mlir::Value moveChannels(Node &node, mlir::Value x, bool toFront);

} // namespace gridloom::onnx_import

#endif // GRIDLOOM_COMPILER_ONNX_PARTS_H
