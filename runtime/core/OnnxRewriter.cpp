//===- OnnxRewriter.cpp - replace an ONNX file's weights ------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/core/OnnxRewriter.h"

#include "runtime/core/Error.h"
#include "runtime/core/OnnxScanner.h"
#include "runtime/core/OnnxWire.h"
#include "support/FileSwap.h"

#include <charconv>
#include <deque>
#include <set>
#include <vector>

using namespace gridloom;
using namespace gridloom::rt;
using namespace gridloom::rt::wire;
namespace fs = std::filesystem;

using Tensors = std::map<std::string, OnnxTensor>; // by name

static Error refuse(const std::string &message) { return {ErrorCode::InvalidArgument, message}; }

static Tensors scan(const OnnxFile &model) {
  Tensors tensors;
  for (OnnxTensor &tensor : model.scan())
    tensors[tensor.name] = std::move(tensor);
  return tensors;
}

void gridloom::rt::requireWeights(const fs::path &path,
                                  const std::map<std::string, HostArray> &weights,
                                  const std::string &what) {
  Tensors tensors = scan(OnnxFile(path));
  for (const auto &[name, array] : weights) {
    std::string have = std::string(nameOf(array.getType())) + formatShape(array.getShape());
    auto found = tensors.find(name);
    if (found == tensors.end())
      throw refuse(path.string() + " has no weight '" + name + "', which is " + have + " in " +
                   what + "; " + what + " is of another model");
    const OnnxTensor &tensor = found->second;
    if (tensor.packed || tensor.type != array.getType() || tensor.shape != array.getShape())
      throw refuse("weight '" + name + "' is " + have + " in " + what + " and " +
                   std::string(tensor.getTypeName()) + formatShape(tensor.getNumberShape()) +
                   " in " + path.string() + "; " + what + " is of another model");
  }
}

std::map<std::string, HostArray> gridloom::rt::readInitializers(const fs::path &path) {
  OnnxFile model(path);
  std::map<std::string, HostArray> arrays;
  for (const OnnxTensor &tensor : model.scan()) {
    if (tensor.packed || !tensor.isInitializer)
      continue;
    auto values = std::make_shared<std::vector<char>>(model.read(tensor));
    const void *data = values->empty() ? "" : values->data();
    arrays[tensor.name] = HostArray::share(tensor.type, tensor.shape, data, values);
  }
  return arrays;
}

namespace {

/// A sequence of bytes as pieces in several places, joined when written.
class Pieces {
public:
  void add(std::string_view piece) {
    if (piece.empty())
      return;
    bytes += piece.size();
    // Unchanged fields are adjacent: extend the last piece.
    if (!parts.empty() && parts.back().data() + parts.back().size() == piece.data())
      parts.back() = {parts.back().data(), parts.back().size() + piece.size()};
    else
      parts.push_back(piece);
  }
  void add(const Pieces &other) {
    for (std::string_view part : other.parts)
      add(part);
  }
  uint64_t getSize() const { return bytes; }
  const std::vector<std::string_view> &getParts() const { return parts; }

private:
  std::vector<std::string_view> parts;
  uint64_t bytes = 0;
};

/// Assembles the new model from pieces of the old file and of weights.
class Rewriter {
public:
  Rewriter(const OnnxFile &model, const std::map<std::string, HostArray> &weights,
           std::string dataName)
      : model(model), weights(weights), tensors(scan(model)),
        name(model.getFile().getPath().string()), dataName(std::move(dataName)),
        sources({model.getFile().getPath()}) {}

  Pieces rewrite() {
    Pieces out;
    std::string_view bytes = getBytes();
    bool isChanged = rewriteMessage(bytes, out, [this](const Field &field, Pieces &part) {
      return field.number == wire::model::kGraph       ? rewriteGraph(field.payload, part, true)
             : field.number == wire::model::kFunctions ? rewriteFunction(field.payload, part)
                                                       : false;
    });
    if (!isChanged)
      out.add(bytes);
    return out;
  }

