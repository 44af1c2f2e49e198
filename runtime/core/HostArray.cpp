//===- HostArray.cpp - arrays in host memory ------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/core/HostArray.h"

#include "runtime/core/Error.h"

#include <cstdlib>

using namespace gridloom::rt;

std::string gridloom::rt::formatShape(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i)
    text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

int64_t gridloom::rt::checkedBytes(std::span<const int64_t> shape, size_t elementBytes,
                                   const std::string &what) {
  int64_t bytes = int64_t(elementBytes);
  bool empty = false;
  for (int64_t size : shape) {
    if (size < 0)
      throw Error(ErrorCode::InvalidArgument,
                  what + " has a negative size in " + formatShape(shape));
    empty |= size == 0;
    if (size && __builtin_mul_overflow(bytes, size, &bytes))
      throw Error(ErrorCode::InvalidArgument,
                  what + " of shape " + formatShape(shape) + " has more than 2^63 bytes");
  }
  return empty ? 0 : bytes;
}

int64_t HostArray::getNumElements() const {
  int64_t count = 1;
  for (int64_t size : shape)
    count *= size;
  return count;
}

HostArray HostArray::allocate(DataType type, std::vector<int64_t> shape) {
  int64_t bytes = checkedBytes(shape, sizeOf(type), "an array");
  void *memory = std::calloc(size_t(bytes) + 1, 1);
  if (!memory)
    throw Error(ErrorCode::OutOfMemory, "cannot allocate " + std::to_string(bytes) +
                                            " bytes for an array of shape " + formatShape(shape));
  return share(
      type, std::move(shape), memory,
      std::shared_ptr<const void>(memory, [](const void *p) { std::free(const_cast<void *>(p)); }));
}

HostArray HostArray::borrow(DataType type, std::vector<int64_t> shape, const void *data) {
  return share(type, std::move(shape), data, nullptr);
}

HostArray HostArray::share(DataType type, std::vector<int64_t> shape, const void *data,
                           std::shared_ptr<const void> owner) {
  checkedBytes(shape, sizeOf(type), "an array");
  HostArray array;
  array.type = type;
  array.shape = std::move(shape);
  array.data = static_cast<const std::byte *>(data);
  array.owner = std::move(owner);
  return array;
}
