//===- OnnxScanner.cpp - find weights in an ONNX file ---------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/core/OnnxScanner.h"

#include "runtime/core/Error.h"
#include "runtime/core/OnnxWire.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>
#include <unordered_set>

static_assert(std::endian::native == std::endian::little,
              "weights are used as they lie in the file");

namespace gridloom::rt {

namespace {

using namespace wire;

[[noreturn]] void fail(const std::string &message) {
  throw Error(ErrorCode::InvalidArgument, message);
}

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

/// Converts a TensorProto.DataType; nothing for other types.
std::optional<DataType> getDataType(uint64_t onnxType) {
  switch (onnxType) {
  case 1:
    return DataType::F32;
  case 2:
    return DataType::U8;
  case 3:
    return DataType::I8;
  case 4:
    return DataType::U16;
  case 5:
    return DataType::I16;
  case 6:
    return DataType::I32;
  case 7:
    return DataType::I64;
  case 9:
    return DataType::Bool;
  case 10:
    return DataType::F16;
  case 11:
    return DataType::F64;
  case 12:
    return DataType::U32;
  case 13:
    return DataType::U64;
  case 16:
    return DataType::BF16;
  case 17:
    return DataType::F8E4M3FN;
  case 18:
    return DataType::F8E4M3FNUZ;
  case 19:
    return DataType::F8E5M2;
  case 20:
    return DataType::F8E5M2FNUZ;
  default:
    return std::nullopt;
  }
}

/// The packed type of a TensorProto.DataType; nothing for other types.
std::optional<PackedNumbers> getPackedNumbers(uint64_t onnxType) {
  switch (onnxType) {
  case 21:
    return PackedNumbers{"u4", 4, 21, {}};
  case 22:
    return PackedNumbers{"i4", 4, 22, {}};
  case 23:
    return PackedNumbers{"f4e2m1", 4, 23, {}};
  case 25:
    return PackedNumbers{"u2", 2, 25, {}};
  case 26:
    return PackedNumbers{"i2", 2, 26, {}};
  default:
    return std::nullopt;
  }
}

/// The field that holds values of `type` in a TensorProto without raw_data.
uint32_t getTypedField(DataType type) {
  switch (type) {
  case DataType::F32:
    return tensor::kFloatData;
  case DataType::F64:
    return tensor::kDoubleData;
  case DataType::I64:
    return tensor::kInt64Data;
  case DataType::U32:
  case DataType::U64:
    return tensor::kUint64Data;
  default:
    return tensor::kInt32Data;
  }
}

std::string shapeToString(const std::vector<int64_t> &shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i)
    text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

/// The number of elements; the caller has checked that it does not overflow.
uint64_t countElements(const std::vector<int64_t> &shape) {
  uint64_t count = 1;
  for (int64_t dim : shape)
    count *= static_cast<uint64_t>(dim);
  return count;
}

class Scanner {
public:
  explicit Scanner(std::shared_ptr<const MappedFile> mapped)
      : file(std::move(mapped)), name(file->getPath().string()) {
    if (getBytes().empty())
      fail(name + " is empty");
    file->readAhead(false); // weights are skipped
  }
  Scanner(const Scanner &) = delete;
  Scanner &operator=(const Scanner &) = delete;
  ~Scanner() { file->readAhead(true); }

  std::vector<OnnxTensor> scan() {
    MessageReader reader = read(getBytes());
    bool hasGraph = false;
    while (auto field = reader.next()) {
      if (field->number == model::kGraph && field->type == WireType::Bytes) {
        hasGraph = true;
        scanGraph(field->payload);
      }
    }
    if (!hasGraph)
      fail(name + " is not an ONNX model: it has no graph");
    return std::move(tensors);
  }

  std::vector<char> decode(const OnnxTensor &tensor) {
    std::string_view bytes = getBytes();
    if (tensor.offset > bytes.size() || tensor.bytes > bytes.size() - tensor.offset)
      fail("'" + tensor.name + "' lies past the end of " + name + ", which has " +
           std::to_string(bytes.size()) + " bytes");
    return decodeTensor(bytes.substr(tensor.offset, tensor.bytes), tensor);
  }

