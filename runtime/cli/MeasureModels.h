//===- MeasureModels.h - models to time a machine with ----------*- C++ -*-===//
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

/// A model whose dimension "n" is bound to several sizes, and how it is compiled.
struct MeasuredModel {
  std::string name; ///< of the file
  std::string what; ///< for people: "matrix multiplications, f32"
  std::string onnx; ///< the file's bytes
  std::vector<int64_t> sizes;
  std::string precision; ///< of compile
};

/// Matrix multiplications, convolutions and kernels from a launch's size up to what a core takes
/// tens of milliseconds for; only f32 and fewer sizes where it is to be `quick`.
std::vector<MeasuredModel> makeMeasuredModels(bool quick);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CLI_MEASUREMODELS_H
