//===- Reduce.cpp - elementwise reduction on the host ---------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/comm/Reduce.h"

#include "runtime/core/Error.h"
#include "support/NarrowFloat.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

using namespace gridloom;
using namespace gridloom::rt;

std::string_view gridloom::rt::nameOf(Reduction reduction) {
  switch (reduction) {
  case Reduction::Sum:
    return "sum";
  case Reduction::Max:
    return "max";
  case Reduction::Min:
    return "min";
  case Reduction::Prod:
    return "prod";
  }
  return "?";
}

namespace {

/// How elements of a type are loaded, accumulated and stored.
template <typename T> struct Plain {
  using Storage = T;
  using Accumulator = T;
  static T load(T value) { return value; }
  static T store(T value) { return value; }
};

struct Boolean {
  using Storage = uint8_t;
  using Accumulator = uint8_t;
  static uint8_t load(uint8_t value) { return value != 0; }
  static uint8_t store(uint8_t value) { return value != 0; }
};

/// The type for wrap-around without undefined behaviour; narrow types would be promoted to int.
template <typename T> struct Wrapping {
  using type = std::conditional_t<(sizeof(T) < 4), uint32_t, std::make_unsigned_t<T>>;
};

template <Reduction R, typename T> T combine(T a, T b) {
  constexpr bool integer = std::is_integral_v<T>;
  if constexpr (R == Reduction::Sum && integer)
    return T(typename Wrapping<T>::type(a) + typename Wrapping<T>::type(b));
  else if constexpr (R == Reduction::Prod && integer)
    return T(typename Wrapping<T>::type(a) * typename Wrapping<T>::type(b));
  else if constexpr (R == Reduction::Sum)
    return a + b;
  else if constexpr (R == Reduction::Prod)
    return a * b;
  else if constexpr (integer)
    return R == Reduction::Max ? std::max(a, b) : std::min(a, b);
  else if constexpr (R == Reduction::Max)
    return (a > b || std::isnan(a)) ? a : b; // if b is NaN, the comparison fails and b is chosen
  else
    return (a < b || std::isnan(a)) ? a : b;
}

/// Works in blocks that fit the L1 cache; the accumulator is separate from `out`, which may be an
/// input that is still needed.
template <typename Element, Reduction R>
void reduceAs(void *out, std::span<const void *const> inputs, size_t count) {
  using Storage = typename Element::Storage;
  using Accumulator = typename Element::Accumulator;
  constexpr size_t block = 1024;
  Accumulator sum[block];
  auto *to = static_cast<Storage *>(out);
  for (size_t begin = 0; begin < count; begin += block) {
    size_t n = std::min(block, count - begin);
    auto *first = static_cast<const Storage *>(inputs[0]) + begin;
    for (size_t i = 0; i < n; ++i)
      sum[i] = Element::load(first[i]);
    for (const void *input : inputs.subspan(1)) {
      auto *from = static_cast<const Storage *>(input) + begin;
      for (size_t i = 0; i < n; ++i)
        sum[i] = combine<R>(sum[i], Element::load(from[i]));
    }
    for (size_t i = 0; i < n; ++i)
      to[begin + i] = Element::store(sum[i]);
  }
}

template <typename Element>
void reduceBy(void *out, std::span<const void *const> inputs, size_t count, Reduction reduction) {
  switch (reduction) {
  case Reduction::Sum:
    return reduceAs<Element, Reduction::Sum>(out, inputs, count);
  case Reduction::Max:
    return reduceAs<Element, Reduction::Max>(out, inputs, count);
  case Reduction::Min:
    return reduceAs<Element, Reduction::Min>(out, inputs, count);
  case Reduction::Prod:
    return reduceAs<Element, Reduction::Prod>(out, inputs, count);
  }
}

} // namespace

void gridloom::rt::reduceOnHost(void *out, std::span<const void *const> inputs, size_t count,
                                DataType type, Reduction reduction) {
  switch (type) {
  case DataType::F32:
    return reduceBy<Plain<float>>(out, inputs, count, reduction);
  case DataType::F64:
    return reduceBy<Plain<double>>(out, inputs, count, reduction);
  case DataType::F16:
    return reduceBy<Half>(out, inputs, count, reduction);
  case DataType::BF16:
    return reduceBy<BFloat>(out, inputs, count, reduction);
  case DataType::I8:
    return reduceBy<Plain<int8_t>>(out, inputs, count, reduction);
  case DataType::I16:
    return reduceBy<Plain<int16_t>>(out, inputs, count, reduction);
  case DataType::I32:
    return reduceBy<Plain<int32_t>>(out, inputs, count, reduction);
  case DataType::I64:
    return reduceBy<Plain<int64_t>>(out, inputs, count, reduction);
  case DataType::U8:
    return reduceBy<Plain<uint8_t>>(out, inputs, count, reduction);
  case DataType::U16:
    return reduceBy<Plain<uint16_t>>(out, inputs, count, reduction);
  case DataType::U32:
    return reduceBy<Plain<uint32_t>>(out, inputs, count, reduction);
  case DataType::U64:
    return reduceBy<Plain<uint64_t>>(out, inputs, count, reduction);
  case DataType::Bool:
    // Summing bytes would wrap to "false" at 256 ranks.
    if (reduction == Reduction::Sum)
      reduction = Reduction::Max;
    return reduceBy<Boolean>(out, inputs, count, reduction);
  case DataType::F8E4M3FN:
  case DataType::F8E5M2:
  case DataType::F8E4M3FNUZ:
  case DataType::F8E5M2FNUZ:
    throw Error(ErrorCode::InvalidArgument, "8-bit floats are not reduced (" +
                                                std::string(nameOf(type)) +
                                                "); convert them to f32 before");
  }
  throw Error(ErrorCode::InvalidArgument, "a reduction over an unknown element type");
}
