//===- IndexCheck.cpp - indices that are out of range ---------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/core/IndexCheck.h"

#include "runtime/core/Error.h"

using namespace gridloom::rt;

template <typename T>
static void check(const Argument &input, const IndexUse &use, std::span<const T> values) {
  for (T value : values) {
    int64_t least = int64_t(value) + use.first, most = int64_t(value) + use.last;
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
