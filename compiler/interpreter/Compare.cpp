//===- Compare.cpp - differences of two tensors ---------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/interpreter/Compare.h"

#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace gridloom;
using loom::HostTensor;

static constexpr double kInfinity = std::numeric_limits<double>::infinity();

Tolerance gridloom::getRounding(loom::ElementKind kind) {
  switch (kind) {
  case loom::ElementKind::F16:
    return {0x1p-10, 0x1p-10};
  case loom::ElementKind::BF16:
    return {0x1p-7, 0x1p-7};
  case loom::ElementKind::F8E4M3FN:
  case loom::ElementKind::F8E4M3FNUZ:
    return {0x1p-3, 0x1p-9};
  case loom::ElementKind::F8E5M2:
  case loom::ElementKind::F8E5M2FNUZ:
    return {0x1p-2, 0x1p-16};
  default:
    return {0, 0};
  }
}

/// By how much the difference of two floats exceeds the tolerance.
static double getExcess(double expected, double actual, Tolerance tolerance) {
  if ((std::isnan(expected) && std::isnan(actual)) || expected == actual)
    return 0;
  if (!std::isfinite(expected) || !std::isfinite(actual))
    return kInfinity;
  return std::max(0.0, std::abs(actual - expected) - tolerance.absolute -
                           tolerance.relative * std::abs(expected));
}

static void compareFloats(const HostTensor &expected, const HostTensor &actual, Tolerance tolerance,
                          ArrayRef<double> allowance, Difference &result) {
  std::vector<double> right = expected.toDoubles(), left = actual.toDoubles();
  double worstExcess = -1;
  for (size_t i = 0; i < right.size(); ++i) {
    double excess = getExcess(right[i], left[i], tolerance);
    if (excess > 0 && i < allowance.size() && excess <= allowance[i]) {
      ++result.excused;
      excess = 0;
    }
    bool isFinite = std::isfinite(right[i]) && std::isfinite(left[i]);
    double distance = isFinite ? std::abs(left[i] - right[i]) : kInfinity;
    if (isFinite) {
      result.maxAbsolute = std::max(result.maxAbsolute, distance);
      if (right[i] != 0)
        result.maxRelative = std::max(result.maxRelative, distance / std::abs(right[i]));
    }
    result.notFinite += !std::isfinite(right[i]);
    if (excess > 0) {
      ++result.wrong;
      result.maxWrong = std::max(result.maxWrong, distance);
    }
    if (excess > worstExcess) {
      worstExcess = excess;
      result.worst = i;
    }
  }
}

static void compareBits(const HostTensor &expected, const HostTensor &actual, Difference &result) {
  size_t size = expected.getElementSize();
  for (int64_t i = 0; i < expected.getNumElements(); ++i) {
    if (std::memcmp(expected.getData() + i * size, actual.getData() + i * size, size) == 0)
      continue;
    result.maxWrong = kInfinity;
    if (result.wrong++ == 0)
      result.worst = i;
  }
}

Difference gridloom::compare(const HostTensor &expected, const HostTensor &actual,
                             Tolerance tolerance, ArrayRef<double> allowance) {
  Difference result;
  if (expected.getKind() != actual.getKind() || expected.getShape() != actual.getShape()) {
    result.reason = describeType(actual) + " instead of " + describeType(expected);
    result.maxWrong = kInfinity;
    return result;
  }
  if (loom::isFloatKind(expected.getKind()))
    compareFloats(expected, actual, tolerance, allowance, result);
  else
    compareBits(expected, actual, result);
  result.equal = result.wrong == 0;
  return result;
}

double gridloom::getLargest(const HostTensor &tensor) {
  double largest = 0;
  if (loom::isFloatKind(tensor.getKind()))
    for (double value : tensor.toDoubles())
      if (std::isfinite(value))
        largest = std::max(largest, std::abs(value));
  return largest;
}

std::string gridloom::describeType(const HostTensor &tensor) {
  std::string text = loom::nameOf(tensor.getKind()).str() + "[";
  llvm::raw_string_ostream stream(text);
  llvm::interleaveComma(tensor.getShape(), stream);
  return text + "]";
}

/// "[0, 17]": the indices of a row-major position.
static std::string describePosition(const HostTensor &tensor, int64_t position) {
  std::string text;
  for (int64_t size : llvm::reverse(tensor.getShape())) {
    text = std::to_string(position % size) + (text.empty() ? "" : ", ") + text;
    position /= size;
  }
  return "[" + text + "]";
}

static void printElement(llvm::raw_ostream &stream, const HostTensor &tensor, int64_t position) {
  if (tensor.getKind() == loom::ElementKind::Exact) {
    loom::Exact value = tensor.getValues<loom::Exact>()[position];
    value.isNaN() ? stream << "poison" : stream << "#" << llvm::format_hex_no_prefix(value.word, 1);
  } else if (loom::isFloatKind(tensor.getKind())) {
    stream << llvm::format("%.9g", tensor.toDoubles()[position]);
  } else {
    stream << tensor.toInts()[position];
  }
}

std::string gridloom::describe(const Difference &difference, const HostTensor &expected,
                               const HostTensor &actual) {
  if (!difference.reason.empty())
    return difference.reason;
  std::string text;
  llvm::raw_string_ostream stream(text);
  if (loom::isFloatKind(expected.getKind()))
    stream << llvm::format("max abs %.2e, max rel %.2e", difference.maxAbsolute,
                           difference.maxRelative);
  else if (difference.equal)
    stream << "equal";
  if (difference.excused)
    stream << "; " << difference.excused << " of " << expected.getNumElements()
           << " elements differ by no more than rounding of their gradients allows";
  if (difference.notFinite)
    stream << "; " << difference.notFinite << " of " << expected.getNumElements()
           << " elements are expected to be infinite or NaN";
  if (!difference.equal) {
    stream << (text.empty() ? "" : "; ") << difference.wrong << " of " << expected.getNumElements()
           << " elements differ, worst " << describePosition(expected, difference.worst) << ": ";
    printElement(stream, actual, difference.worst);
    stream << " instead of ";
    printElement(stream, expected, difference.worst);
  }
  return text;
}
