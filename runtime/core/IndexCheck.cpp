//===- IndexCheck.cpp - indices that are out of range ---------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/core/IndexCheck.h"

#include "runtime/core/Error.h"

#include <limits>

using namespace gridloom::rt;

/// The sum, or the largest number where it is larger; `offset` is at least 0.
static int64_t addBounded(int64_t value, int64_t offset) {
  int64_t sum = 0;
  return __builtin_add_overflow(value, offset, &sum) ? std::numeric_limits<int64_t>::max() : sum;
}

template <typename T>
static void check(const Argument &input, const IndexUse &use, std::span<const T> values) {
  for (T value : values) {
    int64_t least = addBounded(value, use.first), most = addBounded(value, use.last);
    if (least >= -use.size && most < use.size)
      continue;
    std::string counted = use.last == 0 ? "" : ", from which it counts to " + std::to_string(most);
    throw Error(ErrorCode::InvalidArgument, "node '" + use.node + "': input '" + input.name +
                                                "' holds the index " + std::to_string(value) +
                                                counted + ", outside of a dimension of " +
                                                std::to_string(use.size));
  }
}

void gridloom::rt::checkIndices(const Argument &input, const HostArray &values) {
  if (!input.indices)
    return;
  if (values.getType() == DataType::I64)
    check(input, *input.indices, values.as<int64_t>());
  else if (values.getType() == DataType::I32)
    check(input, *input.indices, values.as<int32_t>());
}