  std::string withoutWeights(uint64_t limit) {
    threshold = limit;
    std::string out;
    copyModel(getBytes(), out);
    return out;
  }

private:
  MessageReader read(std::string_view message) const { return {message, getBytes(), name}; }
  std::string_view getBytes() const {
    return {reinterpret_cast<const char *>(file->getBytes().data()), file->getBytes().size()};
  }

  void scanGraph(std::string_view message) {
    MessageReader reader = read(message);
    while (auto field = reader.next()) {
      if (field->type != WireType::Bytes)
        continue;
      if (field->number == graph::kInitializer)
        add(scanTensor(field->payload));
      else if (field->number == graph::kNode)
        scanNode(field->payload);
    }
  }

  void scanNode(std::string_view message) {
    std::string_view op, output, value;
    bool isFirstOutput = true, isStandard = true;
    MessageReader reader = read(message);
    while (auto field = reader.next()) {
      if (field->type != WireType::Bytes)
        continue;
      if (field->number == node::kOpType) {
        op = field->payload;
      } else if (field->number == node::kDomain) {
        isStandard = field->payload.empty() || field->payload == "ai.onnx";
      } else if (field->number == node::kOutput && isFirstOutput) {
        output = field->payload;
        isFirstOutput = false;
      } else if (field->number == node::kAttribute) {
        if (std::string_view tensor = findValue(field->payload); tensor.data())
          value = tensor;
      }
    }
    if (op != "Constant" || !isStandard || !value.data())
      return;
    if (std::optional<OnnxTensor> tensor = scanTensor(value, std::string(output))) {
      tensor->isInitializer = false;
      add(std::move(tensor));
    }
  }

  /// The tensor of an attribute called `value`; null data for other attributes.
  std::string_view findValue(std::string_view message) {
    std::string_view attributeName, tensor;
    MessageReader reader = read(message);
    while (auto field = reader.next()) {
      if (field->type != WireType::Bytes)
        continue;
      if (field->number == attribute::kName)
        attributeName = field->payload;
      else if (field->number == attribute::kTensor)
        tensor = field->payload;
    }
    return attributeName == "value" ? tensor : std::string_view();
  }

  void add(std::optional<OnnxTensor> tensor) {
    if (!tensor)
      return;
    if (!names.insert(tensor->name).second)
      fail(name + ": two tensors are called '" + tensor->name + "'");
    tensors.push_back(std::move(*tensor));
  }

  struct RawTensor {
    std::vector<int64_t> shape;
    uint64_t type = 0;
    std::string_view name, raw;
    bool hasRaw = false, isExternal = false;
    std::string location;
    std::optional<uint64_t> offset, length;
  };

  RawTensor parseTensor(std::string_view message) {
    RawTensor raw;
    MessageReader reader = read(message);
    while (auto field = reader.next()) {
      switch (field->number) {
      case tensor::kDims:
        if (field->type == WireType::Varint)
          raw.shape.push_back(static_cast<int64_t>(field->integer));
        else if (field->type == WireType::Bytes)
          for (MessageReader packed = read(field->payload); !packed.isAtEnd();)
            raw.shape.push_back(static_cast<int64_t>(packed.readVarint()));
        break;
      case tensor::kDataType:
        raw.type = field->integer;
        break;
      case tensor::kName:
        raw.name = field->payload;
        break;
      case tensor::kRawData:
        if (field->type == WireType::Bytes) {
          raw.raw = field->payload;
          raw.hasRaw = true;
        }
        break;
      case tensor::kExternalData:
        if (field->type == WireType::Bytes)
          parseExternal(field->payload, raw);
        break;
      case tensor::kDataLocation:
        raw.isExternal = field->integer == 1;
        break;
      default:
        break;
      }
    }
    return raw;
  }

  void parseExternal(std::string_view message, RawTensor &raw) {
    std::string_view key, value;
    MessageReader reader = read(message);
    while (auto field = reader.next()) {
      if (field->number == 1)
        key = field->payload;
      else if (field->number == 2)
        value = field->payload;
    }
    if (key == "location") {
      raw.location = value;
    } else if (key == "offset" || key == "length") {
      uint64_t number = 0;
      auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
      if (error != std::errc() || end != value.data() + value.size())
        fail(name + ": external data of '" + std::string(raw.name) + "' has " + std::string(key) +
             " '" + std::string(value) + "', which is not a number");
      (key == "offset" ? raw.offset : raw.length) = number;
    }
  }

