//===- OnnxScanner.h - where an ONNX file keeps its weights -----*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Walks the protobuf wire format itself: a protobuf library would copy every weight into memory.
// The file is mapped and only tags and lengths are touched, so a 100 GB model takes memory in
// proportion to its graph. Nothing in the file is trusted.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CORE_ONNXSCANNER_H
#define GRIDLOOM_RUNTIME_CORE_ONNXSCANNER_H

#include "runtime/core/DataType.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace gridloom::rt {

/// An initializer of the main graph, or the tensor of one of its Constant nodes.
struct OnnxTensor {
  /// The initializer's name; of a Constant node, its output's.
  std::string name;
  DataType type = DataType::F32;
  std::vector<int64_t> shape;
  /// The file with external data as the model names it, relative to the model's folder; empty for
  /// the model file itself.
  std::string file;
  /// Where the values lie, row-major and little-endian. When not `inPlace`, where the TensorProto
  /// lies whose values are stored as varints or in pieces: readOnnxTensor decodes those.
  uint64_t offset = 0;
  uint64_t bytes = 0;
  bool inPlace = true;
  bool isInitializer = true;

  /// Bytes of the values in memory.
  uint64_t getSize() const;
};

/// Finds the tensors of `model` in file order, without reading their values. Tensors of types that
/// are not a DataType (strings, 4-bit integers, ...) are left out. Throws Error when the file
/// cannot be read or is malformed, a tensor's size does not match its shape, or a name appears
/// twice. External files are not opened.
std::vector<OnnxTensor> scanOnnxInitializers(const std::filesystem::path &model);

/// The bytes of `model` without the payload of every tensor above `threshold` bytes (in subgraphs
/// and functions at least 64 KiB), so that a protobuf library parses a message of the graph's size.
/// Throws Error when the file cannot be read or is malformed.
std::string readOnnxWithoutWeights(const std::filesystem::path &model, uint64_t threshold = 1024);

/// The values of `tensor`: getSize() bytes, row-major, little-endian; Bool is a byte, 0 or 1.
/// Throws Error when a file is missing or short.
std::vector<char> readOnnxTensor(const std::filesystem::path &model, const OnnxTensor &tensor);

/// The file `tensor` is in, checked to exist and to hold the tensor. External data must lie inside
/// the model's folder: absolute paths, `..` and links that lead out are refused. Throws Error.
std::filesystem::path resolveOnnxFile(const std::filesystem::path &model, const OnnxTensor &tensor);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CORE_ONNXSCANNER_H
