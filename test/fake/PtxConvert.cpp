//===- PtxConvert.cpp - PTX's moves, conversions and comparisons ----------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#include "test/fake/PtxNumbers.h"

namespace gridloom::fake {

namespace {

/// Calls visit(T()) with the host's type for `type`; returns its result, or null for other types.
template <typename Visit> PtxCompute visitType(PtxType type, Visit visit) {
  switch (type) {
  case PtxType::U8:
    return visit(uint8_t());
  case PtxType::U16:
    return visit(uint16_t());
  case PtxType::U32:
    return visit(uint32_t());
  case PtxType::U64:
    return visit(uint64_t());
  case PtxType::S8:
    return visit(int8_t());
  case PtxType::S16:
    return visit(int16_t());
  case PtxType::S32:
    return visit(int32_t());
  case PtxType::S64:
    return visit(int64_t());
  case PtxType::F16:
    return visit(Half());
  case PtxType::BF16:
    return visit(Brain());
  case PtxType::F32:
    return visit(float());
  case PtxType::F64:
    return visit(double());
  default:
    return nullptr;
  }
}

//===----------------------------------------------------------------------===//
// cvt
//===----------------------------------------------------------------------===//

template <typename W> W toIntegral(W value, char mode) {
  switch (mode) {
  case 'z':
    return std::trunc(value);
  case 'm':
    return std::floor(value);
  case 'p':
    return std::ceil(value);
  default:
    return std::nearbyint(value);
  }
}

/// Clamps values out of range. NaN gives 0 for up to 32 bits, else only the sign bit.
template <typename D, typename W> D clampToInteger(W value) {
  if (std::isnan(value)) {
    bool isWide = sizeof(W) == 8 || sizeof(D) == 8;
    return isWide ? static_cast<D>(std::make_unsigned_t<D>(1) << (8 * sizeof(D) - 1)) : D(0);
  }
  constexpr auto low = static_cast<long double>(std::numeric_limits<D>::min());
  constexpr auto high = static_cast<long double>(std::numeric_limits<D>::max());
  auto wide = static_cast<long double>(value);
  return wide <= low    ? std::numeric_limits<D>::min()
         : wide >= high ? std::numeric_limits<D>::max()
                        : static_cast<D>(wide);
}

template <typename D, typename S> D convertFloat(const PtxInstruction &i, S from) {
  auto value = toFloat(from);
  if (i.flush)
    value = flushed(value);
  if constexpr (std::is_integral_v<D>) {
    return clampToInteger<D>(toIntegral(value, i.round));
  } else {
    if (i.mode == 'i')
      value = toIntegral(value, i.round);
    if (i.saturate)
      value = std::isnan(value) ? decltype(value)(0)
                                : std::clamp(value, decltype(value)(0), decltype(value)(1));
    D result = fromFloat<D>(value, i.round ? i.round : 'n');
    if constexpr (std::is_same_v<D, float>)
      return i.flush ? flushed(result) : result;
    return result;
  }
}

template <typename D, typename S> D convertInteger(const PtxInstruction &i, S from) {
  if constexpr (std::is_integral_v<D>) {
    if (!i.saturate)
      return static_cast<D>(from);
    using Limits = std::numeric_limits<D>;
    return static_cast<D>(std::clamp(static_cast<__int128>(from),
                                     static_cast<__int128>(Limits::min()),
                                     static_cast<__int128>(Limits::max())));
  } else {
    // The 64 bits of significand hold every integer.
    auto value = static_cast<long double>(from);
    if constexpr (std::is_same_v<D, double>)
      return i.round == 'n' ? static_cast<double>(value)
                            : roundTo<long double>(value, 53, -1074,
                                                   std::numeric_limits<double>::max(), i.round);
    else
      return fromFloat<D>(value, i.round);
  }
}

/// cvt.rn.f16x2.f32 d, high, low
template <typename T> PtxCompute selectPacking(const PtxInstruction &i) {
  if (i.type != PtxType::F32 || i.numSources != 2)
    return nullptr;
  return lanewise<Pair<T>, float, float>(
      [](const PtxInstruction &i, float high, float low) -> Pair<T> {
        return {convertFloat<T>(i, low), convertFloat<T>(i, high)};
      });
}

/// Conversions that can lose precision must name their rounding.
bool isRoundingNamed(const PtxInstruction &i) {
  auto isFloating = [](PtxType type) {
    return type == PtxType::F16 || type == PtxType::BF16 || type == PtxType::F32 ||
           type == PtxType::F64;
  };
  bool from = isFloating(i.type), to = isFloating(i.to);
  if (from && to)
    return i.round != 0 || getBytes(i.to) > getBytes(i.type) || i.to == i.type;
  return i.round != 0 || !(from || to);
}

PtxCompute selectCvt(const PtxInstruction &i) {
  if (i.to == PtxType::F16x2)
    return selectPacking<Half>(i);
  if (i.to == PtxType::BF16x2)
    return selectPacking<Brain>(i);
  if (i.numSources != 1 || !isRoundingNamed(i))
    return nullptr;
  return visitType(i.type, [&](auto source) {
    return visitType(i.to, [&](auto target) -> PtxCompute {
      using S = decltype(source);
      using D = decltype(target);
      if constexpr (isFloat<S>)
        return lanewise<D, S>(
            [](const PtxInstruction &i, S from) { return convertFloat<D, S>(i, from); });
      else
        return lanewise<D, S>(
            [](const PtxInstruction &i, S from) { return convertInteger<D, S>(i, from); });
    });
  });
}

PtxCompute selectCvta(const PtxInstruction &i) {
  if (i.has("global"))
    return lanewise<uint64_t, uint64_t>([](uint64_t x) { return x; });
  if (!i.has("shared") && !i.has("local"))
    return nullptr;
  return lanewise<uint64_t, uint64_t>([](const PtxInstruction &i, uint64_t x) {
    uint64_t window = i.has("shared") ? ptxSharedWindow : ptxLocalWindow;
    return i.has("to") ? x - window : x + window;
  });
}

//===----------------------------------------------------------------------===//
// setp, testp, selp, mov
//===----------------------------------------------------------------------===//

template <typename T> bool compares(uint8_t table, T x, T y) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, Brain>)
    return compares(table, toFloat(x), toFloat(y));
  else
    return table >> (x < y ? 0 : x == y ? 1 : x > y ? 2 : 3) & 1;
}