  /// The contents of the new file of external data.
  const Pieces &getData() const { return data; }
  bool hasData() const { return hasExternal; }
  /// The model's file and its files of external data, including those of replaced tensors.
  const std::set<fs::path> &getSources() const { return sources; }
  /// Throws Unavailable if a file that was read has changed since.
  void requireUnchanged() const {
    model.getFile().requireUnchanged();
    for (const auto &[location, file] : files)
      file->requireUnchanged();
  }

private:
  MessageReader read(std::string_view message) const { return {message, getBytes(), name}; }
  std::string_view getBytes() const {
    std::span<const std::byte> bytes = model.getFile().getBytes();
    return {reinterpret_cast<const char *>(bytes.data()), bytes.size()};
  }
  std::string_view keep(std::string text) { return owned.emplace_back(std::move(text)); }
  void addField(Pieces &out, uint32_t number, const Pieces &payload) {
    out.add(keep(makeHeader(number, payload.getSize())));
    out.add(payload);
  }
  void addField(Pieces &out, uint32_t number, std::string_view payload) {
    out.add(keep(makeHeader(number, payload.size())));
    out.add(payload);
  }

  //===--------------------------------------------------------------------===//
  // Messages that contain tensors. Each function returns whether anything changes; if not, discard
  // what it added to `out`.
  //===--------------------------------------------------------------------===//

  template <typename Inner>
  bool rewriteMessage(std::string_view message, Pieces &out, Inner rewriteField) {
    // Bounds the recursion; real models nest far less.
    if (depth > 64)
      throw refuse(name + " nests subgraphs too deeply");
    ++depth;
    bool isChanged = false;
    MessageReader reader = read(message);
    while (std::optional<Field> field = reader.next()) {
      Pieces part;
      if (field->type == WireType::Bytes && rewriteField(*field, part)) {
        addField(out, field->number, part);
        isChanged = true;
      } else {
        out.add(field->whole);
      }
    }
    --depth;
    return isChanged;
  }

  bool rewriteGraph(std::string_view message, Pieces &out, bool isMain) {
    return rewriteMessage(message, out, [&](const Field &field, Pieces &part) {
      switch (field.number) {
      case graph::kInitializer:
        return rewriteTensor(field.payload, part, isMain ? findName(field.payload) : "");
      case graph::kNode:
        return rewriteNode(field.payload, part, isMain);
      case graph::kSparseInitializer:
        return rewriteSparse(field.payload, part);
      default:
        return false;
      }
    });
  }

  bool rewriteFunction(std::string_view message, Pieces &out) {
    return rewriteMessage(message, out, [&](const Field &field, Pieces &part) {
      return field.number == function::kNode && rewriteNode(field.payload, part, false);
    });
  }

  bool rewriteNode(std::string_view message, Pieces &out, bool isMain) {
    std::string weight = isMain ? findConstant(message) : "";
    return rewriteMessage(message, out, [&](const Field &field, Pieces &part) {
      return field.number == node::kAttribute && rewriteAttribute(field.payload, part, weight);
    });
  }

  /// `weight` names the tensor in attribute `value`, if that is one of the model's weights.
  bool rewriteAttribute(std::string_view message, Pieces &out, const std::string &weight) {
    bool isValue = !weight.empty() && findText(message, attribute::kName) == "value";
    return rewriteMessage(message, out, [&](const Field &field, Pieces &part) {
      switch (field.number) {
      case attribute::kTensor:
      case attribute::kTensors:
        return rewriteTensor(field.payload, part,
                             isValue && field.number == attribute::kTensor ? weight : "");
      case attribute::kGraph:
      case attribute::kGraphs:
        return rewriteGraph(field.payload, part, false);
      case attribute::kSparseTensor:
      case attribute::kSparseTensors:
        return rewriteSparse(field.payload, part);
      default:
        return false;
      }
    });
  }

  bool rewriteSparse(std::string_view message, Pieces &out) {
    return rewriteMessage(message, out, [&](const Field &field, Pieces &part) {
      return (field.number == sparse::kValues || field.number == sparse::kIndices) &&
             rewriteTensor(field.payload, part, "");
    });
  }

