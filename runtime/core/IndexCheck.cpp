//===- IndexCheck.cpp - range checks of indices and labels ----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/core/IndexCheck.h"

#include "runtime/core/Error.h"

#include <limits>

using namespace gridloom::rt;

/// Saturating addition of a non-negative `offset`.
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

/// A label as a 64-bit integer, which is how the loss compares it.
static int64_t getLabel(const HostArray &values, size_t index) {
  switch (values.getType()) {
  case DataType::I8:
    return values.as<int8_t>()[index];
  case DataType::I16:
    return values.as<int16_t>()[index];
  case DataType::I32:
    return values.as<int32_t>()[index];
  case DataType::U8:
    return values.as<uint8_t>()[index];
  case DataType::U16:
    return values.as<uint16_t>()[index];
  case DataType::U32:
    return values.as<uint32_t>()[index];
  case DataType::U64:
    return int64_t(values.as<uint64_t>()[index]);
  default:
    return values.as<int64_t>()[index];
  }
}

static WrongLabel describe(const LabelUse &use, int64_t label, int64_t row) {
  std::string ignores =
      use.ignored ? " and ignores " + std::to_string(*use.ignored)
                  : "; give it ignore_index=LABEL if rows of this label are to count for nothing";
  return {row, "label " + std::to_string(label),
          "loss '" + use.loss + "' has the " + std::to_string(use.classes) + " classes 0 to " +
              std::to_string(use.classes - 1) + ignores};
}

std::optional<WrongLabel> gridloom::rt::findWrongLabel(const Argument &input,
                                                       const HostArray &values) {
  auto count = size_t(values.getNumElements());
  size_t rows = values.getShape().empty() ? 1 : size_t(values.getShape()[0]);
  for (const LabelUse &use : input.labels)
    for (size_t i = 0; i < count; ++i) {
      int64_t label = getLabel(values, i);
      if (label != use.ignored && (label < 0 || label >= use.classes))
        return describe(use, label, int64_t(i / (count / rows)));
    }
  return std::nullopt;
}

void gridloom::rt::checkIndices(const Argument &input, const HostArray &values) {
  if (std::optional<WrongLabel> wrong = findWrongLabel(input, values))
    throw Error(ErrorCode::InvalidArgument, "input '" + input.name + "' holds " + wrong->holds +
                                                " in row " + std::to_string(wrong->row) +
                                                " of the batch; " + wrong->why);
  if (!input.indices)
    return;
  if (values.getType() == DataType::I64)
    check(input, *input.indices, values.as<int64_t>());
  else if (values.getType() == DataType::I32)
    check(input, *input.indices, values.as<int32_t>());
}
