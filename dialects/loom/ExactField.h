//===- ExactField.h - exact arithmetic in place of floats -------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Floating-point sums depend on their order, so a split program and an unsplit one agree only
// within a tolerance. In exact mode every float is an element of the field of integers modulo p =
// 2^61 - 1: sums and products are exact and do not depend on order, and division and powers of two
// behave as for rationals (0.125 * 8 = 1). Other functions (exp, erf, ...) are fixed hashes. Two
// programs that agree bit by bit compute the same expression, apart from rounding.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_DIALECTS_LOOM_EXACTFIELD_H
#define GRIDLOOM_DIALECTS_LOOM_EXACTFIELD_H

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace gridloom::loom {

/// An element of the field, an infinity, or NaN. `word` is in [-(p-1)/2, (p-1)/2], so small
/// integers are themselves and compare as such; the order of other values is fixed but meaningless.
/// NaN marks padding: every operation on it gives NaN.
struct Exact {
  int64_t word = 0;

  static constexpr int64_t kPrime = (int64_t(1) << 61) - 1;
  static constexpr int64_t kNaN = std::numeric_limits<int64_t>::min();
  static constexpr int64_t kNegativeInfinity = kNaN + 1;
  static constexpr int64_t kInfinity = std::numeric_limits<int64_t>::max();

  static constexpr Exact nan() { return {kNaN}; }
  static constexpr Exact infinity() { return {kInfinity}; }
  bool isNaN() const { return word == kNaN; }
  bool isInfinite() const { return word == kInfinity || word == kNegativeInfinity; }
  bool isFinite() const { return !isNaN() && !isInfinite(); }

  /// The representative of `value` modulo p.
  static Exact fromWide(__int128 value) {
    int64_t rest = static_cast<int64_t>(value % kPrime);
    if (rest > kPrime / 2)
      rest -= kPrime;
    else if (rest < -(kPrime / 2))
      rest += kPrime;
    return {rest};
  }
  static Exact fromInt(int64_t value) { return fromWide(value); }

  /// The rational number that a float is: mantissa times a power of two, invertible modulo p.
  static Exact fromDouble(double value) {
    if (std::isnan(value))
      return nan();
    if (std::isinf(value))
      return {value > 0 ? kInfinity : kNegativeInfinity};
    int exponent = 0;
    auto mantissa = static_cast<int64_t>(std::ldexp(std::frexp(value, &exponent), 53));
    // 2^61 = 1, so exponents count modulo 61.
    int shift = ((exponent - 53) % 61 + 61) % 61;
    return fromWide(static_cast<__int128>(mantissa) << shift);
  }

  /// A fixed pseudo-random element for (function, x, y).
  static Exact hash(uint64_t function, Exact x, Exact y = {0}) {
    auto mix = [](uint64_t value) {
      value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
      value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
      return value ^ (value >> 31);
    };
    uint64_t state = mix(function + 0x9e3779b97f4a7c15u);
    state = mix(state ^ std::bit_cast<uint64_t>(x.word));
    state = mix(state + std::bit_cast<uint64_t>(y.word));
    return fromInt(static_cast<int64_t>(state >> 3));
  }

  /// 1 / x: +infinity for 0, 0 for infinities.
  Exact inverse() const {
    if (isNaN())
      return *this;
    if (isInfinite())
      return {0};
    if (word == 0)
      return infinity();
    // Fermat: x^(p-2) x = 1.
    return power(kPrime - 2);
  }
  Exact power(uint64_t exponent) const {
    Exact result{1}, base = *this;
    for (; exponent != 0; exponent >>= 1) {
      if (exponent & 1)
        result = result * base;
      base = base * base;
    }
    return result;
  }

  friend Exact operator+(Exact x, Exact y) {
    if (x.isFinite() && y.isFinite())
      return fromWide(static_cast<__int128>(x.word) + y.word);
    if (x.isNaN() || y.isNaN() || (x.isInfinite() && y.isInfinite() && x.word != y.word))
      return nan();
    return x.isInfinite() ? x : y;
  }
  friend Exact operator-(Exact x) {
    if (x.isNaN())
      return x;
    return x.isInfinite() ? Exact{x.word == kInfinity ? kNegativeInfinity : kInfinity}
                          : Exact{-x.word};
  }
  friend Exact operator-(Exact x, Exact y) { return x + -y; }
  friend Exact operator*(Exact x, Exact y) {
    if (x.isFinite() && y.isFinite())
      return fromWide(static_cast<__int128>(x.word) * y.word);
    if (x.isNaN() || y.isNaN() || x.word == 0 || y.word == 0)
      return nan();
    bool negative = (x.word == kNegativeInfinity) != (y.word == kNegativeInfinity);
    return {negative ? kNegativeInfinity : kInfinity};
  }
  friend Exact operator/(Exact x, Exact y) { return x * y.inverse(); }
  friend bool operator==(Exact x, Exact y) { return !x.isNaN() && x.word == y.word; }
  friend bool operator<(Exact x, Exact y) { return !x.isNaN() && !y.isNaN() && x.word < y.word; }
};

} // namespace gridloom::loom

#endif // GRIDLOOM_DIALECTS_LOOM_EXACTFIELD_H
