//===- OnnxScanner.h - find weights in an ONNX file -------------*- C++ -*-===//
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
#include "runtime/core/Files.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gridloom::rt {

/// Numbers of 2 or 4 bits, several to a byte, the first in its lowest bits.
struct PackedNumbers {
  /// i4, u4, i2, u2, f4e2m1
  std::string_view name;
  unsigned bits = 0;
  /// The TensorProto.DataType.
  int onnxType = 0;
  /// The shape of the numbers.
  std::vector<int64_t> shape;
};

/// An initializer of the main graph, or the tensor of one of its Constant nodes.
struct OnnxTensor {
  /// The initializer's name; of a Constant node, its output's.
  std::string name;
  DataType type = DataType::F32;
  std::vector<int64_t> shape;
  /// The file with external data as the model names it, relative to the model's folder; empty for
  /// the model file itself.
  std::string file;
  /// The offset of the values, row-major and little-endian. If not `inPlace`, the offset of the
  /// TensorProto whose values are stored as varints or in pieces: OnnxFile::read decodes those.
  uint64_t offset = 0;
  uint64_t bytes = 0;
  bool inPlace = true;
  bool isInitializer = true;
  /// The numbers that the bytes hold, if they are not of a DataType: then `type` is U8 and `shape`
  /// that of the bytes, whose last dimension is the numbers' where rows are whole bytes, and the
  /// only one otherwise.
  std::optional<PackedNumbers> packed;

  /// The name of the numbers' type, and their shape.
  std::string_view getTypeName() const { return packed ? packed->name : nameOf(type); }
  const std::vector<int64_t> &getNumberShape() const { return packed ? packed->shape : shape; }

  /// Bytes of the values in memory.
  uint64_t getSize() const;
};

/// A model file, opened once: what is found in it is all of one version. Throws Error when it is
/// changed while it is read.
class OnnxFile {
public:
  /// Throws Error when the file cannot be opened.
  explicit OnnxFile(const std::filesystem::path &path);
  explicit OnnxFile(std::shared_ptr<const MappedFile> file);

  const MappedFile &getFile() const { return *file; }

  /// Finds the tensors in file order, without reading their values. Tensors of types that are
  /// neither a DataType nor packed (strings, complex numbers, ...) are left out. Throws Error when
  /// the file is malformed, a tensor's size does not match its shape, or a name appears twice.
  /// External files are not opened.
  std::vector<OnnxTensor> scan() const;

  /// The file's bytes without the payload of every tensor above `threshold` bytes (in subgraphs and
  /// functions at least 64 KiB), so that a protobuf library parses a message of the graph's size.
  /// Throws Error when the file is malformed.
  std::string readWithoutWeights(uint64_t threshold = 1024) const;

  /// The file that `tensor` is in, which is large enough to hold it. External data must lie inside
  /// the model's folder: absolute paths, `..` and links that lead out are refused. Throws Error.
  std::shared_ptr<const MappedFile> open(const OnnxTensor &tensor) const;

  /// Throws Error unless `holder`, the file that `tensor` is in, is large enough to hold it.
  static void requireHolds(const MappedFile &holder, const OnnxTensor &tensor);

  /// The values of `tensor`: getSize() bytes, row-major, little-endian; Bool is a byte, 0 or 1.
  /// Throws Error when a file is missing or short.
  std::vector<char> read(const OnnxTensor &tensor) const;

private:
  std::shared_ptr<const MappedFile> file;
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CORE_ONNXSCANNER_H
