//===- Draw.cpp - initial values of tensors -------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "support/Draw.h"

#include "support/Philox.h"

#include <cmath>

using namespace gridloom;

// Machines that fuse a product and a sum into one operation would round differently.
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#endif

/// FNV-1a of 64 bits (Fowler, Noll and Vo).
uint64_t Draw::makeStream(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325;
  for (char letter : name) {
    hash ^= static_cast<unsigned char>(letter);
    hash *= 0x100000001b3;
  }
  return hash;
}

/// The sum of c[i] x^i.
template <size_t n> static double polynomial(const double (&c)[n], double x) {
  double sum = c[n - 1];
  for (size_t i = n - 1; i-- > 0;)
    sum = sum * x + c[i];
  return sum;
}

/// The natural logarithm of a positive normal number. Libraries' logarithms differ in last bits.
static double getLogarithm(double x) {
  int exponent;
  double mantissa = std::frexp(x, &exponent); // exact, in [0.5, 1)
  if (mantissa < 0.70710678118654752) {
    mantissa *= 2;
    --exponent;
  }
  // log m = 2 artanh s = 2 (s + s^3 / 3 + s^5 / 5 ...), with |s| < 0.172.
  double s = (mantissa - 1) / (mantissa + 1), square = s * s, sum = 0;
  for (int power = 23; power >= 1; power -= 2)
    sum = sum * square + 1.0 / power;
  return exponent * 0.69314718055994531 + 2 * s * sum;
}

double gridloom::getNormalQuantile(double p) {
  static constexpr double a[] = {3.3871328727963666080e0, 1.3314166789178437745e2,
                                 1.9715909503065514427e3, 1.3731693765509461125e4,
                                 4.5921953931549871457e4, 6.7265770927008700853e4,
                                 3.3430575583588128105e4, 2.5090809287301226727e3};
  static constexpr double b[] = {1.0,
                                 4.2313330701600911252e1,
                                 6.8718700749205790830e2,
                                 5.3941960214247511077e3,
                                 2.1213794301586595867e4,
                                 3.9307895800092710610e4,
                                 2.8729085735721942674e4,
                                 5.2264952788528545610e3};
  static constexpr double c[] = {1.42343711074968357734e0,  4.63033784615654529590e0,
                                 5.76949722146069140550e0,  3.64784832476320460504e0,
                                 1.27045825245236838258e0,  2.41780725177450611770e-1,
                                 2.27238449892691845833e-2, 7.74545014278341407640e-4};
  static constexpr double d[] = {1.0,
                                 2.05319162663775882187e0,
                                 1.67638483018380384940e0,
                                 6.89767334985100004550e-1,
                                 1.48103976427480074590e-1,
                                 1.51986665636164571966e-2,
                                 5.47593808499534494600e-4,
                                 1.05075007164441684324e-9};
  static constexpr double e[] = {6.65790464350110377720e0,  5.46378491116411436990e0,
                                 1.78482653991729133580e0,  2.96560571828504891230e-1,
                                 2.65321895265761230930e-2, 1.24266094738807843860e-3,
                                 2.71155556874348757815e-5, 2.01033439929228813265e-7};
  static constexpr double f[] = {1.0,
                                 5.99832206555887937690e-1,
                                 1.36929880922735805310e-1,
                                 1.48753612908506148525e-2,
                                 7.86869131145613259100e-4,
                                 1.84631831751005468180e-5,
                                 1.42151175831644588870e-7,
                                 2.04426310338993978564e-15};
  double q = p - 0.5;
  if (std::abs(q) <= 0.425) {
    double r = 0.180625 - q * q;
    return q * polynomial(a, r) / polynomial(b, r);
  }
  double r = std::sqrt(-getLogarithm(q < 0 ? p : 1 - p));
  double x = r <= 5 ? polynomial(c, r - 1.6) / polynomial(d, r - 1.6)
                    : polynomial(e, r - 5) / polynomial(f, r - 5);
  return q < 0 ? -x : x;
}

static double makeNumber(const Draw &draw, uint32_t word) {
  switch (draw.distribution) {
  case Draw::Distribution::Constant:
    break;
  case Draw::Distribution::Uniform:
    return draw.first + (draw.second - draw.first) * ((word >> 8) * 0x1p-24);
  case Draw::Distribution::Normal:
    return draw.first + draw.second * getNormalQuantile((word + 0.5) * 0x1p-32);
  }
  return draw.first;
}

template <typename T> static void fillWith(const Draw &draw, uint64_t begin, size_t count, T *out) {
  std::array<uint32_t, 4> words{};
  for (size_t i = 0; i < count; ++i) {
    uint64_t index = begin + i, block = index / 4;
    if (draw.distribution != Draw::Distribution::Constant && (i == 0 || index % 4 == 0))
      words = Philox::compute({Philox::low(block), Philox::high(block), Philox::low(draw.stream),
                               Philox::high(draw.stream)},
                              {Philox::low(draw.seed), Philox::high(draw.seed)});
    out[i] = static_cast<T>(makeNumber(draw, words[index % 4]));
  }
}

void Draw::fill(uint64_t begin, size_t count, double *out) const {
  fillWith(*this, begin, count, out);
}
void Draw::fill(uint64_t begin, size_t count, float *out) const {
  fillWith(*this, begin, count, out);
}
