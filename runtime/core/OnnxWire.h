//===- OnnxWire.h - protobuf fields of ONNX files ---------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Reads the protobuf wire format without copying: OnnxScanner.cpp finds weights with it,
// OnnxRewriter.cpp replaces them. The file's contents are untrusted.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CORE_ONNXWIRE_H
#define GRIDLOOM_RUNTIME_CORE_ONNXWIRE_H

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gridloom::rt::wire {

enum class WireType { Varint = 0, Fixed64 = 1, Bytes = 2, Fixed32 = 5 };

struct Field {
  uint32_t number = 0;
  WireType type = WireType::Varint;
  /// The value of a Varint.
  uint64_t integer = 0;
  /// The value of anything else, without tag and length.
  std::string_view payload;
  /// The whole field, tag included.
  std::string_view whole;
};

/// Reads the fields of one message, which is a part of `file`. Throws InvalidArgument naming the
/// file and the byte where it is malformed.
class MessageReader {
public:
  MessageReader(std::string_view message, std::string_view file, const std::string &fileName)
      : message(message), file(file), fileName(fileName) {}

  /// The next field; nothing at the end.
  std::optional<Field> next();
  uint64_t readVarint();
  bool isAtEnd() const { return at == message.size(); }

private:
  std::string_view take(size_t start, uint64_t bytes);
  [[noreturn]] void malformed(size_t start, const std::string &reason) const;

  std::string_view message, file;
  const std::string &fileName;
  size_t at = 0;
};

/// The tag and length of a length-delimited field of `bytes` bytes.
std::string makeHeader(uint32_t field, uint64_t bytes);

// Field numbers of onnx.proto.
namespace model {
enum { kGraph = 7, kFunctions = 25 };
} // namespace model
namespace graph {
enum { kNode = 1, kInitializer = 5, kSparseInitializer = 15 };
} // namespace graph
namespace node {
enum { kOutput = 2, kOpType = 4, kAttribute = 5, kDomain = 7 };
} // namespace node
namespace attribute {
enum {
  kName = 1,
  kTensor = 5,
  kGraph = 6,
  kTensors = 10,
  kGraphs = 11,
  kSparseTensor = 22,
  kSparseTensors = 23
};
} // namespace attribute
namespace sparse {
enum { kValues = 1, kIndices = 2 };
} // namespace sparse
namespace function {
enum { kNode = 7 };
} // namespace function
namespace tensor {
enum {
  kDims = 1,
  kDataType = 2,
  kFloatData = 4,
  kInt32Data = 5,
  kStringData = 6,
  kInt64Data = 7,
  kName = 8,
  kRawData = 9,
  kDoubleData = 10,
  kUint64Data = 11,
  kExternalData = 13,
  kDataLocation = 14
};
/// Whether a field of a tensor holds values.
constexpr bool isPayload(uint32_t field) {
  return field == kRawData || field == kFloatData || field == kInt32Data || field == kInt64Data ||
         field == kDoubleData || field == kUint64Data || field == kStringData;
}
} // namespace tensor
/// An entry of a tensor's external_data.
namespace external {
enum { kKey = 1, kValue = 2 };
} // namespace external

} // namespace gridloom::rt::wire

#endif // GRIDLOOM_RUNTIME_CORE_ONNXWIRE_H
