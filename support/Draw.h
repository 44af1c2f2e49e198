//===- Draw.h - initial values of tensors -----------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_SUPPORT_DRAW_H
#define GRIDLOOM_SUPPORT_DRAW_H

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace gridloom {

/// How the elements of a tensor are drawn: each is a function of the seed, the stream and its
/// row-major index in the whole tensor, so that any part can be computed alone. The functions use
/// only IEEE 754's correctly rounded operations: every machine gives the same bits.
///
///   constant   first
///   uniform    first + (second - first) * u, u a multiple of 2^-24 in [0, 1)
///   normal     first + second * z, z the standard normal quantile of a u in (0, 1) that is a
///              half-integer times 2^-32; at most 6.34 from 0
struct Draw {
  enum class Distribution { Constant, Uniform, Normal };

  Distribution distribution = Distribution::Constant;
  double first = 0;  ///< the constant; the lower bound; the mean
  double second = 0; ///< unused; the upper bound; the standard deviation
  uint64_t seed = 0;
  uint64_t stream = 0; ///< distinguishes tensors of one seed

  /// Elements `begin` to `begin + count` of the tensor, computed in f64.
  void fill(uint64_t begin, size_t count, double *out) const;
  /// The same, rounded to f32.
  void fill(uint64_t begin, size_t count, float *out) const;

  /// The stream of a tensor by its name.
  static uint64_t makeStream(std::string_view name);
};

/// The x that a standard normal variable is below with probability `p` in (0, 1), to a relative
/// error of about 1e-15 (Wichura 1988, algorithm AS 241, PPND16).
double getNormalQuantile(double p);

} // namespace gridloom

#endif // GRIDLOOM_SUPPORT_DRAW_H
