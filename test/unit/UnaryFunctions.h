//===- UnaryFunctions.h - the table of scalar functions ---------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// One row defines all tests of an elementwise function of one float: its value in the interpreter,
// every split of it, its derivative, the CPU kernel and the GPU kernel of each float type.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_TEST_UNIT_UNARYFUNCTIONS_H
#define GRIDLOOM_TEST_UNIT_UNARYFUNCTIONS_H

#include <string>

namespace gridloom::testing {

struct UnaryFunction {
  const char *name;
  /// A value from mathematical tables, to 10 digits; the interpreter must agree.
  double argument, value;
  /// Range of the CPU kernels' arguments, and a factor on the tolerance of their float type.
  double low, high, factor;
  /// Range of the GPU kernels' arguments, and tolerances in units in the last place of f32, f64 and
  /// 16-bit floats. Many functions of f32 use ex2.approx, for which PTX states an error of 2^-22:
  /// four units in the last place alone.
  double gpuLow, gpuHigh, single, full, narrow = 1;
  /// Whether it is differentiable.
  bool hasPullback = true;
};

inline constexpr UnaryFunction kUnaryFunctions[] = {
    {"exp", 3, 20.0855369232, -9, 2, 1, -9, 9, 6, 2},
    {"log", 3, 1.0986122887, 0.5, 9, 1, 0.01, 30, 4, 2},
    {"sqrt", 3, 1.7320508076, 0, 9, 1, 0, 30, 2, 1},
    {"rsqrt", 3, 0.5773502692, 0.5, 9, 1, 0.01, 30, 5, 3},
    {"tanh", -0.5, -0.4621171573, -9, 9, 1, -2, 2, 6, 3},
    {"erf", -0.5, -0.5204998778, -9, 9, 1, -2, 2, 6, 3},
    {"logistic", 3, 0.9525741268, -9, 9, 1, -2, 2, 6, 3},
    {"sine", 1, 0.8414709848, -9, 9, 1, -2, 2, 6, 3},
    {"cosine", 1, 0.5403023059, -9, 9, 1, -2, 2, 6, 3},
    {"tan", 1, 1.5574077247, -1.5, 1.5, 10, -2, 2, 6, 3},
    {"asin", 0.5, 0.5235987756, -0.99, 0.99, 10, -0.95, 0.95, 5, 3},
    {"acos", 0.5, 1.0471975512, -0.99, 0.99, 10, -0.95, 0.95, 5, 3},
    {"atan", 3, 1.2490457724, -9, 9, 1, -2, 2, 6, 3},
    {"sinh", 1, 1.1752011936, -1.5, 1.5, 10, -2, 2, 6, 3},
    {"cosh", 1, 1.5430806348, -1.5, 1.5, 10, -2, 2, 6, 3},
    {"asinh", 3, 1.8184464592, -9, 9, 1, -2, 2, 6, 3},
    {"acosh", 3, 1.7627471740, 1.01, 30, 10, 1.1, 9, 5, 3},
    {"atanh", 0.5, 0.5493061443, -0.99, 0.99, 10, -0.95, 0.95, 5, 3},
};

} // namespace gridloom::testing

#endif // GRIDLOOM_TEST_UNIT_UNARYFUNCTIONS_H