  /// The field's last occurrence, as protobuf readers take it.
  std::string_view findText(std::string_view message, uint32_t number) const {
    std::string_view text;
    MessageReader reader = read(message);
    while (std::optional<Field> field = reader.next())
      if (field->number == number && field->type == WireType::Bytes)
        text = field->payload;
    return text;
  }
  std::string findName(std::string_view message) const {
    return std::string(findText(message, wire::tensor::kName));
  }

  /// The output of a Constant node; "" for other nodes.
  std::string findConstant(std::string_view message) const {
    std::string_view domain = findText(message, node::kDomain);
    if (findText(message, node::kOpType) != "Constant" || !(domain.empty() || domain == "ai.onnx"))
      return "";
    MessageReader reader = read(message);
    while (std::optional<Field> field = reader.next())
      if (field->number == node::kOutput && field->type == WireType::Bytes)
        return std::string(field->payload);
    return "";
  }

  //===--------------------------------------------------------------------===//
  // Tensors
  //===--------------------------------------------------------------------===//

  /// `weight` is the tensor's name if it is a weight of the main graph, else "".
  bool rewriteTensor(std::string_view message, Pieces &out, const std::string &weight) {
    auto found = weight.empty() ? weights.end() : weights.find(weight);
    const HostArray *value = found == weights.end() ? nullptr : &found->second;
    std::optional<External> outside = findExternal(message);
    if (!value && !outside)
      return false;
    if (outside)
      sources.insert(model.getFile().getPath().parent_path() / outside->file);
    std::string_view values;
    if (value)
      values = {reinterpret_cast<const char *>(value->getData()), value->getNumBytes()};
    else
      values = openExternal(*outside, weight);
    bool isPlaced = outside.has_value();
    MessageReader reader = read(message);
    while (std::optional<Field> field = reader.next()) {
      bool isPayload = wire::tensor::isPayload(field->number);
      if (isPayload && !isPlaced) // replaces the first; the others are dropped
        addField(out, wire::tensor::kRawData, values);
      isPlaced |= isPayload;
      bool isPlace = field->number == wire::tensor::kExternalData ||
                     field->number == wire::tensor::kDataLocation;
      if (!isPayload && !(outside && isPlace))
        out.add(field->whole);
    }
    if (outside)
      placeOutside(values, out);
    else if (!isPlaced)
      addField(out, wire::tensor::kRawData, values);
    return true;
  }

  struct External {
    std::string_view name, file;
    uint64_t offset = 0;
    std::optional<uint64_t> bytes;
  };

  /// The location of a tensor's external data; nothing if it has none.
  std::optional<External> findExternal(std::string_view message) const {
    External tensor;
    bool isExternal = false;
    MessageReader reader = read(message);
    while (std::optional<Field> field = reader.next()) {
      if (field->number == wire::tensor::kDataLocation)
        isExternal = field->integer == 1;
      else if (field->number == wire::tensor::kName && field->type == WireType::Bytes)
        tensor.name = field->payload;
      else if (field->number == wire::tensor::kExternalData && field->type == WireType::Bytes)
        readEntry(field->payload, tensor);
    }
    return isExternal ? std::optional(tensor) : std::nullopt;
  }

  void readEntry(std::string_view entry, External &tensor) const {
    std::string_view key = findText(entry, external::kKey),
                     text = findText(entry, external::kValue);
    if (key == "location")
      tensor.file = text;
    if (key != "offset" && key != "length")
      return;
    uint64_t number = 0;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size())
      throw refuse(name + ": external data has " + std::string(key) + " '" + std::string(text) +
                   "', which is not a number");
    if (key == "offset")
      tensor.offset = number;
    else
      tensor.bytes = number;
  }

  std::string_view openExternal(const External &from, const std::string &weight) {
    if (from.file.empty())
      throw refuse(name + ": external data of '" + std::string(from.name) + "' names no file");
    OnnxTensor tensor;
    tensor.name = from.name;
    tensor.file = from.file;
    tensor.offset = from.offset;
    if (auto scanned = tensors.find(weight); scanned != tensors.end())
      tensor.bytes = scanned->second.bytes; // by its shape: the model may omit the length
    else if (from.bytes)
      tensor.bytes = *from.bytes;
    else
      throw refuse(name + ": external data of '" + tensor.name +
                   "' has no length; save the model with the lengths of its external data");
    auto known = files.find(tensor.file);
    if (known == files.end()) // map each file once: shared values are recognised by their address
      known = files.emplace(tensor.file, model.open(tensor)).first;
    OnnxFile::requireHolds(*known->second, tensor);
    std::span<const std::byte> bytes =
        known->second->getBytes().subspan(tensor.offset, tensor.bytes);
    return {reinterpret_cast<const char *>(bytes.data()), bytes.size()};
  }

