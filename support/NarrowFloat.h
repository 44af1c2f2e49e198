//===- NarrowFloat.h - 16- and 8-bit floats on the host ---------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Conversions with few branches on the values, so that compilers vectorise loops over them, and
// without instructions that a generic x86-64 lacks.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_SUPPORT_NARROWFLOAT_H
#define GRIDLOOM_SUPPORT_NARROWFLOAT_H

#include <bit>
#include <cstdint>

namespace gridloom {

/// f16: a sign, 5 bits of exponent, 10 of mantissa.
struct Half {
  using Storage = uint16_t;
  using Accumulator = float;

  static float load(uint16_t half) {
    uint32_t magnitude = uint32_t(half & 0x7fff) << 13, sign = uint32_t(half & 0x8000) << 16;
    // The exponents' biases differ by 112; multiplying also normalises subnormals.
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

/// The floats of 8 bits: a sign, an exponent biased by `bias`, `digits` of mantissa. With
/// `hasInfinity` they are as in IEEE 754; else the code above the largest number is a NaN or, with
/// `isUnsignedZero`, the code of -0 is the only one.
template <int digits, int bias, bool hasInfinity, bool isUnsignedZero> struct Float8 {
  using Storage = uint8_t;
  static constexpr uint32_t most = hasInfinity ? 0x7b : isUnsignedZero ? 0x7f : 0x7e;
  static constexpr uint32_t nan = hasInfinity ? 0x7e : isUnsignedZero ? 0x80 : 0x7f;

  static float load(uint8_t code) {
    uint32_t magnitude = code & 0x7f, sign = uint32_t(code & 0x80) << 24;
    float finite = std::bit_cast<float>(magnitude << (23 - digits)) * scale(127 - bias);
    if (isUnsignedZero ? code == 0x80 : magnitude > most + hasInfinity)
      return std::bit_cast<float>(sign | 0x7fc00000);
    if (hasInfinity && magnitude == most + 1)
      return std::bit_cast<float>(sign | 0x7f800000);
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(finite));
  }

  /// To nearest, ties to even; what rounds to more than the largest number becomes that number.
  static uint8_t store(float value) {
    uint32_t bits = std::bit_cast<uint32_t>(value), magnitude = bits & 0x7fffffff;
    uint32_t sign = (bits >> 24) & 0x80;
    if (magnitude > 0x7f800000)
      return uint8_t(nan | sign);
    // A number whose last place is that of the smallest element: adding it rounds there.
    float step = scale(24 - bias - digits);
    uint32_t tiny = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + step) -
                    std::bit_cast<uint32_t>(step);
    uint32_t half = (1u << (22 - digits)) - 1 + ((magnitude >> (23 - digits)) & 1);
    uint32_t normal = (magnitude + half - (uint32_t(127 - bias) << 23)) >> (23 - digits);
    uint32_t code = magnitude < uint32_t(128 - bias) << 23 ? tiny : normal;
    code = code < most ? code : most;
    return uint8_t(isUnsignedZero && code == 0 ? 0 : code | sign);
  }

private:
  /// 2 to the `exponent`.
  static constexpr float scale(int exponent) {
    return std::bit_cast<float>(uint32_t(127 + exponent) << 23);
  }
};

using Float8E4M3FN = Float8<3, 7, false, false>;
using Float8E5M2 = Float8<2, 15, true, false>;
using Float8E4M3FNUZ = Float8<3, 8, false, true>;
using Float8E5M2FNUZ = Float8<2, 16, false, true>;

} // namespace gridloom

#endif // GRIDLOOM_SUPPORT_NARROWFLOAT_H
