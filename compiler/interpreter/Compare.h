//===- Compare.h - differences of two tensors -------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_INTERPRETER_COMPARE_H
#define GRIDLOOM_COMPILER_INTERPRETER_COMPARE_H

#include "dialects/loom/HostTensor.h"

namespace gridloom {

struct Tolerance {
  double relative = 0, absolute = 0;
};

struct Difference {
  bool equal = false;
  int64_t wrong = 0;     ///< elements outside the tolerance
  int64_t excused = 0;   ///< elements that only `allowance` keeps within it
  int64_t worst = -1;    ///< row-major index of the one furthest outside, or furthest apart
  int64_t notFinite = 0; ///< elements that are expected to be infinite or NaN
  double maxAbsolute = 0, maxRelative = 0;
  /// The largest difference of an element outside the tolerance; infinite if no tolerance accepts
  /// it. 0 if the tensors are equal.
  double maxWrong = 0;
  std::string reason; ///< set if shapes or types differ
};

/// Floats agree when |actual - expected| <= absolute + relative |expected|, or both are NaN, or the
/// same infinity; integers and Exact elements when they are equal. `allowance` is an additional
/// difference allowed for finite floats, one number per element, or empty.
Difference compare(const loom::HostTensor &expected, const loom::HostTensor &actual,
                   Tolerance tolerance, llvm::ArrayRef<double> allowance = {});

/// The allowed difference of two narrow numbers that were almost equal before rounding: one
/// rounding to 16 bits is 2^-11 or 2^-8, and neighbours of 8 bits are 2^-3 or 2^-2 apart.
Tolerance getRounding(loom::ElementKind kind);

/// "max abs 1.2e-07, max rel 3.4e-06", with the number of infinite or NaN elements, if any, or what
/// differs where, for a line of the report.
std::string describe(const Difference &difference, const loom::HostTensor &expected,
                     const loom::HostTensor &actual);

/// The largest magnitude of a finite element; 0 for integers.
double getLargest(const loom::HostTensor &tensor);

/// "f32[8, 384]".
std::string describeType(const loom::HostTensor &tensor);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_INTERPRETER_COMPARE_H
