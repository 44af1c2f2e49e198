//===- OnnxScanner.h - find weights in an ONNX file -------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Reads the protobuf wire format directly: a protobuf library would copy every weight into memory.
// The file is mapped and only tags and lengths are read, so memory is in proportion to the graph,
// even for a 100 GB model. The file's contents are untrusted.
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

/// The most dimensions of a tensor, as in numpy. Tensors are walked recursively.
inline constexpr size_t kMaxRank = 64;

/// Numbers of 2 or 4 bits, several in a byte, the first in the lowest bits.
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
  /// The initializer's name, or that of the Constant node's output.
  std::string name;
  DataType type = DataType::F32;
  std::vector<int64_t> shape;
  /// The file with external data as the model names it, relative to the model's folder; empty for
  /// the model file itself.
  std::string file;
  /// The offset of the values, row-major and little-endian; if not `inPlace`, of the TensorProto,
  /// whose values are varints or in pieces and are decoded by OnnxFile::read.
  uint64_t offset = 0;
  uint64_t bytes = 0;
  bool inPlace = true;
  bool isInitializer = true;
  /// Set for numbers smaller than a byte. Then `type` is U8 and `shape` that of the bytes: the
  /// numbers' shape with a shorter last dimension if each row fills whole bytes, else one
  /// dimension.
  std::optional<PackedNumbers> packed;

  /// The type's name and the shape, of the packed numbers if there are any.
  std::string_view getTypeName() const { return packed ? packed->name : nameOf(type); }
  const std::vector<int64_t> &getNumberShape() const { return packed ? packed->shape : shape; }

  /// Bytes of the values in memory.
  uint64_t getSize() const;
};

/// A model file, opened once, so that all results are of one version. Throws Error if it changes
/// while it is read.
class OnnxFile {
public:
  /// Throws Error when the file cannot be opened.
  explicit OnnxFile(const std::filesystem::path &path);
  explicit OnnxFile(std::shared_ptr<const MappedFile> file);

  const MappedFile &getFile() const { return *file; }

  /// Finds the tensors in file order, without reading their values. Tensors of types that are
  /// neither a DataType nor packed (strings, complex numbers, ...) are skipped. Throws Error when
  /// the file is malformed, a tensor's size does not match its shape, or a name appears twice.
  /// External files are not opened.
  std::vector<OnnxTensor> scan() const;

  /// The file's bytes without the payload of every tensor above `threshold` bytes (in subgraphs and
  /// functions at least 64 KiB), so that a protobuf library parses a message of the graph's size.
  /// Throws Error when the file is malformed.
  std::string readWithoutWeights(uint64_t threshold = 1024) const;

  /// Opens the file that holds `tensor` and checks its size. External data must be inside the
  /// model's folder: absolute paths, `..` and links that lead out are refused. Throws Error.
  std::shared_ptr<const MappedFile> open(const OnnxTensor &tensor) const;

  /// Throws Error unless `holder`, the file of `tensor`, is large enough to hold it.
  static void requireHolds(const MappedFile &holder, const OnnxTensor &tensor);

  /// The values of `tensor`: getSize() bytes, row-major, little-endian; Bool is a byte, 0 or 1.
  /// Throws Error when a file is missing or short.
  std::vector<char> read(const OnnxTensor &tensor) const;

private:
  std::shared_ptr<const MappedFile> file;
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CORE_ONNXSCANNER_H
