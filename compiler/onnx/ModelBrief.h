//===- ModelBrief.h - what to know before compiling a model -----*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_ONNX_MODELBRIEF_H
#define GRIDLOOM_COMPILER_ONNX_MODELBRIEF_H

#include <string>
#include <vector>

namespace gridloom {

struct ModelBrief {
  std::string size;                ///< "201 nodes, 145.0 MiB of weights"
  std::vector<std::string> inputs; ///< "x float [batch, 16]"
  std::vector<std::string> dims;   ///< what --dim calls the inputs' symbolic dimensions, each once
};

/// Reads no weights. The error is one line; empty on success.
std::string readBrief(const std::string &path, ModelBrief &brief);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_ONNX_MODELBRIEF_H
