//===- ModelReader.cpp - an ONNX file in memory ---------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/ModelReader.h"

#include "runtime/core/Error.h"
#include "support/Sha256.h"

#include "onnx-ml.pb.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

using namespace gridloom;
using namespace gridloom::onnx_import;

namespace {

std::shared_ptr<const onnx::ModelProto> parse(const rt::OnnxFile &file, uint64_t threshold = 1024) {
  std::string bytes = file.readWithoutWeights(threshold);
  google::protobuf::io::ArrayInputStream array(bytes.data(), static_cast<int>(bytes.size()));
  google::protobuf::io::CodedInputStream stream(&array);
  stream.SetRecursionLimit(256);
  auto proto = std::make_shared<onnx::ModelProto>();
  if (bytes.size() > (1u << 30) || !proto->ParseFromCodedStream(&stream) ||
      !stream.ConsumedEntireMessage())
    throw rt::Error(rt::ErrorCode::InvalidArgument,
                    file.getFile().getPath().string() + " is not a valid ONNX file");
  return proto;
}

/// Runs `action` and returns the message of what it throws.
template <typename ActionT> std::string guard(ActionT action) {
  try {
    action();
    return "";
  } catch (const std::bad_alloc &) {
    return "out of memory while reading the model";
  } catch (const std::exception &error) {
    return error.what();
  }
}

} // namespace

/// Opens the file; all later reads use the open file.
static void open(const std::filesystem::path &path, Model &model) {
  model.path = path;
  model.file = std::make_shared<rt::OnnxFile>(path);
  model.tensors = model.file->scan();
}

std::string onnx_import::readModel(const std::filesystem::path &path, Model &model) {
  return guard([&] {
    open(path, model);
    model.proto = parse(*model.file);
    std::span<const std::byte> bytes = model.file->getFile().getBytes();
    model.bytes = bytes.size();
    model.sha256 = sha256(bytes);
    for (const rt::OnnxTensor &tensor : model.tensors)
      if (!tensor.file.empty() && !model.data.count(tensor.file))
        try {
          model.data[tensor.file] = rt::fingerprint(model.file->open(tensor)->getBytes());
        } catch (const rt::Error &) {
          continue; // an error where the tensor is used, and none where it is not
        }
    model.file->getFile().requireUnchanged();
  });
}

std::string onnx_import::readGraph(const std::filesystem::path &path, Model &model,
                                   bool withWeights) {
  return guard([&] {
    open(path, model);
    model.proto =
        withWeights ? parse(*model.file, std::numeric_limits<uint64_t>::max()) : parse(*model.file);
  });
}

std::string onnx_import::readTensor(const Model &model, const rt::OnnxTensor &tensor,
                                    std::vector<char> &data) {
  return guard([&] { data = model.file->read(tensor); });
}

std::string onnx_import::checkTensor(const Model &model, const rt::OnnxTensor &tensor) {
  std::error_code error;
  bool isAbsent = model.mayLackWeights && !tensor.file.empty() &&
                  !std::filesystem::exists(model.path.parent_path() / tensor.file, error);
  return isAbsent ? "" : guard([&] { model.file->open(tensor); });
}