  std::optional<OnnxTensor> scanTensor(std::string_view message,
                                       std::optional<std::string> rename = {}) {
    RawTensor raw = parseTensor(message);
    std::optional<DataType> type = getDataType(raw.type);
    OnnxTensor tensor;
    tensor.packed = getPackedNumbers(raw.type);
    if (!type && !tensor.packed)
      return std::nullopt;
    tensor.name = rename ? *rename : std::string(raw.name);
    tensor.type = type.value_or(DataType::U8);
    tensor.shape = std::move(raw.shape);
    uint64_t size = checkedSize(tensor);
    if (tensor.packed)
      size = pack(tensor, size);
    if (raw.isExternal) {
      if (raw.location.empty())
        fail(name + ": external data of '" + tensor.name + "' names no file");
      tensor.file = raw.location;
      tensor.offset = raw.offset.value_or(0);
      tensor.bytes = raw.length.value_or(size);
    } else if (raw.hasRaw) {
      tensor.offset = offsetOf(raw.raw);
      tensor.bytes = raw.raw.size();
    } else {
      scanTyped(message, tensor);
      if (!tensor.inPlace)
        return tensor;
    }
    if (tensor.bytes != size)
      fail(name + ": '" + tensor.name + "' has " + std::to_string(tensor.bytes) +
           " bytes of data, but its shape " + shapeToString(tensor.getNumberShape()) + " of " +
           std::string(tensor.getTypeName()) + " takes " + std::to_string(size));
    return tensor;
  }

  /// Sets the shape to that of the bytes of `count` packed numbers; returns the number of bytes.
  static uint64_t pack(OnnxTensor &tensor, uint64_t count) {
    tensor.packed->shape = tensor.shape;
    int64_t perByte = 8 / tensor.packed->bits;
    uint64_t bytes = count / perByte + (count % perByte != 0);
    if (!tensor.shape.empty() && tensor.shape.back() % perByte == 0)
      tensor.shape.back() /= perByte;
    else
      tensor.shape = {static_cast<int64_t>(bytes)};
    return bytes;
  }

  /// Locates the values of a tensor that stores them in its typed field.
  void scanTyped(std::string_view message, OnnxTensor &tensor) {
    uint32_t wanted = getTypedField(tensor.type);
    unsigned count = 0;
    std::string_view payload;
    bool isPacked = true;
    MessageReader reader = read(message);
    while (auto field = reader.next())
      if (field->number == wanted) {
        ++count;
        payload = field->payload;
        isPacked &= field->type == WireType::Bytes;
      }
    bool isFixedWidth = tensor.type == DataType::F32 || tensor.type == DataType::F64;
    if (count == 0) {
      tensor.offset = offsetOf(message);
    } else if (count == 1 && isPacked && isFixedWidth) {
      tensor.offset = offsetOf(payload);
      tensor.bytes = payload.size();
    } else {
      tensor.inPlace = false;
      tensor.offset = offsetOf(message);
      tensor.bytes = message.size();
    }
  }

  uint64_t checkedSize(const OnnxTensor &tensor) const {
    if (tensor.shape.size() > kMaxRank)
      fail(name + ": '" + tensor.name + "' has " + std::to_string(tensor.shape.size()) +
           " dimensions, of at most " + std::to_string(kMaxRank));
    // A zero anywhere makes the product zero; the other factors must still not overflow.
    uint64_t size = sizeOf(tensor.type);
    bool isEmpty = false;
    for (int64_t dim : tensor.shape) {
      if (dim < 0 || (dim > 0 && __builtin_mul_overflow(size, static_cast<uint64_t>(dim), &size)) ||
          size > uint64_t(1) << 62)
        fail(name + ": '" + tensor.name + "' has the impossible shape " +
             shapeToString(tensor.shape));
      isEmpty |= dim == 0;
    }
    return isEmpty ? 0 : size;
  }

  uint64_t offsetOf(std::string_view part) const {
    return part.data() ? static_cast<uint64_t>(part.data() - getBytes().data()) : 0;
  }

  //===--------------------------------------------------------------------===//
  // Decoding
  //===--------------------------------------------------------------------===//

