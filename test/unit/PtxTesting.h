//===- PtxTesting.h - GPU kernels against reference evaluation --*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Kernels are compiled for a GPU, run by the PTX interpreter and compared with the results of
// EvaluateInterface: bit by bit, or by units in the last place.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_TEST_UNIT_PTXTESTING_H
#define GRIDLOOM_TEST_UNIT_PTXTESTING_H

#include "dialects/loom/Kernels.h"
#include "test/fake/PtxRun.h"
#include "test/unit/CodegenTesting.h"

#include <cstring>
#include <limits>

namespace gridloom::testing {

/// The tolerance of a float output: `ulps` units in the last place of the expected value, or of
/// `floor` where that is larger, because results of cancellation have no more digits than that.
struct Exactness {
  double ulps = 0; // 0: bit by bit, but for the bits of NaN
  double floor = 0;
  /// Zeros of either sign are equal.
  bool ignoresZeroSign = false;
};

/// The number of significand bits of a float, and the exponent of its smallest number.
inline std::pair<int, int> formatOf(ElementKind kind) {
  switch (kind) {
  case ElementKind::F8E4M3FN:
    return {4, -9};
  case ElementKind::F8E5M2:
    return {3, -16};
  case ElementKind::F8E4M3FNUZ:
    return {4, -10};
  case ElementKind::F8E5M2FNUZ:
    return {3, -17};
  case ElementKind::F16:
    return {11, -24};
  case ElementKind::BF16:
    return {8, -133};
  case ElementKind::F32:
    return {24, -149};
  default:
    return {53, -1074};
  }
}

/// The distance between neighbouring numbers at `value`.
inline double unitInLastPlace(ElementKind kind, double value) {
  auto [digits, least] = formatOf(kind);
  if (!std::isfinite(value) || value == 0)
    return std::ldexp(1.0, least);
  return std::ldexp(1.0, std::max(std::ilogb(value) - digits + 1, least));
}

/// The first element in which two tensors differ by more than the tolerance, as text; empty if none
/// does. `worst` becomes the largest error, in units in the last place.
inline std::string findDifference(const HostTensor &actual, const HostTensor &expected,
                                  const Exactness &exactness, double &worst) {
  size_t bytes = actual.getElementSize();
  std::vector<double> a = actual.toDoubles(), e = expected.toDoubles();
  for (size_t i = 0; i < a.size(); ++i) {
    bool same = !std::memcmp(actual.getData() + i * bytes, expected.getData() + i * bytes, bytes);
    bool isZero = exactness.ignoresZeroSign && a[i] == 0 && e[i] == 0;
    if (same || isZero || (std::isnan(a[i]) && std::isnan(e[i])))
      continue;
    double error = std::numeric_limits<double>::infinity();
    bool isFloat = loom::isFloatKind(expected.getKind());
    if (isFloat && exactness.ulps > 0 && std::isfinite(a[i]) && std::isfinite(e[i]))
      error = std::abs(a[i] - e[i]) /
              unitInLastPlace(expected.getKind(), std::max(std::abs(e[i]), exactness.floor));
    worst = std::max(worst, error);
    if (!(error <= exactness.ulps))
      return "element " + std::to_string(i) + " of " + std::to_string(a.size()) + " is " +
             std::to_string(a[i]) + ", not " + std::to_string(e[i]) + " (" + std::to_string(error) +
             " units in the last place)";
  }
  return "";
}

/// The memory of a kernel's buffers, aligned as little as a view that starts inside a buffer.
inline std::vector<fake::PtxTensor> makeMemory(const std::vector<HostTensor> &inputs,
                                               const std::vector<HostTensor> &outputs,
                                               const codegen::KernelInfo &info, bool inPlace) {
  std::vector<fake::PtxTensor> tensors;
  auto add = [&](const HostTensor &tensor, bool isInput) {
    fake::PtxTensor &memory = tensors.emplace_back();
    memory.alignment = loom::kViewAlignment;
    memory.isInput = isInput;
    memory.bytes.resize(tensor.getNumBytes());
    if (isInput && !memory.bytes.empty())
      std::memcpy(memory.bytes.data(), tensor.getData(), memory.bytes.size());
  };
  for (const HostTensor &input : inputs)
    add(input, true);
  for (const HostTensor &output : outputs)
    add(output, false);
  if (inPlace)
    for (auto [output, input] : info.inPlace)
      tensors[inputs.size() + output].inPlaceOf = static_cast<int>(input);
  return tensors;
}

/// A kernel's launch parameters.
inline fake::PtxRun launchOf(const codegen::CompiledGpuKernel &kernel) {
  fake::PtxRun run;
  std::copy(kernel.grid.begin(), kernel.grid.end(), run.grid);
  std::copy(kernel.block.begin(), kernel.block.end(), run.block);
  return run;
}

/// Runs a kernel on `tensors` and compares its outputs, the last of them. Returns the difference as
/// text; empty if there is none.
inline std::string compareRun(const fake::PtxProgram &program,
                              const codegen::CompiledGpuKernel &kernel, const fake::PtxRun &run,
                              std::vector<fake::PtxTensor> tensors,
                              const std::vector<HostTensor> &expected, const Exactness &exactness,
                              double &worst) {
  std::string wrong = program.run(kernel.info.symbol, run, tensors);
  size_t first = tensors.size() - expected.size();
  for (size_t i = 0; wrong.empty() && i < expected.size(); ++i) {
    HostTensor actual(expected[i].getKind(), expected[i].getShape());
    if (actual.getNumBytes() > 0)
      std::memcpy(actual.getMutableData(), tensors[first + i].bytes.data(), actual.getNumBytes());
    wrong = findDifference(actual, expected[i], exactness, worst);
    if (!wrong.empty())
      wrong = "output " + std::to_string(i) + ": " + wrong;
  }
  return wrong;
}

} // namespace gridloom::testing

#endif // GRIDLOOM_TEST_UNIT_PTXTESTING_H
