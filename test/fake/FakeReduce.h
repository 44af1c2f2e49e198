//===- FakeReduce.h - NCCL's element types on the host ----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_TEST_FAKE_FAKEREDUCE_H
#define GRIDLOOM_TEST_FAKE_FAKEREDUCE_H

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace gridloom::fake {

struct Bfloat16 {
  uint16_t bits;
  operator float() const {
    uint32_t wide = uint32_t(bits) << 16;
    float value;
    std::memcpy(&value, &wide, sizeof(value));
    return value;
  }
  static Bfloat16 round(float value) {
    uint32_t wide;
    std::memcpy(&wide, &value, sizeof(wide));
    return {static_cast<uint16_t>((wide + 0x7fff + (wide >> 16 & 1)) >> 16)};
  }
};

/// Bytes per element of ncclDataType_t `type`; 0 if it is unknown.
inline size_t getTypeBytes(int type) {
  constexpr size_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return type >= 0 && type < 10 ? bytes[type] : 0;
}

/// ncclRedOp_t `operation` of two values. For max and min of a number and NaN the result is the
/// number, as with NCCL's fmaxf and fminf.
template <typename T> T reduceTwo(T x, T y, int operation) {
  if (operation >= 2 && x != x)
    return y;
  if (operation >= 2 && y != y)
    return x;
  switch (operation) {
  case 0:
    return static_cast<T>(x + y);
  case 1:
    return static_cast<T>(x * y);
  case 2:
    return std::max(x, y);
  default:
    return std::min(x, y);
  }
}

template <typename T>
void reduceElements(std::byte *to, const std::byte *from, size_t count, int operation) {
  auto *x = reinterpret_cast<T *>(to);
  auto *y = reinterpret_cast<const T *>(from);
  for (size_t i = 0; i < count; ++i)
    x[i] = reduceTwo<T>(x[i], y[i], operation);
}

template <>
inline void reduceElements<Bfloat16>(std::byte *to, const std::byte *from, size_t count,
                                     int operation) {
  auto *x = reinterpret_cast<Bfloat16 *>(to);
  auto *y = reinterpret_cast<const Bfloat16 *>(from);
  for (size_t i = 0; i < count; ++i)
    x[i] = Bfloat16::round(reduceTwo<float>(x[i], y[i], operation));
}

/// to[i] = operation(to[i], from[i]) for `count` elements of ncclDataType_t `type`.
inline void reduceInto(std::byte *to, const std::byte *from, size_t count, int type,
                       int operation) {
  using Function = void (*)(std::byte *, const std::byte *, size_t, int);
  constexpr Function functions[] = {reduceElements<int8_t>,   reduceElements<uint8_t>,
                                    reduceElements<int32_t>,  reduceElements<uint32_t>,
                                    reduceElements<int64_t>,  reduceElements<uint64_t>,
                                    reduceElements<_Float16>, reduceElements<float>,
                                    reduceElements<double>,   reduceElements<Bfloat16>};
  functions[type](to, from, count, operation);
}

} // namespace gridloom::fake

#endif // GRIDLOOM_TEST_FAKE_FAKEREDUCE_H
