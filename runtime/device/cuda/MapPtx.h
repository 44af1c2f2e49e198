//===- MapPtx.h - elementwise maps as PTX -----------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_DEVICE_CUDA_MAPPTX_H
#define GRIDLOOM_RUNTIME_DEVICE_CUDA_MAPPTX_H

#include "runtime/core/DataType.h"

#include <string>

namespace gridloom::rt {

/// Maps that the libraries lack or define differently from the plan.
enum class MapKind {
  /// Negative values become zero and NaN stays NaN; the libraries' relu makes NaN zero.
  Relu,
  /// Maps floats to integers of the same order, 16 bits to 32, with NaN above (OrderNanLast) or
  /// below (OrderNanFirst) all others, so that the maximum, or minimum, is NaN if an element is.
  /// Zeros are ordered by their sign.
  OrderNanLast,
  OrderNanFirst,
  /// Inverts either of these.
  Unorder,
  /// out[i] += in[i % columns].
  AddBias,
};

/// The name of the kernel: "gridloom_relu_f32".
std::string getMapName(MapKind kind, DataType type);

/// PTX for sm_80 and later with one kernel for `type`: f32, f64, f16 or bf16 (AddBias: only f64).
/// Its 8-byte parameters are the input pointer, the output pointer, the number of elements, and for
/// AddBias the columns. Any one-dimensional grid works. It may run in place if the element size
/// stays the same.
std::string makeMapPtx(MapKind kind, DataType type);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_DEVICE_CUDA_MAPPTX_H
