//===- ModelBrief.h - interface and size of a model -------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_ONNX_MODELBRIEF_H
#define GRIDLOOM_COMPILER_ONNX_MODELBRIEF_H

#include <cstdint>
#include <string>
#include <vector>

namespace gridloom {

/// A dimension: its size or, if open, its name for --dim.
struct BriefDim {
  std::string name;
  int64_t size = 0;
  bool isOpen() const { return !name.empty(); }
  bool operator==(const BriefDim &) const = default;
};

/// An input or output of the model.
struct BriefValue {
  std::string name, type; ///< "x", "float"
  std::vector<BriefDim> dims;
  bool hasShape = true; ///< whether the model declares `dims`
};

struct ModelBrief {
  std::string size; ///< "201 nodes, 145.0 MiB of weights"
  std::vector<BriefValue> inputs, outputs;
  std::vector<std::string> dims; ///< open dimensions of the inputs, each once
};

/// "x float [batch, 16]", or "x float without a shape"
std::string describe(const BriefValue &value);

/// Reads no weights. The error is one line; empty on success.
std::string readBrief(const std::string &path, ModelBrief &brief);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_ONNX_MODELBRIEF_H
