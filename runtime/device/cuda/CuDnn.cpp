//===- CuDnn.cpp - the cuDNN library --------------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#include "runtime/device/cuda/CuDnn.h"

#include "runtime/core/Environment.h"
#include "runtime/core/Error.h"

#include <algorithm>
#include <array>
#include <utility>

namespace gridloom::rt {

using namespace cudnn;

static constexpr const char *advice =
    "the plan has convolutions or attention that cuDNN computes; install cuDNN 9 or newer for "
    "CUDA, or set GRIDLOOM_CUDNN to its libcudnn.so.9";

static std::string choosePath(const std::string &path) {
  return path.empty() ? getEnvironment("GRIDLOOM_CUDNN", "libcudnn.so.9") : path;
}

CuDnn::CuDnn(std::shared_ptr<const CudaContext> owner, const std::string &path)
    : context(std::move(owner)), library({choosePath(path)}, advice) {
  load();
  context->use();
  check(create(&handle), "cudnnCreate", "on " + context->getName());
}

CuDnn::CuDnn(const std::string &path, const std::string &text)
    : library({choosePath(path)}, advice) {
  load();
  properties = std::make_unique<CuDnnDescriptor>(*this, BACKEND_DEVICEPROP_DESCRIPTOR,
                                                 "describing a GPU that is not here");
  properties->setText(ATTR_DEVICEPROP_JSON_REPRESENTATION, text);
  properties->finalize();
}

CuDnn::~CuDnn() {
  if (!handle)
    return;
  context->useQuietly();
  destroy(handle);
}

void CuDnn::load() {
  library.require(getVersion, "cudnnGetVersion", advice);
  size_t version = getVersion();
  // Before 9, version numbers were 1000 * major + 100 * minor.
  if (version < 90000)
    throw Error(ErrorCode::Unavailable,
                library.getName() + " is cuDNN " + std::to_string(version / 1000) + "." +
                    std::to_string(version / 100 % 10) + ", older than 9: " + advice);
#define GRIDLOOM_CUDNN_LOAD(member, symbol, result, parameters)                                    \
  library.require(member, symbol, advice);
  GRIDLOOM_CUDNN_ENTRY_POINTS(GRIDLOOM_CUDNN_LOAD)
#undef GRIDLOOM_CUDNN_LOAD
}

std::string CuDnn::describe(Status status) const {
  const char *name = getErrorString(status);
  std::string text = name ? name : "status " + std::to_string(status);
  std::array<char, 512> reason = {};
  getLastErrorString(reason.data(), reason.size() - 1);
  std::string line = reason.data();
  std::replace(line.begin(), line.end(), '\n', ' ');
  return line.empty() ? text : text + " (" + line + ")";
}

void CuDnn::check(Status status, const char *call, const std::string &doing) const {
  if (status != STATUS_SUCCESS)
    throw Error(ErrorCode::Internal,
                std::string(call) + " failed with " + describe(status) + " " + doing);
}

std::string CuDnn::getDeviceName() const {
  return context ? context->getName() : "a GPU that is not here";
}

std::shared_ptr<const CuDnnEngine> CuDnn::findEngine(const std::string &call) const {
  auto found = engines.find(call);
  return found == engines.end() ? nullptr : found->second.lock();
}

//===----------------------------------------------------------------------===//
// Descriptors
//===----------------------------------------------------------------------===//

CuDnnDescriptor::CuDnnDescriptor(const CuDnn &library, Constant type, std::string doing)
    : library(&library), doing(std::move(doing)) {
  library.check(library.createDescriptor(type, &handle), "cudnnBackendCreateDescriptor",
                this->doing);
}

CuDnnDescriptor::~CuDnnDescriptor() {
  if (handle)
    library->destroyDescriptor(handle);
}

CuDnnDescriptor::CuDnnDescriptor(CuDnnDescriptor &&other) noexcept
    : library(other.library), handle(std::exchange(other.handle, nullptr)),
      doing(std::move(other.doing)) {}

void CuDnnDescriptor::set(Constant name, std::span<const int64_t> values) {
  setAll(name, TYPE_INT64, static_cast<int64_t>(values.size()), values.data());
}

void CuDnnDescriptor::setAll(Constant name, Constant type, int64_t count, const void *values) {
  Status status = library->setAttribute(handle, name, type, count, values);
  if (status != STATUS_SUCCESS)
    library->check(status, "cudnnBackendSetAttribute",
                   "setting attribute " + std::to_string(name) + " " + doing);
}

void CuDnnDescriptor::finalize() {
  library->check(library->finalize(handle), "cudnnBackendFinalize", doing);
}

bool CuDnnDescriptor::tryFinalize(std::string &reason) {
  Status status = library->finalize(handle);
  if (status != STATUS_SUCCESS)
    reason = library->describe(status);
  return status == STATUS_SUCCESS;
}

int64_t CuDnnDescriptor::getNumber(Constant name) const {
  int64_t value = 0;
  int64_t count = 0;
  library->check(library->getAttribute(handle, name, TYPE_INT64, 1, &count, &value),
                 "cudnnBackendGetAttribute", doing);
  return value;
}

std::vector<int> CuDnnDescriptor::getEnums(Constant name, Constant type, size_t limit) const {
  std::vector<int> values(limit);
  int64_t count = 0;
  library->check(
      library->getAttribute(handle, name, type, static_cast<int64_t>(limit), &count, values.data()),
      "cudnnBackendGetAttribute", doing);
  values.resize(std::min<size_t>(limit, static_cast<size_t>(std::max<int64_t>(count, 0))));
  return values;
}

size_t CuDnnDescriptor::getDescriptors(Constant name, std::span<CuDnnDescriptor> into) const {
  std::vector<Descriptor> handles;
  handles.reserve(into.size());
  for (const CuDnnDescriptor &each : into)
    handles.push_back(each.handle);
  int64_t count = 0;
  library->check(library->getAttribute(
                     handle, name, TYPE_BACKEND_DESCRIPTOR, static_cast<int64_t>(into.size()),
                     &count, into.empty() ? nullptr : static_cast<void *>(handles.data())),
                 "cudnnBackendGetAttribute", doing);
  return static_cast<size_t>(std::max<int64_t>(count, 0));
}

} // namespace gridloom::rt
