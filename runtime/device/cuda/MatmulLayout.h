//===- MatmulLayout.h - strides to column-major operands --------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// cuBLASLt multiplies column-major matrices: D = op(A) op(B). A row-major product has the same
// bytes with the operands exchanged: D' = B' A'. Needs no GPU.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_DEVICE_CUDA_MATMULLAYOUT_H
#define GRIDLOOM_RUNTIME_DEVICE_CUDA_MATMULLAYOUT_H

#include "runtime/device/Device.h"

#include <vector>

namespace gridloom::rt {

/// A column-major matrix in memory, and whether the product uses its transpose.
struct ColumnMajor {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t leading = 0; // elements between columns
  bool transposed = false;
  int64_t batchStride = 0; // elements between the matrices of the batch
};

struct MatmulLayout {
  /// True: a is the problem's lhs; false: a is its rhs.
  bool lhsFirst = false;
  ColumnMajor a, b, d;
  int64_t batch = 1;
  /// The offsets of each call's matrices, in elements; one call per entry.
  struct Offset {
    int64_t lhs = 0, rhs = 0, out = 0;
  };
  std::vector<Offset> calls;
};

/// Throws InvalidPlan if an operand has no contiguous dimension, or if there is a bias and the
/// output's columns are contiguous.
MatmulLayout layOutMatmul(const MatmulProblem &problem);

/// "matmul of [2, 128, 384] x [2, 384, 384]": for errors.
std::string describeMatmul(const MatmulProblem &problem);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_DEVICE_CUDA_MATMULLAYOUT_H