bool combine(char mode, bool result, bool other) {
  return mode == 'a' ? result && other : mode == 'o' ? result || other : result != other;
}

/// p|q: the comparison and its negation, each combined with the third operand; for pairs, the
/// comparisons of the lower and the upper halves.
template <typename T> void setPredicates(const PtxInstruction &i, uint64_t *file, uint32_t active) {
  uint64_t *first = file + size_t(32) * i.results[0];
  uint64_t *second = file + size_t(32) * i.results[1];
  const uint64_t *x = file + size_t(32) * i.sources[0];
  const uint64_t *y = file + size_t(32) * i.sources[1];
  const uint64_t *other = file + size_t(32) * i.sources[2];
  forLanes(active, [&](unsigned lane) {
    bool one = false, two = false;
    if constexpr (IsPair<T>::value) {
      auto a = decode<T>(x[lane]), b = decode<T>(y[lane]);
      one = compares(i.compare, a.low, b.low);
      two = compares(i.compare, a.high, b.high);
    } else {
      auto a = decode<T>(x[lane]), b = decode<T>(y[lane]);
      if constexpr (std::is_same_v<T, float>)
        if (i.flush) {
          a = flushed(a);
          b = flushed(b);
        }
      one = compares(i.compare, a, b);
      two = !one;
    }
    if (i.mode) {
      bool third = other[lane] != 0;
      one = combine(i.mode, one, third);
      two = combine(i.mode, two, third);
    }
    first[lane] = one;
    if (i.numResults > 1)
      second[lane] = two;
  });
}

