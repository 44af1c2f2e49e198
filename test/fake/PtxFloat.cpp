//===- PtxFloat.cpp - PTX's floating point --------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Operations with a stated rounding are rounded once. Approximate ones are exact here or, under a
// PtxInaccuracy, have an error as large as PTX allows.
//
//===----------------------------------------------------------------------===//

#include "test/fake/PtxNumbers.h"

namespace gridloom::fake {

namespace {

thread_local uint64_t inaccuracySeed = 0;

/// A pseudo-random number in [-1, 1] that depends on `value` and the seed.
double drawError(double value) {
  uint64_t bits = (std::bit_cast<uint64_t>(value) ^ inaccuracySeed) * 0x9e3779b97f4a7c15;
  bits = (bits ^ bits >> 29) * 0xbf58476d1ce4e5b9;
  return static_cast<double>(static_cast<int64_t>(bits ^ bits >> 32)) * 0x1p-63;
}

/// `exact` with a random relative error of at most `bound`.
double err(double exact, double bound) {
  return inaccuracySeed ? exact * (1 + drawError(exact) * bound) : exact;
}
/// exp2 with a relative error, but exact for integers, which libdevice relies on.
double errExp2(float x, double bound) {
  double exact = std::exp2(static_cast<double>(x));
  return x == std::floor(x) ? exact : err(exact, bound);
}
/// `exact` with a random absolute error of at most `bound`.
double errBy(double exact, double bound) {
  return inaccuracySeed ? exact + drawError(exact) * bound : exact;
}

template <typename T> using Wide = std::conditional_t<std::is_floating_point_v<T>, T, float>;

template <typename T> Wide<T> take(const PtxInstruction &i, T value) {
  Wide<T> wide = toFloat(value);
  if (!i.flush)
    return wide;
  if constexpr (std::is_same_v<T, Half>)
    return std::fabs(wide) < 0x1p-14f ? std::copysign(0.0f, wide) : wide;
  return flushed(wide);
}

template <typename T, typename W> T give(const PtxInstruction &i, W wide) {
  if (i.saturate)
    wide = std::isnan(wide) ? W(0) : std::clamp(wide, W(0), W(1));
  if constexpr (std::is_same_v<T, W>)
    return i.flush ? flushed(wide) : wide;
  return fromFloat<T>(wide);
}

/// F of one, two or three values of T, computed in a wider type, once for each half of a Pair.
template <typename T, typename F> PtxCompute unary(F) {
  if constexpr (IsPair<T>::value) {
    using E = decltype(T::low);
    return lanewise<T, T>([](const PtxInstruction &i, T x) -> T {
      return {give<E>(i, F()(i, take(i, x.low))), give<E>(i, F()(i, take(i, x.high)))};
    });
  } else {
    return lanewise<T, T>(
        [](const PtxInstruction &i, T x) { return give<T>(i, F()(i, take(i, x))); });
  }
}

template <typename T, typename F> PtxCompute binary(F) {
  if constexpr (IsPair<T>::value) {
    using E = decltype(T::low);
    return lanewise<T, T, T>([](const PtxInstruction &i, T x, T y) -> T {
      return {give<E>(i, F()(i, take(i, x.low), take(i, y.low))),
              give<E>(i, F()(i, take(i, x.high), take(i, y.high)))};
    });
  } else {
    return lanewise<T, T, T>([](const PtxInstruction &i, T x, T y) {
      return give<T>(i, F()(i, take(i, x), take(i, y)));
    });
  }
}

/// x * y + z, rounded once. For 16-bit floats the product is exact in f64, and the sum is rounded
/// to odd first, so that the second rounding is harmless.
template <typename T> T fuse(const PtxInstruction &i, T x, T y, T z) {
  if constexpr (std::is_floating_point_v<T>) {
    RoundingScope scope(i.round);
    return give<T>(i, std::fma(take(i, x), take(i, y), take(i, z)));
  } else {
    double product = static_cast<double>(take(i, x)) * static_cast<double>(take(i, y));
    double addend = take(i, z), sum = product + addend;
    if (std::isfinite(sum) && sum != 0) {
      double part = sum - product;
      double error = (product - (sum - part)) + (addend - part);
      auto bits = std::bit_cast<uint64_t>(sum);
      if (error != 0 && !(bits & 1))
        sum = std::bit_cast<double>((error > 0) == (sum > 0) ? bits + 1 : bits - 1);
    }
    return give<T>(i, sum);
  }
}

template <typename T> PtxCompute selectFused() {
  if constexpr (IsPair<T>::value)
    return lanewise<T, T, T, T>([](const PtxInstruction &i, T x, T y, T z) -> T {
      return {fuse(i, x.low, y.low, z.low), fuse(i, x.high, y.high, z.high)};
    });
  else
    return lanewise<T, T, T, T>(
        [](const PtxInstruction &i, T x, T y, T z) { return fuse(i, x, y, z); });
}

/// The smaller of two; -0 is smaller than 0.
template <typename W> W least(W x, W y, bool keepsNan) {
  if (std::isnan(x) || std::isnan(y)) {
    bool isNan = keepsNan || (std::isnan(x) && std::isnan(y));
    return isNan ? std::numeric_limits<W>::quiet_NaN() : std::isnan(x) ? y : x;
  }
  if (x == y)
    return std::signbit(x) ? x : y;
  return x < y ? x : y;
}

template <typename W> double approximateRatio(W x, W y) {
  return static_cast<double>(x) / static_cast<double>(y);
}

/// Operations that all float types have.
template <typename T> PtxCompute selectBasic(const PtxInstruction &i) {
  switch (i.name) {
  case PtxName::Add:
    return binary<T>([](const PtxInstruction &i, auto x, auto y) {
      RoundingScope scope(i.round);
      return x + y;
    });
  case PtxName::Sub:
    return binary<T>([](const PtxInstruction &i, auto x, auto y) {
      RoundingScope scope(i.round);
      return x - y;
    });
  case PtxName::Mul:
    return binary<T>([](const PtxInstruction &i, auto x, auto y) {
      RoundingScope scope(i.round);
      return x * y;
    });
  case PtxName::Fma:
  case PtxName::Mad:
    return i.round ? selectFused<T>() : nullptr;
  case PtxName::Min:
    if (i.has("NaN"))
      return binary<T>([](const PtxInstruction &, auto x, auto y) { return least(x, y, true); });
    return binary<T>([](const PtxInstruction &, auto x, auto y) { return least(x, y, false); });
  case PtxName::Max:
    if (i.has("NaN"))
      return binary<T>([](const PtxInstruction &, auto x, auto y) { return -least(-x, -y, true); });
    return binary<T>([](const PtxInstruction &, auto x, auto y) { return -least(-x, -y, false); });
  case PtxName::Abs:
    return unary<T>([](const PtxInstruction &, auto x) { return std::fabs(x); });
  case PtxName::Neg:
    return unary<T>([](const PtxInstruction &, auto x) { return -x; });
  default:
    return nullptr;
  }
}

/// The relative error of "approx" in a 16-bit format.
template <typename T> constexpr double narrowError(double half, double brain) {
  return std::is_same_v<T, Half> || std::is_same_v<T, Pair<Half>> ? half : brain;
}

template <typename T> PtxCompute selectNarrow(const PtxInstruction &i) {
  if (PtxCompute found = selectBasic<T>(i))
    return found;
  if (!i.approximate)
    return nullptr;
  switch (i.name) {
  case PtxName::Ex2:
    return unary<T>([](const PtxInstruction &, float x) {
      return static_cast<float>(errExp2(x, narrowError<T>(0x1p-9, 0x1p-7)));
    });
  case PtxName::Tanh:
    return unary<T>([](const PtxInstruction &, float x) {
      return static_cast<float>(
          err(std::tanh(static_cast<double>(x)), narrowError<T>(0x1p-10, 0x1p-8)));
    });
  default:
    return nullptr;
  }
}

/// Division and roots, rounded or approximate.
PtxCompute selectDivision(const PtxInstruction &i) {
  bool rounds = i.round != 0 && !i.approximate;
  if (!rounds && !i.approximate)
    return nullptr;
  switch (i.name) {
  case PtxName::Div:
    if (rounds)
      return binary<float>([](const PtxInstruction &i, float x, float y) {
        RoundingScope scope(i.round);
        return x / y;
      });
    return binary<float>([](const PtxInstruction &i, float x, float y) {
      // Beyond 2^126 the approximation's reciprocal flushes to zero.
      if (i.has("approx") && std::fabs(y) > 0x1p126f && std::isfinite(y))
        return std::isinf(x) ? std::numeric_limits<float>::quiet_NaN()
                             : std::copysign(0.0f, std::signbit(x) == std::signbit(y) ? 1.f : -1.f);
      return static_cast<float>(err(approximateRatio(x, y), 0x1p-22));
    });
  case PtxName::Rcp:
    if (rounds)
      return unary<float>([](const PtxInstruction &i, float x) {
        RoundingScope scope(i.round);
        return 1 / x;
      });
    return unary<float>([](const PtxInstruction &, float x) {
      return static_cast<float>(err(approximateRatio(1.0f, x), 0x1p-23));
    });
  case PtxName::Sqrt:
    if (rounds)
      return unary<float>([](const PtxInstruction &i, float x) {
        RoundingScope scope(i.round);
        return std::sqrt(x);
      });
    return unary<float>([](const PtxInstruction &, float x) {
      return static_cast<float>(err(std::sqrt(static_cast<double>(x)), 0x1p-23));
    });
  default:
    return nullptr;
  }
}

PtxCompute selectSingle(const PtxInstruction &i) {
  if (PtxCompute found = selectBasic<float>(i))
    return found;
  if (PtxCompute found = selectDivision(i))
    return found;
  if (i.name == PtxName::Copysign)
    return binary<float>(
        [](const PtxInstruction &, float sign, float x) { return std::copysign(x, sign); });
  if (!i.approximate)
    return nullptr;
  switch (i.name) {
  case PtxName::Rsqrt:
    return unary<float>([](const PtxInstruction &, float x) {
      return static_cast<float>(err(1 / std::sqrt(static_cast<double>(x)), 0x1p-22));
    });
  case PtxName::Ex2:
    return unary<float>(
        [](const PtxInstruction &, float x) { return static_cast<float>(errExp2(x, 0x1p-22)); });
  case PtxName::Lg2:
    return unary<float>([](const PtxInstruction &, float x) {
      double exact = std::log2(static_cast<double>(x));
      bool isNearOne = x > 0.5f && x < 2;
      return static_cast<float>(isNearOne ? errBy(exact, 0x1p-22) : err(exact, 0x1p-22));
    });
  case PtxName::Sin:
    return unary<float>([](const PtxInstruction &, float x) {
      return static_cast<float>(errBy(std::sin(static_cast<double>(x)), 0x1p-20));
    });
  case PtxName::Cos:
    return unary<float>([](const PtxInstruction &, float x) {
      return static_cast<float>(errBy(std::cos(static_cast<double>(x)), 0x1p-20));
    });
  case PtxName::Tanh:
    return unary<float>([](const PtxInstruction &, float x) {
      return static_cast<float>(err(std::tanh(static_cast<double>(x)), 0x1p-11));
    });
  default:
    return nullptr;
  }
}

/// Pairs of f32 have only these operations.
PtxCompute selectPaired(const PtxInstruction &i) {
  using enum PtxName;
  bool exists = i.name == Add || i.name == Sub || i.name == Mul || i.name == Fma;
  return exists ? selectBasic<Pair<float>>(i) : nullptr;
}

/// f64's rough approximations use the upper half: the lower 32 bits are neither read nor computed.
double keepUpper(double x) {
  return std::bit_cast<double>(std::bit_cast<uint64_t>(x) & 0xffffffff00000000);
}

PtxCompute selectDouble(const PtxInstruction &i) {
  if (PtxCompute found = selectBasic<double>(i))
    return found;
  switch (i.name) {
  case PtxName::Copysign:
    return binary<double>(
        [](const PtxInstruction &, double sign, double x) { return std::copysign(x, sign); });
  case PtxName::Div:
    return i.round ? binary<double>([](const PtxInstruction &i, double x, double y) {
      RoundingScope scope(i.round);
      return x / y;
    })
                   : nullptr;
  case PtxName::Sqrt:
    return i.round ? unary<double>([](const PtxInstruction &i, double x) {
      RoundingScope scope(i.round);
      return std::sqrt(x);
    })
                   : nullptr;
  case PtxName::Rcp:
    if (i.round)
      return unary<double>([](const PtxInstruction &i, double x) {
        RoundingScope scope(i.round);
        return 1 / x;
      });
    if (!i.approximate || !i.flush)
      return nullptr;
    return unary<double>(
        [](const PtxInstruction &, double x) { return keepUpper(err(1 / keepUpper(x), 0x1p-20)); });
  case PtxName::Rsqrt:
    if (!i.approximate)
      return nullptr;
    // Only the flushing variant is rough.
    return unary<double>([](const PtxInstruction &i, double x) {
      return i.flush ? keepUpper(err(1 / std::sqrt(keepUpper(x)), 0x1p-20))
                     : err(1 / std::sqrt(x), 0x1p-52);
    });
  default:
    return nullptr;
  }
}

} // namespace

PtxInaccuracy::PtxInaccuracy(uint64_t seed) { inaccuracySeed = seed; }
PtxInaccuracy::~PtxInaccuracy() { inaccuracySeed = 0; }

PtxCompute selectFloat(const PtxInstruction &i) {
  switch (i.type) {
  case PtxType::F16:
    return selectNarrow<Half>(i);
  case PtxType::BF16:
    return selectNarrow<Brain>(i);
  case PtxType::F16x2:
    return selectNarrow<Pair<Half>>(i);
  case PtxType::BF16x2:
    return selectNarrow<Pair<Brain>>(i);
  case PtxType::F32:
    return selectSingle(i);
  case PtxType::F32x2:
    return selectPaired(i);
  case PtxType::F64:
    return selectDouble(i);
  default:
    return nullptr;
  }
}

} // namespace gridloom::fake
