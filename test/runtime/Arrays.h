//===- Arrays.h - arrays of numbers in tests --------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_TEST_RUNTIME_ARRAYS_H
#define GRIDLOOM_TEST_RUNTIME_ARRAYS_H

#include "runtime/core/HostArray.h"

#include <numeric>
#include <vector>

namespace gridloom::test {

/// first, first + 1, ...
inline std::vector<float> iota(int64_t count, float first = 1) {
  std::vector<float> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), first);
  return values;
}

/// A view of `values`, which must outlive it, in this shape.
inline rt::HostArray view(const std::vector<float> &values, std::vector<int64_t> shape) {
  return rt::HostArray::borrow(rt::DataType::F32, std::move(shape), values.data());
}

inline std::vector<float> toVector(const rt::HostArray &array) {
  return {array.as<float>().begin(), array.as<float>().end()};
}

} // namespace gridloom::test

#endif // GRIDLOOM_TEST_RUNTIME_ARRAYS_H