  /// Appends values to the new file of external data and writes their location to `out`.
  void placeOutside(std::string_view values, Pieces &out) {
    hasExternal = true;
    // Tensors that share values keep sharing them.
    auto [place, isNew] = placed.try_emplace({values.data(), values.size()}, 0);
    if (isNew) {
      static constexpr uint64_t alignment = 64;
      if (uint64_t past = data.getSize() % alignment; past != 0)
        data.add(keep(std::string(alignment - past, '\0')));
      place->second = data.getSize();
      data.add(values);
    }
    const std::pair<std::string_view, std::string> entries[] = {
        {"location", dataName},
        {"offset", std::to_string(place->second)},
        {"length", std::to_string(values.size())}};
    for (const auto &[key, value] : entries) {
      Pieces entry;
      addField(entry, external::kKey, key);
      addField(entry, external::kValue, keep(value));
      addField(out, wire::tensor::kExternalData, entry);
    }
    static constexpr std::string_view isExternal("\x70\x01", 2); // data_location = EXTERNAL
    out.add(isExternal);
  }

  const OnnxFile &model;
  const std::map<std::string, HostArray> &weights;
  Tensors tensors; // of the main graph
  std::string name, dataName;
  std::set<fs::path> sources;
  std::deque<std::string> owned;
  std::map<std::string, std::shared_ptr<const MappedFile>> files; // of external data, by location
  Pieces data;
  std::map<std::pair<const char *, size_t>, uint64_t> placed; // (address, size) -> offset in `data`
  bool hasExternal = false;
  unsigned depth = 0;
};

} // namespace

static void requireFree(const fs::path &path, bool force) {
  std::error_code error;
  if (fs::is_directory(path, error))
    throw refuse(path.string() + " is a folder; name a file");
  if (!force && fs::exists(fs::symlink_status(path, error)))
    throw refuse(path.string() + " exists; choose another name, or --force to replace it");
}

static void requireWritten(const fs::path &path, const std::string &reason) {
  if (!reason.empty())
    throw refuse(path.string() + " cannot be written: " + reason);
}

/// Throws if `path` is one of the model's own files, under any name.
static void requireElsewhere(const fs::path &path, const std::set<fs::path> &sources) {
  std::error_code error;
  for (const fs::path &source : sources)
    if (fs::equivalent(path, source, error))
      throw refuse(path.string() +
                   (path.filename() == source.filename()
                        ? ""
                        : ", the same file as " + source.string() + ",") +
                   " is a file of the model itself, which is never replaced; choose another name");
}

RewrittenModel gridloom::rt::rewriteModel(const fs::path &path,
                                          const std::map<std::string, HostArray> &weights,
                                          const fs::path &output, bool force) {
  OnnxFile model(path);
  fs::path dataPath = output;
  dataPath += ".data";
  Rewriter rewriter(model, weights, dataPath.filename().string());
  Pieces pieces = rewriter.rewrite();
  RewrittenModel result{.bytes = pieces.getSize(), .data = {}, .dataBytes = 0};
  requireElsewhere(output, rewriter.getSources());
  requireFree(output, force);
  NewFile newModel(output), newData(dataPath);
  if (rewriter.hasData()) {
    requireElsewhere(dataPath, rewriter.getSources());
    requireFree(dataPath, force);
    result.data = dataPath;
    result.dataBytes = rewriter.getData().getSize();
    requireWritten(dataPath, newData.write(rewriter.getData().getParts()));
  }
  requireWritten(output, newModel.write(pieces.getParts()));
  rewriter.requireUnchanged(); // else the output may mix two versions
  requireWritten(dataPath, newData.commit());
  requireWritten(output, newModel.commit()); // after the data file that it refers to
  return result;
}
