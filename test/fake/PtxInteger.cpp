//===- PtxInteger.cpp - PTX's integers, bits and predicates ---------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#include "test/fake/PtxNumbers.h"

#include <algorithm>
#include <utility>

namespace gridloom::fake {

namespace {

/// Two 16-bit integers at once.
template <typename T, typename Op> PtxCompute inPairs(Op) {
  return lanewise<Pair<T>, Pair<T>, Pair<T>>([](Pair<T> x, Pair<T> y) -> Pair<T> {
    return {static_cast<T>(Op()(x.low, y.low)), static_cast<T>(Op()(x.high, y.high))};
  });
}

template <typename T> PtxCompute selectPacked(PtxName name) {
  switch (name) {
  case PtxName::Add:
    return inPairs<T>([](T x, T y) { return x + y; });
  case PtxName::Min:
    return inPairs<T>([](T x, T y) { return std::min(x, y); });
  case PtxName::Max:
    return inPairs<T>([](T x, T y) { return std::max(x, y); });
  default:
    return nullptr;
  }
}

template <typename T> T multiply(T x, T y, bool high) {
  using L = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;
  L product = static_cast<L>(x) * static_cast<L>(y);
  return static_cast<T>(high ? product >> (8 * sizeof(T)) : product);
}

/// mul, mad: .wide gives a result of twice the width, .hi its upper half.
template <typename T> PtxCompute selectProduct(const PtxInstruction &i) {
  bool adds = i.name == PtxName::Mad;
  if (i.has("wide")) {
    using L = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
    if constexpr (sizeof(T) == 8)
      return nullptr;
    else if (adds)
      return lanewise<uint64_t, T, T, uint64_t>([](T x, T y, uint64_t z) {
        return static_cast<uint64_t>(static_cast<L>(x) * static_cast<L>(y)) + z;
      });
    else
      return lanewise<uint64_t, T, T>(
          [](T x, T y) { return static_cast<uint64_t>(static_cast<L>(x) * static_cast<L>(y)); });
  }
  using U = std::make_unsigned_t<T>;
  if (!i.has("hi") && !i.has("lo"))
    return nullptr;
  if (adds && i.has("hi"))
    return lanewise<T, T, T, T>([](T x, T y, T z) {
      return static_cast<T>(static_cast<U>(multiply<T>(x, y, true)) + static_cast<U>(z));
    });
  if (adds)
    return lanewise<T, T, T, T>([](T x, T y, T z) {
      return static_cast<T>(static_cast<U>(multiply<T>(x, y, false)) + static_cast<U>(z));
    });
  if (i.has("hi"))
    return lanewise<T, T, T>([](T x, T y) { return multiply<T>(x, y, true); });
  return lanewise<T, T, T>([](T x, T y) { return multiply<T>(x, y, false); });
}

/// Division by zero is unspecified: here all bits are set, as on hardware.
template <typename T> T divide(T x, T y) {
  if (y == 0)
    return static_cast<T>(~T(0));
  if (std::is_signed_v<T> && y == static_cast<T>(-1))
    return static_cast<T>(-static_cast<std::make_unsigned_t<T>>(x));
  return static_cast<T>(x / y);
}

/// Shifts by the width or more give 0, or the sign.
template <typename T> T shiftRight(T x, uint32_t by) {
  constexpr uint32_t bits = 8 * sizeof(T);
  return by < bits ? static_cast<T>(x >> by) : static_cast<T>(x < 0 ? -1 : 0);
}
template <typename T> T shiftLeft(T x, uint32_t by) {
  return by < 8 * sizeof(T) ? static_cast<T>(static_cast<std::make_unsigned_t<T>>(x) << by) : T(0);
}

template <typename T> T extractField(T x, uint32_t at, uint32_t length) {
  constexpr uint32_t bits = 8 * sizeof(T);
  at &= 255;
  length &= 255;
  if (length == 0)
    return 0;
  using U = std::make_unsigned_t<T>;
  bool sign = std::is_signed_v<T> && (static_cast<U>(x) >> std::min(at + length - 1, bits - 1) & 1);
  U field = at < bits ? static_cast<U>(static_cast<U>(x) >> at) : U(0);
  uint32_t kept = at < bits ? std::min(length, bits - at) : 0;
  U mask = kept >= bits ? static_cast<U>(~U(0)) : static_cast<U>((U(1) << kept) - 1);
  return static_cast<T>(sign ? field | static_cast<U>(~mask) : field & mask);
}

template <typename U> U insertField(U from, U into, uint32_t at, uint32_t length) {
  constexpr uint32_t bits = 8 * sizeof(U);
  at &= 255;
  length &= 255;
  if (at >= bits || length == 0)
    return into;
  length = std::min(length, bits - at);
  U mask = static_cast<U>(length >= bits ? ~U(0) : ((U(1) << length) - 1) << at);
  return static_cast<U>((into & ~mask) | (from << at & mask));
}

uint32_t permute(uint32_t x, uint32_t y, uint32_t selector) {
  uint64_t bytes = uint64_t(y) << 32 | x;
  uint32_t result = 0;
  for (unsigned n = 0; n < 4; ++n) {
    uint32_t choice = selector >> (4 * n) & 15;
    auto byte = static_cast<uint8_t>(bytes >> (8 * (choice & 7)));
    if (choice & 8)
      byte = byte & 0x80 ? 0xff : 0;
    result |= uint32_t(byte) << (8 * n);
  }
  return result;
}

/// lop3: bit n of `table` is the result where the bits of (x, y, z) form the number n.
uint32_t lookUp(uint32_t x, uint32_t y, uint32_t z, uint32_t table) {
  uint32_t result = 0;
  for (unsigned n = 0; n < 8; ++n)
    if (table >> n & 1)
      result |= (n & 4 ? x : ~x) & (n & 2 ? y : ~y) & (n & 1 ? z : ~z);
  return result;
}

uint32_t funnel(const PtxInstruction &i, uint32_t low, uint32_t high, uint32_t by) {
  by = i.has("clamp") ? std::min(by, 32u) : by & 31;
  uint64_t both = uint64_t(high) << 32 | low;
  return static_cast<uint32_t>(i.has("l") ? both << by >> 32 : both >> by);
}

template <typename T> PtxCompute selectArithmetic(const PtxInstruction &i) {
  using U = std::make_unsigned_t<T>;
  switch (i.name) {
  case PtxName::Add:
    if (i.saturate)
      return !std::is_same_v<T, int32_t> ? nullptr : lanewise<T, T, T>([](T x, T y) {
        return static_cast<T>(std::clamp<int64_t>(int64_t(x) + int64_t(y), INT32_MIN, INT32_MAX));
      });
    return lanewise<T, T, T>(
        [](T x, T y) { return static_cast<T>(static_cast<U>(x) + static_cast<U>(y)); });
  case PtxName::Sub:
    if (i.saturate)
      return !std::is_same_v<T, int32_t> ? nullptr : lanewise<T, T, T>([](T x, T y) {
        return static_cast<T>(std::clamp<int64_t>(int64_t(x) - int64_t(y), INT32_MIN, INT32_MAX));
      });
    return lanewise<T, T, T>(
        [](T x, T y) { return static_cast<T>(static_cast<U>(x) - static_cast<U>(y)); });
  case PtxName::Mul:
  case PtxName::Mad:
    return selectProduct<T>(i);
  case PtxName::Div:
    return lanewise<T, T, T>([](T x, T y) { return divide<T>(x, y); });
  case PtxName::Rem:
    return lanewise<T, T, T>(
        [](T x, T y) { return y == 0 ? x : static_cast<T>(U(x) - U(U(divide<T>(x, y)) * U(y))); });
  case PtxName::Min:
    return lanewise<T, T, T>([](T x, T y) { return std::min(x, y); });
  case PtxName::Max:
    return lanewise<T, T, T>([](T x, T y) { return std::max(x, y); });
  case PtxName::Abs:
    return lanewise<T, T>([](T x) { return static_cast<T>(x < 0 ? U(0) - U(x) : U(x)); });
  case PtxName::Neg:
    return lanewise<T, T>([](T x) { return static_cast<T>(U(0) - U(x)); });
  case PtxName::Sad:
    return lanewise<T, T, T, T>(
        [](T x, T y, T z) { return static_cast<T>(U(z) + (x < y ? U(y) - U(x) : U(x) - U(y))); });
  case PtxName::Shr:
    return lanewise<T, T, uint32_t>([](T x, uint32_t by) { return shiftRight<T>(x, by); });
  case PtxName::Bfe:
    return lanewise<T, T, uint32_t, uint32_t>(
        [](T x, uint32_t at, uint32_t length) { return extractField<T>(x, at, length); });
  case PtxName::Szext:
    return lanewise<T, T, uint32_t>([](const PtxInstruction &i, T x, uint32_t length) {
      uint32_t kept = i.has("clamp") ? std::min(length, 32u) : length & 31;
      return extractField<T>(x, 0, kept);
    });
  default:
    return nullptr;
  }
}

template <typename U> PtxCompute selectBits(const PtxInstruction &i) {
  switch (i.name) {
  case PtxName::Not:
    return lanewise<U, U>([](U x) { return static_cast<U>(~x); });
  case PtxName::Cnot:
    return lanewise<U, U>([](U x) { return static_cast<U>(x == 0); });
  case PtxName::And:
    return lanewise<U, U, U>([](U x, U y) { return static_cast<U>(x & y); });
  case PtxName::Or:
    return lanewise<U, U, U>([](U x, U y) { return static_cast<U>(x | y); });
  case PtxName::Xor:
    return lanewise<U, U, U>([](U x, U y) { return static_cast<U>(x ^ y); });
  case PtxName::Shl:
    return lanewise<U, U, uint32_t>([](U x, uint32_t by) { return shiftLeft<U>(x, by); });
  case PtxName::Clz:
    return lanewise<uint32_t, U>([](U x) { return static_cast<uint32_t>(std::countl_zero(x)); });
  case PtxName::Popc:
    return lanewise<uint32_t, U>([](U x) { return static_cast<uint32_t>(std::popcount(x)); });
  case PtxName::Bfi:
    return lanewise<U, U, U, uint32_t, uint32_t>([](U from, U into, uint32_t at, uint32_t length) {
      return insertField<U>(from, into, at, length);
    });
  default:
    return nullptr;
  }
}

PtxCompute selectWord(const PtxInstruction &i) {
  switch (i.name) {
  case PtxName::Prmt:
    return i.modifiers.empty() ? lanewise<uint32_t, uint32_t, uint32_t, uint32_t>(
                                     [](uint32_t x, uint32_t y, uint32_t selector) {
                                       return permute(x, y, selector);
                                     })
                               : nullptr;
  case PtxName::Lop3:
    return lanewise<uint32_t, uint32_t, uint32_t, uint32_t, uint32_t>(
        [](uint32_t x, uint32_t y, uint32_t z, uint32_t table) { return lookUp(x, y, z, table); });
  case PtxName::Shf:
    return lanewise<uint32_t, uint32_t, uint32_t, uint32_t>(
        [](const PtxInstruction &i, uint32_t low, uint32_t high, uint32_t by) {
          return funnel(i, low, high, by);
        });
  case PtxName::Bmsk:
    return lanewise<uint32_t, uint32_t, uint32_t>(
        [](const PtxInstruction &i, uint32_t at, uint32_t length) {
          bool clamps = i.has("clamp");
          at = clamps ? std::min(at, 32u) : at & 31;
          length = clamps ? std::min(length, 32u) : length & 31;
          return static_cast<uint32_t>(((uint64_t(1) << length) - 1) << at);
        });
  default:
    return selectBits<uint32_t>(i);
  }
}

PtxCompute selectPredicate(const PtxInstruction &i) {
  switch (i.name) {
  case PtxName::Not:
    return lanewise<bool, uint8_t>([](uint8_t x) { return x == 0; });
  case PtxName::And:
    return lanewise<bool, uint8_t, uint8_t>([](uint8_t x, uint8_t y) { return x && y; });
  case PtxName::Or:
    return lanewise<bool, uint8_t, uint8_t>([](uint8_t x, uint8_t y) { return x || y; });
  case PtxName::Xor:
    return lanewise<bool, uint8_t, uint8_t>([](uint8_t x, uint8_t y) { return !x != !y; });
  default:
    return nullptr;
  }
}

/// add, sub and mad with a carry in, which is the last source, or a carry out, the last result.
template <typename U> void carry(const PtxInstruction &i, uint64_t *file, uint32_t active) {
  using L = unsigned __int128;
  bool goesOut = i.has("cc"), multiplies = i.name == PtxName::Mad, high = i.has("hi");
  forLanes(active, [&](unsigned lane) {
    auto source = [&](unsigned n) { return decode<U>(file[size_t(32) * i.sources[n] + lane]); };
    L in = i.carriesIn ? source(i.numSources - 1U) & 1 : 0;
    L sum = 0;
    if (multiplies)
      sum = L(multiply<U>(source(0), source(1), high)) + source(2) + in;
    else if (i.name == PtxName::Add)
      sum = L(source(0)) + source(1) + in;
    else
      sum = L(source(0)) - source(1) - in;
    file[size_t(32) * i.results[0] + lane] = static_cast<U>(sum);
    if (goesOut)
      file[size_t(32) * i.results[1] + lane] = static_cast<uint64_t>(sum >> (8 * sizeof(U))) & 1;
  });
}

} // namespace

PtxCompute selectCarrying(const PtxInstruction &i) {
  bool isKnown = i.name == PtxName::Add || i.name == PtxName::Sub ||
                 (i.name == PtxName::Mad && i.has("hi") != i.has("lo"));
  // A signed product has another upper half.
  bool isSigned = i.type == PtxType::S32 || i.type == PtxType::S64;
  if (!isKnown || (isSigned && i.has("hi")))
    return nullptr;
  return i.type == PtxType::U32 || i.type == PtxType::S32   ? carry<uint32_t>
         : i.type == PtxType::U64 || i.type == PtxType::S64 ? carry<uint64_t>
                                                            : nullptr;
}

PtxCompute selectInteger(const PtxInstruction &i) {
  PtxCompute found = nullptr;
  switch (i.type) {
  case PtxType::Pred:
    return selectPredicate(i);
  case PtxType::U16:
    found = selectBits<uint16_t>(i);
    return found ? found : selectArithmetic<uint16_t>(i);
  case PtxType::U32:
    found = selectWord(i);
    return found ? found : selectArithmetic<uint32_t>(i);
  case PtxType::U64:
    found = selectBits<uint64_t>(i);
    return found ? found : selectArithmetic<uint64_t>(i);
  case PtxType::S16:
    return selectArithmetic<int16_t>(i);
  case PtxType::S32:
    return selectArithmetic<int32_t>(i);
  case PtxType::S64:
    return selectArithmetic<int64_t>(i);
  case PtxType::U16x2:
    return selectPacked<uint16_t>(i.name);
  case PtxType::S16x2:
    return selectPacked<int16_t>(i.name);
  default:
    return nullptr;
  }
}

} // namespace gridloom::fake
