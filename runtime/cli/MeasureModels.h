//===- MeasureModels.h - models for timing a machine ------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CLI_MEASUREMODELS_H
#define GRIDLOOM_RUNTIME_CLI_MEASUREMODELS_H

#include <cstdint>
#include <string>
#include <vector>

namespace gridloom::rt {

/// A model with dimension "n", the sizes to compile it for, and the precision.
struct MeasuredModel {
  std::string name; ///< the file's name
  std::string what; ///< for people: "matrix multiplications, f32"
  std::string onnx; ///< the file's bytes
  std::vector<int64_t> sizes;
  std::string precision; ///< for compile
};

/// Matrix multiplications, convolutions and kernels, from sizes where the launch dominates up to
/// tens of milliseconds on a core; only f32 and fewer sizes if `quick`.
std::vector<MeasuredModel> makeMeasuredModels(bool quick);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CLI_MEASUREMODELS_H
