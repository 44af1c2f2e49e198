//===- ModelReader.cpp - an ONNX file in memory ---------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/ModelReader.h"

#include "runtime/core/Error.h"

#include "onnx-ml.pb.h"

#include <fstream>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <openssl/evp.h>

using namespace gridloom;
using namespace gridloom::onnx_import;

namespace {

/// A SHA-256 in the making.
class Digest {
public:
  Digest() : context(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr);
  }
  void add(const char *data, size_t bytes) { EVP_DigestUpdate(context.get(), data, bytes); }
  std::string finish() {
    unsigned char bytes[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    EVP_DigestFinal_ex(context.get(), bytes, &size);
    static constexpr char digits[] = "0123456789abcdef";
    std::string text;
    for (unsigned i = 0; i < size; ++i) {
      text.push_back(digits[bytes[i] >> 4]);
      text.push_back(digits[bytes[i] & 15]);
    }
    return text;
  }

private:
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX *)> context;
};

void digestFile(Model &model) {
  std::ifstream file(model.path, std::ios::binary);
  std::vector<char> buffer(1 << 20);
  Digest digest;
  while (file.read(buffer.data(), static_cast<std::streamsize>(buffer.size())), file.gcount() > 0) {
    digest.add(buffer.data(), static_cast<size_t>(file.gcount()));
    model.bytes += static_cast<uint64_t>(file.gcount());
  }
  if (file.bad())
    throw rt::Error(rt::ErrorCode::InvalidArgument, "cannot read " + model.path.string());
  model.sha256 = digest.finish();
}

std::shared_ptr<const onnx::ModelProto> parse(const std::filesystem::path &path,
                                              uint64_t threshold = 1024) {
  std::string bytes = rt::readOnnxWithoutWeights(path, threshold);
  google::protobuf::io::ArrayInputStream array(bytes.data(), static_cast<int>(bytes.size()));
  google::protobuf::io::CodedInputStream stream(&array);
  stream.SetRecursionLimit(256);
  auto proto = std::make_shared<onnx::ModelProto>();
  if (bytes.size() > (1u << 30) || !proto->ParseFromCodedStream(&stream) ||
      !stream.ConsumedEntireMessage())
    throw rt::Error(rt::ErrorCode::InvalidArgument, path.string() + " is not a valid ONNX file");
  return proto;
}

/// Runs `action`; what it throws becomes the text returned.
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

std::string onnx_import::readModel(const std::filesystem::path &path, Model &model) {
  return guard([&] {
    model.path = path;
    model.tensors = rt::scanOnnxInitializers(path);
    model.proto = parse(path);
    digestFile(model);
  });
}

std::string onnx_import::readGraph(const std::filesystem::path &path, Model &model,
                                   bool withWeights) {
  return guard([&] {
    model.path = path;
    model.tensors = rt::scanOnnxInitializers(path);
    model.proto = withWeights ? parse(path, std::numeric_limits<uint64_t>::max()) : parse(path);
  });
}

std::string onnx_import::readTensor(const Model &model, const rt::OnnxTensor &tensor,
                                    std::vector<char> &data) {
  return guard([&] { data = rt::readOnnxTensor(model.path, tensor); });
}

std::string onnx_import::checkTensor(const Model &model, const rt::OnnxTensor &tensor) {
  return guard([&] { rt::resolveOnnxFile(model.path, tensor); });
}

std::string onnx_import::getSha256(const char *data, size_t bytes) {
  Digest digest;
  digest.add(data, bytes);
  return digest.finish();
}
