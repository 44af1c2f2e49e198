//===- CodegenWindowTest.cpp - padding and sliding windows ----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "test/unit/CodegenTesting.h"

using namespace gridloom;
using namespace gridloom::testing;

namespace {

using Sizes = std::vector<int64_t>;

std::string list(const Sizes &numbers) {
  std::string text;
  for (int64_t number : numbers)
    text += (text.empty() ? "" : ", ") + std::to_string(number);
  return "[" + text + "]";
}

std::string type(const Sizes &shape, const std::string &element) {
  std::string text = "tensor<";
  for (int64_t size : shape)
    text += std::to_string(size) + "x";
  return text + element + ">";
}

std::string signature(const std::string &from, const std::string &to) {
  return " : (" + from + ") -> " + to + "\n";
}

/// The line of text that pads %input to %name; `shape` becomes the result's.
std::string pad(const std::string &name, const std::string &input, Sizes &shape, const Sizes &low,
                const Sizes &high, const Sizes &interior, const std::string &element,
                const std::string &value) {
  std::string from = type(shape, element);
  for (size_t i = 0; i < shape.size(); ++i)
    shape[i] = low[i] + shape[i] + (shape[i] - 1) * interior[i] + high[i];
  return "  %" + name + " = loom.pad %" + input + " value = " + value + " : " + element +
         " low = " + list(low) + " high = " + list(high) + " interior = " + list(interior) +
         signature(from, type(shape, element));
}

/// The line of text that slides windows over the last two of four dimensions.
std::string slide(const std::string &name, const std::string &input, Sizes &shape,
                  const Sizes &sizes, const Sizes &strides, const Sizes &dilations,
                  const std::string &element) {
  std::string from = type(shape, element);
  for (size_t i = 0; i < 2; ++i) {
    shape[i + 2] = (shape[i + 2] - (sizes[i] - 1) * dilations[i] - 1) / strides[i] + 1;
    shape.push_back(sizes[i]);
  }
  return "  %" + name + " = loom.window %" + input + " dims = [2, 3] sizes = " + list(sizes) +
         " strides = " + list(strides) + " dilations = " + list(dilations) +
         signature(from, type(shape, element));
}

class Width : public ::testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(, Width, ::testing::Values(1, 5, 17, 56));

} // namespace

TEST_P(Width, PadAround) {
  std::string text;
  for (auto [element, value] :
       {std::pair<std::string, std::string>{"f32", "0xFF800000"}, {"f64", "0.5"}, {"i64", "-7"}})
    for (Sizes low : {Sizes{0, 1, 1}, Sizes{2, 0, 3}, Sizes{0, 0, 20}})
      for (Sizes high : {Sizes{0, 1, 1}, Sizes{1, 0, 0}, Sizes{0, 3, 17}}) {
        Sizes shape{3, 4, GetParam()};
        std::string input = "%x: " + type(shape, element);
        std::string body = pad("0", "x", shape, low, high, {0, 0, 0}, element, value);
        text += kernelText(input, body + "  loom.yield %0 : " + type(shape, element),
                           "k" + std::to_string(text.size()));
      }
  checkKernels(text);
}

TEST_P(Width, PadBetween) {
  std::string text;
  for (Sizes interior : {Sizes{0, 0, 1}, Sizes{1, 2, 0}, Sizes{0, 1, 3}})
    for (Sizes low : {Sizes{0, 0, 0}, Sizes{1, 2, 3}}) {
      Sizes shape{2, 3, GetParam()};
      std::string input = "%x: " + type(shape, "f32");
      std::string body = pad("0", "x", shape, low, {0, 1, 2}, interior, "f32", "0.25");
      text += kernelText(input, body + "  loom.yield %0 : " + type(shape, "f32"),
                         "k" + std::to_string(text.size()));
    }
  checkKernels(text);
}

TEST_P(Width, PaddedFunction) {
  Sizes shape{2, 5, GetParam()};
  std::string before = type(shape, "f32");
  std::string body = "  %0 = loom.add %x, %y : " + before + "\n  %1 = loom.exp %0 : " + before +
                     "\n" + pad("2", "1", shape, {0, 1, 1}, {0, 1, 1}, {0, 0, 0}, "f32", "0.0");
  checkKernels(kernelText("%x: " + before + ", %y: " + before,
                          body + "  loom.yield %2 : " + type(shape, "f32")));
}

