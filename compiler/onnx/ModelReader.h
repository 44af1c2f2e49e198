//===- ModelReader.h - an ONNX file in memory -------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The file's graph as protobuf reads it, and where its weights are. Compiled with exceptions and
// catches them: the rest of the importer has none.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_ONNX_MODELREADER_H
#define GRIDLOOM_COMPILER_ONNX_MODELREADER_H

#include "runtime/core/OnnxScanner.h"

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace onnx {
class ModelProto;
} // namespace onnx

namespace gridloom::onnx_import {

struct Model {
  std::filesystem::path path;
  uint64_t bytes = 0;
  std::string sha256;
  /// Fingerprints of the files with external data, by their names in the model.
  std::map<std::string, std::string> data;
  /// The open file.
  std::shared_ptr<const rt::OnnxFile> file;
  /// Without the payload of large tensors.
  std::shared_ptr<const onnx::ModelProto> proto;
  /// Missing weight files are no error.
  bool mayLackWeights = false;
  /// Every tensor of the main graph, with the place of its values.
  std::vector<rt::OnnxTensor> tensors;
};

/// Reads a model's graph; weights stay where they are. The error is one line; empty on success.
std::string readModel(const std::filesystem::path &path, Model &model);
/// The same without the digest, for a model that was read before; `withWeights` reads the whole
/// file.
std::string readGraph(const std::filesystem::path &path, Model &model, bool withWeights = false);
/// Reads a tensor's values: row-major, little-endian. The error is one line; empty on success.
std::string readTensor(const Model &model, const rt::OnnxTensor &tensor, std::vector<char> &data);
/// Checks that a tensor's file exists inside the model's folder and holds it, or is missing and may
/// be (mayLackWeights). The error is one line; empty on success.
std::string checkTensor(const Model &model, const rt::OnnxTensor &tensor);

} // namespace gridloom::onnx_import

#endif // GRIDLOOM_COMPILER_ONNX_MODELREADER_H
