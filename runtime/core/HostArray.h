//===- HostArray.h - arrays in host memory ----------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CORE_HOSTARRAY_H
#define GRIDLOOM_RUNTIME_CORE_HOSTARRAY_H

#include "runtime/core/DataType.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace gridloom::rt {

/// A dense row-major array in host memory, owned or borrowed. Copies share the memory.
class HostArray {
public:
  HostArray() = default;

  /// A new array of zeros; throws InvalidArgument when a dimension is negative or the size
  /// overflows, OutOfMemory when there is no room.
  static HostArray allocate(DataType type, std::vector<int64_t> shape);
  /// The caller's memory, which must outlive the array and all its copies. An array made from const
  /// memory must only be read.
  static HostArray borrow(DataType type, std::vector<int64_t> shape, const void *data);
  /// Memory kept alive by `owner`.
  static HostArray share(DataType type, std::vector<int64_t> shape, const void *data,
                         std::shared_ptr<const void> owner);

  DataType getType() const { return type; }
  const std::vector<int64_t> &getShape() const { return shape; }
  int64_t getNumElements() const;
  size_t getNumBytes() const { return size_t(getNumElements()) * sizeOf(type); }
  const std::byte *getData() const { return data; }
  std::byte *getMutableData() { return const_cast<std::byte *>(data); }
  /// The owner that keeps the memory alive; null if it is borrowed.
  const std::shared_ptr<const void> &getOwner() const { return owner; }
  /// Whether there is no array, such as an output on a rank that does not compute it.
  bool isNull() const { return !data; }

  template <typename T> std::span<const T> as() const {
    return {reinterpret_cast<const T *>(data), size_t(getNumElements())};
  }
  template <typename T> std::span<T> as() {
    return {reinterpret_cast<T *>(getMutableData()), size_t(getNumElements())};
  }

private:
  DataType type = DataType::F32;
  std::vector<int64_t> shape;
  const std::byte *data = nullptr;
  std::shared_ptr<const void> owner;
};

/// The product of `shape` times `elementBytes`; throws InvalidArgument naming `what` when a
/// dimension is negative or the product does not fit 63 bits.
int64_t checkedBytes(std::span<const int64_t> shape, size_t elementBytes, const std::string &what);

/// "[2, 3]", for messages.
std::string formatShape(std::span<const int64_t> shape);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CORE_HOSTARRAY_H
