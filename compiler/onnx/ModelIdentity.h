//===- ModelIdentity.h - digest of a model's graph --------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_ONNX_MODELIDENTITY_H
#define GRIDLOOM_COMPILER_ONNX_MODELIDENTITY_H

#include "llvm/ADT/StringSet.h"

#include <filesystem>
#include <string>

namespace gridloom {

struct ModelIdentity {
  std::string name; ///< the graph's
  /// Digest of nodes with their attributes, inputs and outputs, and of initializers without their
  /// values: 32 hexadecimal digits. A model that was trained further has the same one.
  std::string graph;
  /// Of nodes, initializers, inputs and outputs, in subgraphs and functions too.
  llvm::StringSet<> names;
};

/// Reads no weights, and needs none. The error is one line; empty on success.
std::string readIdentity(const std::filesystem::path &path, ModelIdentity &identity);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_ONNX_MODELIDENTITY_H
