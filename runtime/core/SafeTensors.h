//===- SafeTensors.h - find tensors in a .safetensors file ------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CORE_SAFETENSORS_H
#define GRIDLOOM_RUNTIME_CORE_SAFETENSORS_H

#include "runtime/core/DataType.h"
#include "runtime/core/HostArray.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gridloom::rt {

struct SafeTensor {
  std::string name;
  DataType type;
  std::vector<int64_t> shape;
  uint64_t offset, bytes; // in the file
};

/// Reads the header of a .safetensors file. Tensors of other types than DataType are skipped.
/// Throws InvalidPlan, with a line that starts with `file`, when it is malformed or a tensor is
/// outside the file or its size does not match its shape.
std::vector<SafeTensor> readSafeTensors(std::span<const std::byte> contents,
                                        const std::string &file);

/// A .safetensors file as its header and the data that follows, which points into the arrays.
struct SafeTensorsParts {
  std::string header;
  std::vector<std::string_view> data;
  /// Header and data in file order. Valid as long as this and the arrays.
  std::vector<std::string_view> getAll() const;
  size_t getNumBytes() const; ///< of the whole file
};
/// The parts of a .safetensors file of `tensors`, none of them called `__metadata__`. The data of
/// each is aligned to its elements.
SafeTensorsParts layOutSafeTensors(const std::map<std::string, HostArray> &tensors);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CORE_SAFETENSORS_H
