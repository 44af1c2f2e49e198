//===- Signal.cpp - constants of signal processing ------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Windows and filter banks of sizes known at compile time are constants.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/OpTable.h"

#include <cmath>

using namespace mlir;
using namespace gridloom;
using namespace gridloom::onnx_import;

/// The most elements a constant is computed for.
static constexpr int64_t kMaxElements = 1 << 22;

/// Sets the result to `values`, in the type of attribute output_datatype.
static LogicalResult setConstant(Node &node, ArrayRef<int64_t> shape, ArrayRef<double> values) {
  constexpr int64_t kFloat = 1;
  Type type = node.elementType(node.intAttribute("output_datatype", kFloat));
  if (!type)
    return failure();
  return node.setResult(
      node.constant(loom::HostTensor::fromDoubles(*loom::getElementKind(type), shape, values)));
}

/// a[0] - a[1] cos(x) + a[2] cos(2x) of one period x in `size` steps, or in one less if not
/// periodic.
static LogicalResult importWindow(Node &node, ArrayRef<double> factors) {
  FailureOr<std::optional<double>> given = node.numberOperand(0, "size");
  if (failed(given) || !node.operand(0))
    return failure();
  double size = given->value_or(0);
  if (!(size >= 1 && size <= static_cast<double>(kMaxElements)))
    return node.error() << "size is " << size << ", expected 1 to " << kMaxElements;
  int64_t count = static_cast<int64_t>(size);
  int64_t steps = std::max<int64_t>(node.intAttribute("periodic", 1) ? count : count - 1, 1);
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) {
    double x = 2 * M_PI * static_cast<double>(i) / static_cast<double>(steps), value = 0, sign = 1;
    for (auto [k, factor] : llvm::enumerate(factors)) {
      value += sign * factor * std::cos(static_cast<double>(k) * x);
      sign = -sign;
    }
    values.push_back(value);
  }
  return setConstant(node, {count}, values);
}

static LogicalResult importBlackmanWindow(Node &node) {
  return importWindow(node, {0.42, 0.5, 0.08});
}
static LogicalResult importHammingWindow(Node &node) {
  return importWindow(node, {25.0 / 46, 21.0 / 46});
}
static LogicalResult importHannWindow(Node &node) { return importWindow(node, {0.5, 0.5}); }

/// Triangles in the spectrum whose corners are evenly spaced in mel, [dft_length / 2 + 1,
/// num_mel_bins].
static LogicalResult importMelWeightMatrix(Node &node) {
  static constexpr StringLiteral names[] = {"num_mel_bins", "dft_length", "sample_rate",
                                            "lower_edge_hertz", "upper_edge_hertz"};
  double numbers[5] = {};
  for (auto [i, name] : llvm::enumerate(names)) {
    FailureOr<std::optional<double>> given = node.numberOperand(i, name);
    if (failed(given) || !node.operand(i))
      return failure();
    numbers[i] = **given;
  }
  auto [bins, length, rate, lower, upper] = numbers;
  if (!(bins >= 1 && length >= 1 && rate >= 1 && lower >= 0 && upper >= lower) ||
      upper > rate / 2 || bins * (length / 2 + 1) > static_cast<double>(kMaxElements))
    return node.error() << "cannot place " << bins << " bands from " << lower << " to " << upper
                        << " Hz in " << length << " points at " << rate << " Hz";
  auto columns = static_cast<int64_t>(bins), rows = static_cast<int64_t>(length) / 2 + 1;
  auto toMel = [](double hertz) { return 2595 * std::log10(1 + hertz / 700); };
  double step = (toMel(upper) - toMel(lower)) / (bins + 2);
  auto corner = [&](int64_t i) {
    double hertz = 700 * (std::pow(10, (static_cast<double>(i) * step + toMel(lower)) / 2595) - 1);
    return static_cast<int64_t>(std::floor((length + 1) * hertz / rate));
  };
  std::vector<double> values(rows * columns, 0);
  auto at = [&](int64_t row, int64_t column) -> double & { return values[row * columns + column]; };
  for (int64_t i = 0; i < columns; ++i) {
    int64_t low = corner(i), centre = corner(i + 1), high = corner(i + 2);
    for (int64_t j = low; j <= centre && j < rows; ++j)
      at(j, i) =
          low == centre ? 1 : static_cast<double>(j - low) / static_cast<double>(centre - low);
    for (int64_t j = centre; j < high && j < rows; ++j)
      at(j, i) = static_cast<double>(high - j) / static_cast<double>(high - centre);
  }
  return setConstant(node, {rows, columns}, values);
}

ArrayRef<OpRule> onnx_import::getSignalRules() {
  static constexpr OpRule rules[] = {
      {"BlackmanWindow", 17, 28, importBlackmanWindow},
      {"HammingWindow", 17, 28, importHammingWindow},
      {"HannWindow", 17, 28, importHannWindow},
      {"MelWeightMatrix", 17, 28, importMelWeightMatrix},
  };
  return rules;
}
