//===- NarrowFloat.h - 16-bit floats on the host ----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Conversions without branches on the values where it can be helped, so that compilers make vectors
// of loops over them, and without instructions that a generic x86-64 lacks.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CORE_NARROWFLOAT_H
#define GRIDLOOM_RUNTIME_CORE_NARROWFLOAT_H

#include <bit>
#include <cstdint>

namespace gridloom::rt {

/// f16: a sign, 5 bits of exponent, 10 of mantissa.
struct Half {
  using Storage = uint16_t;
  using Accumulator = float;

  static float load(uint16_t half) {
    uint32_t magnitude = uint32_t(half & 0x7fff) << 13, sign = uint32_t(half & 0x8000) << 16;
    // The exponents' biases differ by 112; multiplying also makes normal what was not.
    uint32_t finite = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f);
    uint32_t special = magnitude | 0x7f800000;
    return std::bit_cast<float>(sign | (magnitude >= 0x0f800000 ? special : finite));
  }

  /// To nearest, ties to even; what rounds to more than 65504 becomes infinity.
  static uint16_t store(float value) {
    uint32_t bits = std::bit_cast<uint32_t>(value), magnitude = bits & 0x7fffffff;
    // 0.5 has the last place of the smallest f16: adding it rounds there.
    uint32_t tiny = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000;
    uint32_t normal = (magnitude - 0x38000000 + 0xfff + ((magnitude >> 13) & 1)) >> 13;
    uint32_t special = magnitude > 0x7f800000 ? 0x7e00 : 0x7c00;
    uint32_t half = magnitude < 0x38800000 ? tiny : magnitude < 0x47800000 ? normal : special;
    return uint16_t(half | ((bits >> 16) & 0x8000));
  }
};

/// bf16: the upper half of an f32.
struct BFloat {
  using Storage = uint16_t;
  using Accumulator = float;

  static float load(uint16_t value) { return std::bit_cast<float>(uint32_t(value) << 16); }

  /// To nearest, ties to even.
  static uint16_t store(float value) {
    uint32_t bits = std::bit_cast<uint32_t>(value);
    uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    // A NaN stays one when the low half held its only set bits.
    return uint16_t((bits & 0x7fffffff) > 0x7f800000 ? (bits >> 16) | 0x40 : rounded);
  }
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CORE_NARROWFLOAT_H