PtxCompute selectSetp(const PtxInstruction &i) {
  if (!i.compare || i.numSources != (i.mode ? 3 : 2))
    return nullptr;
  if (i.type == PtxType::F16x2)
    return setPredicates<Pair<Half>>;
  if (i.type == PtxType::BF16x2)
    return setPredicates<Pair<Brain>>;
  return visitType(i.type, [](auto zero) -> PtxCompute { return setPredicates<decltype(zero)>; });
}

template <typename T> PtxCompute selectTestp(const PtxInstruction &i) {
  if (i.has("finite"))
    return lanewise<bool, T>([](T x) { return std::isfinite(x); });
  if (i.has("infinite"))
    return lanewise<bool, T>([](T x) { return std::isinf(x); });
  if (i.has("number"))
    return lanewise<bool, T>([](T x) { return !std::isnan(x); });
  if (i.has("notanumber"))
    return lanewise<bool, T>([](T x) { return std::isnan(x); });
  if (i.has("normal"))
    return lanewise<bool, T>([](T x) { return std::isnormal(x); });
  if (i.has("subnormal"))
    return lanewise<bool, T>([](T x) { return std::fpclassify(x) == FP_SUBNORMAL; });
  return nullptr;
}

/// mov.b64 %rd, {lo, hi} and mov.b64 {lo, hi}, %rd: parts of equal size.
void pack(const PtxInstruction &i, uint64_t *file, uint32_t active) {
  unsigned bits = 8 * getBytes(i.type) / i.numSources;
  uint64_t mask = (uint64_t(1) << bits) - 1;
  forLanes(active, [&](unsigned lane) {
    uint64_t result = 0;
    for (unsigned n = 0; n < i.numSources; ++n)
      result |= (file[size_t(32) * i.sources[n] + lane] & mask) << (n * bits);
    file[size_t(32) * i.results[0] + lane] = result;
  });
}

void unpack(const PtxInstruction &i, uint64_t *file, uint32_t active) {
  unsigned bits = 8 * getBytes(i.type) / i.numResults;
  uint64_t mask = (uint64_t(1) << bits) - 1;
  forLanes(active, [&](unsigned lane) {
    uint64_t whole = file[size_t(32) * i.sources[0] + lane];
    for (unsigned n = 0; n < i.numResults; ++n)
      file[size_t(32) * i.results[n] + lane] = whole >> (n * bits) & mask;
  });
}

PtxCompute selectMov(const PtxInstruction &i) {
  if (i.numSources > 1 && i.numResults == 1)
    return pack;
  if (i.numResults > 1 && i.numSources == 1)
    return unpack;
  return lanewise<uint64_t, uint64_t>([](uint64_t x) { return x; });
}

} // namespace

PtxCompute selectConvert(const PtxInstruction &i) {
  switch (i.name) {
  case PtxName::Cvt:
    return selectCvt(i);
  case PtxName::Cvta:
    return selectCvta(i);
  case PtxName::Setp:
    return selectSetp(i);
  case PtxName::Testp:
    return i.type == PtxType::F32   ? selectTestp<float>(i)
           : i.type == PtxType::F64 ? selectTestp<double>(i)
                                    : nullptr;
  case PtxName::Selp:
    return lanewise<uint64_t, uint64_t, uint64_t, uint8_t>(
        [](uint64_t x, uint64_t y, uint8_t first) { return first ? x : y; });
  case PtxName::Mov:
    return selectMov(i);
  default:
    return nullptr;
  }
}

PtxCompute selectCompute(const PtxInstruction &i) {
  if (i.numResults == 0)
    return nullptr;
  if (PtxCompute found = selectConvert(i))
    return found;
  if (PtxCompute found = selectInteger(i))
    return found;
  return selectFloat(i);
}

} // namespace gridloom::fake
