//===- PtxNumbers.h - PTX's types on the host -------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_TEST_FAKE_PTXNUMBERS_H
#define GRIDLOOM_TEST_FAKE_PTXNUMBERS_H

#include "test/fake/PtxModule.h"

#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

namespace gridloom::fake {

/// 16-bit floats, as bits.
struct Half {
  uint16_t bits = 0;
};
struct Brain {
  uint16_t bits = 0;
};
/// Two 16-bit floats or integers in one register.
template <typename T> struct Pair {
  T low, high;
};

/// `value` in a format with `digits` bits of significand and least exponent `least` (of the last
/// bit of subnormals), rounded by `mode` as in PtxInstruction::round. Values above `largest` become
/// infinite.
template <typename T> T roundTo(T value, int digits, int least, T largest, char mode) {
  if (value == 0 || !std::isfinite(value))
    return value;
  int exponent = std::max(std::ilogb(value) - digits + 1, least);
  T scaled = std::ldexp(value, -exponent); // exact: both have room
  T whole = mode == 'z'   ? std::trunc(scaled)
            : mode == 'm' ? std::floor(scaled)
            : mode == 'p' ? std::ceil(scaled)
                          : std::nearbyint(scaled);
  T rounded = std::copysign(std::ldexp(whole, exponent), value);
  if (std::fabs(rounded) <= largest)
    return rounded;
  bool stays = mode == 'z' || (mode == 'm' && value > 0) || (mode == 'p' && value < 0);
  return std::copysign(stays ? largest : std::numeric_limits<T>::infinity(), value);
}

inline float toFloat(Half value) { return static_cast<float>(std::bit_cast<_Float16>(value.bits)); }
inline float toFloat(Brain value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}
inline float toFloat(float value) { return value; }
inline double toFloat(double value) { return value; }

/// `value` rounded once to `T`, of any wider type.
template <typename T, typename W> T fromFloat(W value, char mode = 'n') {
  if constexpr (std::is_same_v<T, Half>) {
    if (std::is_same_v<W, float> && mode == 'n')
      return {std::bit_cast<uint16_t>(static_cast<_Float16>(value))};
    constexpr W largest = 65504;
    auto narrow = static_cast<float>(roundTo<W>(value, 11, -24, largest, mode));
    return {std::bit_cast<uint16_t>(static_cast<_Float16>(narrow))};
  } else if constexpr (std::is_same_v<T, Brain>) {
    if (std::isnan(value))
      return {0x7fff};
    if constexpr (std::is_same_v<W, float>)
      if (mode == 'n') {
        auto bits = std::bit_cast<uint32_t>(value);
        return {static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
      }
    constexpr W largest = static_cast<W>(0x1.fep127);
    auto narrow = static_cast<float>(roundTo<W>(value, 8, -133, largest, mode));
    return {static_cast<uint16_t>(std::bit_cast<uint32_t>(narrow) >> 16)};
  } else if constexpr (std::is_same_v<T, float> && !std::is_same_v<W, float>) {
    if (mode == 'n')
      return static_cast<float>(value);
    constexpr W largest = static_cast<W>(std::numeric_limits<float>::max());
    return static_cast<float>(roundTo<W>(value, 24, -149, largest, mode));
  } else {
    return static_cast<T>(value);
  }
}

template <typename T>
inline constexpr bool isFloat =
    std::is_floating_point_v<T> || std::is_same_v<T, Half> || std::is_same_v<T, Brain>;
template <typename T> struct IsPair : std::false_type {};
template <typename T> struct IsPair<Pair<T>> : std::true_type {};

template <typename T> T decode(uint64_t bits) {
  if constexpr (sizeof(T) == 8)
    return std::bit_cast<T>(bits);
  else if constexpr (sizeof(T) == 4)
    return std::bit_cast<T>(static_cast<uint32_t>(bits));
  else if constexpr (sizeof(T) == 2)
    return std::bit_cast<T>(static_cast<uint16_t>(bits));
  else
    return std::bit_cast<T>(static_cast<uint8_t>(bits));
}

/// Signed integers are sign-extended to the register, as by cvt and ld for wider registers.
template <typename T> uint64_t encode(T value) {
  if constexpr (std::is_same_v<T, bool>)
    return value;
  else if constexpr (std::is_integral_v<T>)
    return std::is_signed_v<T> ? static_cast<uint64_t>(static_cast<int64_t>(value))
                               : static_cast<uint64_t>(value);
  else if constexpr (sizeof(T) == 8)
    return std::bit_cast<uint64_t>(value);
  else if constexpr (sizeof(T) == 4)
    return std::bit_cast<uint32_t>(value);
  else
    return std::bit_cast<uint16_t>(value);
}

template <typename T> T flushed(T value) {
  if constexpr (std::is_floating_point_v<T>)
    if (std::fpclassify(value) == FP_SUBNORMAL)
      return std::copysign(T(0), value);
  return value;
}

template <typename Visit> void forLanes(uint32_t active, Visit visit) {
  if (active == ~uint32_t(0)) {
    for (unsigned lane = 0; lane < 32; ++lane)
      visit(lane);
    return;
  }
  for (; active; active &= active - 1)
    visit(static_cast<unsigned>(std::countr_zero(active)));
}

/// A function giving `R` from operands `S...`, applied lane by lane. F is a lambda without
/// captures; it may take the instruction as its first argument.
template <typename R, typename... S, typename F> PtxCompute lanewise(F) {
  static_assert(std::is_empty_v<F>);
  return [](const PtxInstruction &i, uint64_t *file, uint32_t active) {
    uint64_t *to = file + size_t(32) * i.results[0];
    const uint64_t *from[sizeof...(S)];
    for (size_t n = 0; n < sizeof...(S); ++n)
      from[n] = file + size_t(32) * i.sources[n];
    forLanes(active, [&](unsigned lane) {
      [&]<size_t... N>(std::index_sequence<N...>) {
        if constexpr (std::is_invocable_v<F, const PtxInstruction &, S...>)
          to[lane] = encode<R>(F()(i, decode<S>(from[N][lane])...));
        else
          to[lane] = encode<R>(F()(decode<S>(from[N][lane])...));
      }(std::index_sequence_for<S...>());
    });
  };
}

/// While an object lives, the host rounds as `mode`. The host's compiler must not move computations
/// across it: files that use it are built with -frounding-math.
class RoundingScope {
public:
  explicit RoundingScope(char mode) : isDirected(mode && mode != 'n') {
    if (isDirected)
      std::fesetround(mode == 'z' ? FE_TOWARDZERO : mode == 'm' ? FE_DOWNWARD : FE_UPWARD);
  }
  ~RoundingScope() {
    if (isDirected)
      std::fesetround(FE_TONEAREST);
  }
  RoundingScope(const RoundingScope &) = delete;
  RoundingScope &operator=(const RoundingScope &) = delete;

private:
  bool isDirected;
};

} // namespace gridloom::fake

#endif // GRIDLOOM_TEST_FAKE_PTXNUMBERS_H