TEST_P(Width, Columns) {
  std::string text;
  for (auto [sizes, strides, dilations] : {std::tuple<Sizes, Sizes, Sizes>{{3, 3}, {1, 1}, {1, 1}},
                                           {{3, 2}, {2, 2}, {1, 1}},
                                           {{2, 3}, {1, 3}, {2, 2}},
                                           {{1, 1}, {2, 2}, {1, 1}}}) {
    Sizes shape{2, 3, 9, GetParam() + 6};
    std::string input = "%x: " + type(shape, "f32");
    std::string body = slide("0", "x", shape, sizes, strides, dilations, "f32");
    Sizes moved{shape[0], shape[1], shape[4], shape[5], shape[2], shape[3]};
    body += "  %1 = loom.transpose %0 [0, 1, 4, 5, 2, 3]" +
            signature(type(shape, "f32"), type(moved, "f32"));
    text += kernelText(
        input, body + "  loom.yield %0, %1 : " + type(shape, "f32") + ", " + type(moved, "f32"),
        "k" + std::to_string(text.size()));
  }
  checkKernels(text);
}

TEST_P(Width, ReduceWindows) {
  std::string text;
  for (std::string element : {"f32", "f16", "i32"})
    for (std::string kind : {"sum", "max", "min"})
      for (auto [sizes, strides, dilations] :
           {std::tuple<Sizes, Sizes, Sizes>{{3, 3}, {1, 1}, {1, 1}},
            {{3, 3}, {2, 2}, {1, 1}},
            {{2, 2}, {2, 2}, {1, 1}},
            {{4, 1}, {1, 3}, {2, 1}}}) {
        Sizes shape{2, 3, 9, GetParam() + 3};
        std::string input = "%x: " + type(shape, element);
        std::string body = slide("0", "x", shape, sizes, strides, dilations, element);
        std::string windows = type(shape, element);
        shape.resize(4);
        std::string result = type(shape, element);
        body += "  %1 = loom.reduce " + kind + " %0 dims = [4, 5]" + signature(windows, result);
        text += kernelText(input, body + "  loom.yield %1 : " + result,
                           "k" + std::to_string(text.size()));
      }
  RunOptions options;
  options.tolerance = 2e-3; // sums of f16 round in another order
  checkKernels(text, options);
}

TEST_P(Width, ConvolveChannels) {
  Sizes shape{2, 5, 8, GetParam() + 2};
  std::string input = "%x: " + type(shape, "f32") + ", %w: tensor<5x3x3xf32>, %b: tensor<5xf32>";
  std::string body = slide("0", "x", shape, {3, 3}, {1, 1}, {1, 1}, "f32");
  std::string windows = type(shape, "f32");
  shape.resize(4);
  std::string result = type(shape, "f32");
  body += "  %1 = loom.broadcast %w dims = [1, 4, 5]" + signature("tensor<5x3x3xf32>", windows) +
          "  %2 = loom.multiply %0, %1 : " + windows + "\n  %3 = loom.reduce sum %2 dims = [4, 5]" +
          signature(windows, result) + "  %4 = loom.broadcast %b dims = [1]" +
          signature("tensor<5xf32>", result) + "  %5 = loom.add %3, %4 : " + result + "\n";
  RunOptions options;
  options.tolerance = 1e-5;
  checkKernels(kernelText(input, body + "  loom.yield %5 : " + result), options);
}

TEST_P(Width, PadInsideWindows) {
  // The compiler does not fuse these, but a body may contain them: choices depend on reduced loops.
  Sizes shape{1, 2, 6, GetParam()};
  std::string input = "%x: " + type(shape, "f32");
  std::string body = pad("0", "x", shape, {0, 0, 1, 1}, {0, 0, 1, 1}, {0, 0, 0, 0}, "f32", "0.0") +
                     slide("1", "0", shape, {3, 3}, {1, 1}, {1, 1}, "f32");
  std::string windows = type(shape, "f32");
  shape.resize(4);
  std::string result = type(shape, "f32");
  body += "  %2 = loom.reduce sum %1 dims = [4, 5]" + signature(windows, result);
  RunOptions options;
  options.tolerance = 1e-5;
  checkKernels(kernelText(input, body + "  loom.yield %2 : " + result), options);
}
