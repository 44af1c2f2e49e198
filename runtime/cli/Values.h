//===- Values.h - making and summarising arrays -----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CLI_VALUES_H
#define GRIDLOOM_RUNTIME_CLI_VALUES_H

#include "runtime/core/HostArray.h"

#include <string>
#include <vector>

namespace gridloom::rt {

double getElement(const HostArray &array, int64_t index);
void setElement(HostArray &array, int64_t index, double value);

/// "randn", "ones", "zeros", "randint(LOW,HIGH)" or "uniform(LOW,HIGH)", HIGH excluded.
struct Generator {
  enum Kind { Ones, Zeros, Normal, Integers, Uniform } kind = Zeros;
  double low = 0, high = 0;
  /// False when `text` is not a generator, and so a path. Throws InvalidArgument when it has a
  /// generator's name but not its form.
  static bool parse(const std::string &text, Generator &generator);
  bool isRandom() const { return kind != Ones && kind != Zeros; }
};

/// An array that depends on the arguments alone: element i is a function of seed, name and i.
/// Throws InvalidArgument when the type cannot hold the generator's values.
HostArray generate(const Generator &generator, const std::string &name, DataType type,
                   const std::vector<int64_t> &shape, uint64_t seed);

/// "f32 [8, 384]  min -0.21  max 0.34  mean 0.0012  first -0.04 0.11 0.03"
std::string summarize(const HostArray &array);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CLI_VALUES_H
