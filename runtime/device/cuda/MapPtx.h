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

/// Maps for which the libraries differ from the plan's semantics.
enum class MapKind {
  /// Negative values become zero and NaN stays NaN; the libraries' relu makes NaN zero.
  Relu,
  /// Floats become integers in the same order, 16 bits becoming 32, with NaN above (OrderNanLast)
  /// or
  /// below (OrderNanFirst) all others: their maximum, or minimum, is NaN where one of them is.
  /// Zeros
  /// are ordered by their sign.
  OrderNanLast,
  OrderNanFirst,
  /// Back from either.
  Unorder,
  /// out[i] += in[i % columns].
  AddBias,
};

/// The name of the kernel: "gridloom_relu_f32".
std::string getMapName(MapKind kind, DataType type);

/// PTX for sm_80 and later with one kernel for `type`: f32, f64, f16 or bf16 (AddBias: f64 alone).
/// Its parameters of 8 bytes are the input's pointer, the output's, the number of elements, and for
/// AddBias the columns. Any one-dimensional grid will do. The output may be the input where
/// elements keep their width.
std::string makeMapPtx(MapKind kind, DataType type);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_DEVICE_CUDA_MAPPTX_H