  std::vector<char> decodeTensor(std::string_view message, const OnnxTensor &tensor) {
    size_t width = sizeOf(tensor.type);
    uint64_t count = countElements(tensor.shape);
    std::vector<char> data;
    auto append = [&](const void *value) {
      const char *bytes = static_cast<const char *>(value);
      data.insert(data.end(), bytes, bytes + width);
    };
    // Varints of narrow types hold the value or, for 16-bit floats, the bits; either way the low
    // bytes.
    auto appendInteger = [&](uint64_t value) {
      if (tensor.type == DataType::Bool)
        value = value != 0;
      append(&value);
    };
    bool isFixedWidth = tensor.type == DataType::F32 || tensor.type == DataType::F64;
    MessageReader reader = read(message);
    while (auto field = reader.next()) {
      if (field->number != getTypedField(tensor.type))
        continue;
      if (isFixedWidth && field->type != WireType::Varint) {
        data.insert(data.end(), field->payload.begin(), field->payload.end());
      } else if (!isFixedWidth && field->type == WireType::Varint) {
        appendInteger(field->integer);
      } else if (!isFixedWidth && field->type == WireType::Bytes) {
        for (MessageReader packed = read(field->payload); !packed.isAtEnd();)
          appendInteger(packed.readVarint());
      }
    }
    if (data.size() != count * width)
      fail(name + ": '" + tensor.name + "' has " + std::to_string(data.size() / width) +
           " values, but its shape " + shapeToString(tensor.shape) +
           (tensor.packed ? " in bytes" : "") + " takes " + std::to_string(count));
    return data;
  }

  //===--------------------------------------------------------------------===//
  // Copying without weights
  //===--------------------------------------------------------------------===//

  using Copier = void (Scanner::*)(std::string_view, std::string &);

  /// Copies a message; `choose` maps a field number to the copier of its submessage, or null.
  template <typename Choose>
  void copyMessage(std::string_view message, std::string &out, Choose choose) {
    // Bounds the recursion; real models nest far less.
    if (depth > 64)
      fail(name + " nests subgraphs too deeply");
    ++depth;
    MessageReader reader = read(message);
    while (auto field = reader.next()) {
      Copier copier = field->type == WireType::Bytes ? choose(field->number) : nullptr;
      if (!copier) {
        out.append(field->whole);
        continue;
      }
      std::string part;
      (this->*copier)(field->payload, part);
      out.append(makeHeader(field->number, part.size()));
      out.append(part);
    }
    --depth;
  }

  void copyModel(std::string_view message, std::string &out) {
    copyMessage(message, out, [](uint32_t field) -> Copier {
      return field == model::kGraph       ? &Scanner::copyGraph
             : field == model::kFunctions ? &Scanner::copyFunction
                                          : nullptr;
    });
  }
  void copyFunction(std::string_view message, std::string &out) {
    ++nested;
    copyMessage(message, out, [](uint32_t field) -> Copier {
      return field == function::kNode ? &Scanner::copyNode : nullptr;
    });
    --nested;
  }
  void copySubgraph(std::string_view message, std::string &out) {
    ++nested;
    copyGraph(message, out);
    --nested;
  }
  void copyGraph(std::string_view message, std::string &out) {
    copyMessage(message, out, [](uint32_t field) -> Copier {
      return field == graph::kNode                ? &Scanner::copyNode
             : field == graph::kInitializer       ? &Scanner::copyTensor
             : field == graph::kSparseInitializer ? &Scanner::copySparse
                                                  : nullptr;
    });
  }
  void copyNode(std::string_view message, std::string &out) {
    copyMessage(message, out, [](uint32_t field) -> Copier {
      return field == node::kAttribute ? &Scanner::copyAttribute : nullptr;
    });
  }
  void copyAttribute(std::string_view message, std::string &out) {
    copyMessage(message, out, [](uint32_t field) -> Copier {
      switch (field) {
      case attribute::kTensor:
      case attribute::kTensors:
        return &Scanner::copyTensor;
      case attribute::kGraph:
      case attribute::kGraphs:
        return &Scanner::copySubgraph;
      case attribute::kSparseTensor:
      case attribute::kSparseTensors:
        return &Scanner::copySparse;
      default:
        return nullptr;
      }
    });
  }
  void copySparse(std::string_view message, std::string &out) {
    copyMessage(message, out, [](uint32_t field) -> Copier {
      return field == sparse::kValues || field == sparse::kIndices ? &Scanner::copyTensor : nullptr;
    });
  }
  void copyTensor(std::string_view message, std::string &out) {
    // Values may be spread over many small fields: compare their total size.
    uint64_t payload = 0;
    MessageReader sizes = read(message);
    while (auto field = sizes.next())
      if (tensor::isPayload(field->number))
        payload += field->whole.size();
    // scan does not find constants of subgraphs and functions, so keep small ones here.
    uint64_t limit = nested > 0 ? std::max(threshold, kNestedThreshold) : threshold;
    MessageReader reader = read(message);
    while (auto field = reader.next())
      if (payload <= limit || !tensor::isPayload(field->number))
        out.append(field->whole);
  }

