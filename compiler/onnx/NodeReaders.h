//===- NodeReaders.h - where a node's result goes ---------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_ONNX_NODEREADERS_H
#define GRIDLOOM_COMPILER_ONNX_NODEREADERS_H

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace gridloom {

/// A node of a model's main graph and those that read its results.
struct NodeReaders {
  std::string node; ///< that has the name, or produces the tensor of that name
  /// All nodes that its results reach, the nearest first.
  std::vector<std::string> readers;
};

/// None if no node has the name or produces a tensor of it, or the model cannot be read. Reads no
/// weights.
std::optional<NodeReaders> findReaders(const std::filesystem::path &model, const std::string &name);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_ONNX_NODEREADERS_H