  std::shared_ptr<const MappedFile> file;
  std::string name;
  std::vector<OnnxTensor> tensors;
  std::unordered_set<std::string> names;
  static constexpr uint64_t kNestedThreshold = 64 << 10;
  uint64_t threshold = 0;
  unsigned depth = 0, nested = 0;
};

} // namespace

//===----------------------------------------------------------------------===//
// Interface
//===----------------------------------------------------------------------===//

uint64_t OnnxTensor::getSize() const { return countElements(shape) * sizeOf(type); }

OnnxFile::OnnxFile(const std::filesystem::path &path) {
  try {
    file = MappedFile::open(path);
  } catch (const Error &error) {
    fail(error.what()); // as InvalidArgument: the caller named the file
  }
}
OnnxFile::OnnxFile(std::shared_ptr<const MappedFile> file) : file(std::move(file)) {}

/// Reports a change of the file rather than a result or error that came of it.
template <typename Work> static auto whileUnchanged(const MappedFile &file, Work work) {
  try {
    auto result = work();
    file.requireUnchanged();
    return result;
  } catch (const Error &) {
    file.requireUnchanged();
    throw;
  }
}

std::vector<OnnxTensor> OnnxFile::scan() const {
  return whileUnchanged(*file, [&] { return Scanner(file).scan(); });
}

std::string OnnxFile::readWithoutWeights(uint64_t threshold) const {
  return whileUnchanged(*file, [&] { return Scanner(file).withoutWeights(threshold); });
}

std::shared_ptr<const MappedFile> OnnxFile::open(const OnnxTensor &tensor) const {
  std::shared_ptr<const MappedFile> holder = file;
  if (!tensor.file.empty()) {
    std::string what = "external data of '" + tensor.name + "' is in '" + tensor.file + "'";
    std::filesystem::path relative = tensor.file;
    // The system would cut a name off at a zero byte.
    if (relative.is_absolute() || tensor.file.find('\0') != std::string::npos)
      fail(what + ", which is not a path inside the model's folder");
    for (const std::filesystem::path &part : relative)
      if (part == "..")
        fail(what + ", which leads out of the model's folder");
    std::filesystem::path folder = file->getPath().parent_path();
    std::error_code error;
    if (!std::filesystem::exists(folder / relative, error))
      fail(what + ", which cannot be found beside " + file->getPath().string());
    try {
      holder = MappedFile::openBeneath(folder, relative);
    } catch (const Error &error) {
      fail("external data of '" + tensor.name + "': " + error.what());
    }
  }
  requireHolds(*holder, tensor);
  return holder;
}

void OnnxFile::requireHolds(const MappedFile &holder, const OnnxTensor &tensor) {
  uint64_t size = holder.getBytes().size();
  if (tensor.offset > size || tensor.bytes > size - tensor.offset)
    fail("'" + tensor.name + "' takes " + std::to_string(tensor.bytes) + " bytes at " +
         std::to_string(tensor.offset) + " of " + holder.getPath().string() + ", which has only " +
         std::to_string(size));
}

std::vector<char> OnnxFile::read(const OnnxTensor &tensor) const {
  if (!tensor.inPlace)
    return whileUnchanged(*file, [&] { return Scanner(file).decode(tensor); });
  std::shared_ptr<const MappedFile> holder = open(tensor);
  auto bytes = holder->getBytes().subspan(tensor.offset, tensor.bytes);
  const char *begin = reinterpret_cast<const char *>(bytes.data());
  std::vector<char> values(begin, begin + bytes.size());
  holder->requireUnchanged();
  return values;
}

} // namespace gridloom::rt
