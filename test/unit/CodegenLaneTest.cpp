//===- CodegenLaneTest.cpp - sorts, scans, gathers and scatters -----------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "test/unit/CodegenTesting.h"

using namespace gridloom;
using namespace gridloom::testing;

namespace {

const char *const kElements[] = {"f32", "f64", "f16",  "bf16", "i64",  "i32", "i16",
                                 "i8",  "ui8", "ui16", "ui32", "ui64", "i1"};

/// One element type for each type that kernels compute in.
const char *const kSomeElements[] = {"f32", "bf16", "i64", "ui16", "i1"};

bool isNarrowFloat(const std::string &element) { return element == "f16" || element == "bf16"; }

/// A kernel of one operation; names must differ within a text.
std::string oneOp(const std::string &arguments, const std::string &op, const std::string &types,
                  const std::string &result, const std::string &name = "k") {
  return kernelText(arguments,
                    "  %0 = loom." + op + " : " + types + "\n  loom.yield %0 : " + result, name);
}

std::string argsort(const std::string &from, const std::string &to, const std::string &how,
                    const std::string &name = "k") {
  return oneOp("%x: " + from, "argsort %x " + how, "(" + from + ") -> " + to, to, name);
}

std::string numbered(const std::string &text) { return "k" + std::to_string(text.size()); }

/// An argsort of f32 values, all in one lane.
void checkOrder(const std::vector<double> &values, int64_t taken, bool descending,
                ElementKind kind = ElementKind::F32, const std::string &element = "f32") {
  int64_t n = values.size();
  RunOptions options;
  options.inputs[0] = HostTensor::fromDoubles(kind, {n}, values);
  options.tolerance = 0;
  checkKernels(argsort("tensor<" + std::to_string(n) + "x" + element + ">",
                       "tensor<" + std::to_string(taken) + "xi64>",
                       descending ? "dim = 0 descending" : "dim = 0"),
               options);
}

} // namespace

TEST(CodegenLanes, CumulativeOfEveryKindAndType) {
  for (std::string element : kSomeElements)
    for (std::vector<std::string> kinds :
         {std::vector<std::string>{"sum", "max", "min"}, {"prod"}}) {
      std::string text;
      for (const std::string &kind : kinds)
        for (auto [shape, how] : {std::pair<std::string, std::string>{"7x3x5", "1 exclusive"},
                                  {"9x130", "0 reverse"},
                                  {"5", "0 exclusive reverse"}}) {
          std::string type = "tensor<" + shape + "x" + element + ">";
          text += oneOp("%x: " + type, "cumulative " + kind + " %x dim = " + how, type, type,
                        numbered(text));
        }
      RunOptions options;
      options.low = kinds[0] == "prod" ? 0.8 : -1;
      options.high = kinds[0] == "prod" ? 1.2 : 1;
      options.tolerance = isNarrowFloat(element) ? 4e-2 : 1e-5;
      auto compiled = checkKernels(text, options);
      for (const codegen::KernelInfo &info : compiled.kernels)
        EXPECT_EQ(info.skeleton, plan::Skeleton::Lanes);
    }
}

TEST(CodegenLanes, ScatterOfEveryKindAndType) {
  for (std::string element : kSomeElements) {
    std::string elements, slices;
    for (std::string kind :
         {"", " reduce = sum", " reduce = prod", " reduce = max", " reduce = min"}) {
      std::string x = "tensor<2x7x3x" + element + ">", u = "tensor<2x6x3x" + element + ">";
      elements += oneOp("%x: " + x + ", %i: tensor<2x6x3xi64>, %u: " + u,
                        "scatter %x, %i, %u dim = 1" + kind,
                        "(" + x + ", tensor<2x6x3xi64>, " + u + ") -> " + x, x, numbered(elements));
      x = "tensor<30x700x" + element + ">", u = "tensor<4x700x" + element + ">";
      slices +=
          oneOp("%x: " + x + ", %i: tensor<4xi32>, %u: " + u, "scatter %x, %i, %u dim = 0" + kind,
                "(" + x + ", tensor<4xi32>, " + u + ") -> " + x, x, numbered(slices));
    }
    RunOptions options;
    options.tolerance = isNarrowFloat(element) ? 4e-2 : 1e-5;
    // Repeated indices, and some out of range on both sides.
    options.inputs[1] = HostTensor::fromInts(
        ElementKind::I64, {2, 6, 3}, {0, 1, 2, 3, 4, 5,  6, -1, 7, 100, 2, 2, 2, 2, 2, 0, 0, 0,
                                      1, 1, 1, 0, 6, -9, 6, 6,  6, 5,   4, 3, 2, 1, 0, 3, 3, 3});
    checkKernels(elements, options);
    options.inputs[1] = HostTensor::fromInts(ElementKind::I32, {4}, {2, 29, -1, 2});
    checkKernels(slices, options);
  }
}

TEST(CodegenLanes, ScatterMayRunInPlace) {
  std::string text = oneOp(
      "%x: tensor<5x4xf32>, %i: tensor<2xi64>, %u: tensor<2x4xf32>", "scatter %x, %i, %u dim = 0",
      "(tensor<5x4xf32>, tensor<2xi64>, tensor<2x4xf32>) -> tensor<5x4xf32>", "tensor<5x4xf32>");
  auto compiled = checkKernels(text);
  ASSERT_EQ(compiled.kernels[0].inPlace.size(), 1u);
  EXPECT_EQ(compiled.kernels[0].inPlace[0], std::make_pair(0u, 0u));
  LoadedKernels loaded(compiled.sharedObject);
  float x[20], u[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  for (int i = 0; i < 20; ++i)
    x[i] = static_cast<float>(100 + i);
  int64_t indices[2] = {3, 1};
  void *pointers[] = {x, indices, u, x};
  loaded.find("k")(pointers, 0, compiled.kernels[0].rows);
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(x[i], i / 4 == 3   ? u[i % 4]
                    : i / 4 == 1 ? u[4 + i % 4]
                                 : static_cast<float>(100 + i));
}

TEST(CodegenLanes, ArgsortOfEveryType) {
  for (std::string element : kElements) {
    std::string text;
    for (std::string order : {"", " descending"})
      for (auto [from, to, dim] :
           {std::tuple<std::string, std::string, std::string>{"5x37x3", "5x37x3", "1"},
            {"3x200", "3x7", "1"},
            {"1", "1", "0"},
            {"100x2", "1x2", "0"}}) {
        if (element != "f32" && from != "5x37x3" && order.empty())
          continue;
        text += argsort("tensor<" + from + "x" + element + ">", "tensor<" + to + "xi64>",
                        "dim = " + dim + order, numbered(text));
      }
    checkKernels(text);
  }
}

TEST(CodegenLanes, ArgsortOrdersSpecialFloats) {
  double inf = INFINITY, nan = std::nan("");
  std::vector<double> values{0.0,  -0.0, 1,     nan,    -inf, inf,  -1,
                             -nan, 0.0,  1e-45, -1e-45, inf,  -0.0, 3e38};
  int64_t n = values.size();
  for (auto [kind, element] : {std::pair<ElementKind, std::string>{ElementKind::F32, "f32"},
                               {ElementKind::F64, "f64"},
                               {ElementKind::F16, "f16"},
                               {ElementKind::BF16, "bf16"}}) {
    std::string text;
    for (std::string order : {"", " descending"})
      for (std::string taken : {"3", "14"})
        text += argsort("tensor<14x" + element + ">", "tensor<" + taken + "xi64>",
                        "dim = 0" + order, numbered(text));
    RunOptions options;
    options.tolerance = 0;
    options.inputs[0] = HostTensor::fromDoubles(kind, {n}, values);
    checkKernels(text, options);
  }
}

TEST(CodegenLanes, ArgsortOfManyElements) {
  std::mt19937 random(3);
  std::vector<double> values(50000), sorted(50000);
  for (auto [i, value] : llvm::enumerate(values)) {
    value = std::uniform_int_distribution<int>(-9999, 9999)(random);
    sorted[i] = static_cast<double>(i);
  }
  checkOrder(values, 50000, false);
  checkOrder(sorted, 50000, true);
  checkOrder(values, 50, true);
  // Sorted values: each element displaces another.
  checkOrder(sorted, 5000, true);
  checkOrder(values, 50000, false, ElementKind::F64, "f64");
}

TEST(CodegenLanes, GatherElements) {
  for (std::string element : {"f32", "i64", "ui16", "i1"}) {
    RunOptions options;
    options.inputs[1] =
        HostTensor::fromInts(ElementKind::I64, {2, 3, 4}, {0, 4, 2, 1, 3, 3, 0, 4, 1, 1, 2, 0,
                                                           4, 4, 4, 4, 0, 0, 0, 0, 1, 2, 3, 0});
    std::string x = "tensor<2x5x4x" + element + ">", y = "tensor<2x3x4x" + element + ">";
    checkKernels(oneOp("%x: " + x + ", %i: tensor<2x3x4xi64>", "gather_elements %x, %i dim = 1",
                       "(" + x + ", tensor<2x3x4xi64>) -> " + y, y),
                 options);
  }
  std::string body = "  %0 = loom.exp %x : tensor<7x40xf32>\n"
                     "  %1 = loom.gather_elements %0, %i dim = 1 : (tensor<7x40xf32>, "
                     "tensor<7x33xi32>) -> tensor<7x33xf32>\n  loom.yield %1 : tensor<7x33xf32>";
  checkKernels(kernelText("%x: tensor<7x40xf32>, %i: tensor<7x33xi32>", body));
}

TEST(CodegenLanes, Reverse) {
  for (std::string shape : {"17", "5x33", "3x4x20"})
    for (std::string dims : {"[0]", "[1]", "[0, 2]", "[0, 1]"}) {
      size_t rank = llvm::StringRef(shape).count('x') + 1;
      if (static_cast<size_t>(dims[dims.size() - 2] - '0') >= rank)
        continue;
      std::string type = "tensor<" + shape + "xf32>";
      checkKernels(oneOp("%x: " + type, "reverse %x dims = " + dims, type, type));
    }
  // Through a reshape and a slice.
  checkKernels(
      kernelText("%x: tensor<6x20xf32>",
                 "  %0 = loom.reverse %x dims = [0, 1] : tensor<6x20xf32>\n"
                 "  %1 = loom.reshape %0 : (tensor<6x20xf32>) -> tensor<4x30xf32>\n"
                 "  %2 = loom.slice %1 [1, 2] to [4, 29] by [2, 3] : (tensor<4x30xf32>) -> "
                 "tensor<2x9xf32>\n  loom.yield %2 : tensor<2x9xf32>"));
}

TEST(CodegenLanes, ArgReduce) {
  for (std::string element : kSomeElements) {
    std::string text;
    for (std::string kind : {"max", "min"})
      for (std::string last : {"", " last"})
        for (auto [dim, result] :
             {std::pair<std::string, std::string>{"0", "33x5"}, {"1", "4x5"}, {"2", "4x33"}}) {
          std::string x = "tensor<4x33x5x" + element + ">", y = "tensor<" + result + "xi64>";
          text += oneOp("%x: " + x, "arg_reduce " + kind + " %x dim = " + dim + last,
                        "(" + x + ") -> " + y, y, numbered(text));
        }
    checkKernels(text);
  }
  double nan = std::nan("");
  RunOptions options;
  options.inputs[0] = HostTensor::fromDoubles(ElementKind::F32, {2, 4},
                                              {1, nan, 3, nan, -INFINITY, -INFINITY, nan, 0});
  for (std::string last : {"", " last"})
    checkKernels(oneOp("%x: tensor<2x4xf32>", "arg_reduce max %x dim = 1" + last,
                       "(tensor<2x4xf32>) -> tensor<2xi64>", "tensor<2xi64>"),
                 options);
}

TEST(CodegenLanes, NothingRunsBesideALaneOperation) {
  std::string message;
  mlir::ScopedDiagnosticHandler handler(&getContext(), [&](mlir::Diagnostic &diagnostic) {
    message += diagnostic.str();
    return mlir::success();
  });
  std::string text =
      kernelText("%x: tensor<4xf32>", "  %0 = loom.exp %x : tensor<4xf32>\n"
                                      "  %1 = loom.cumulative sum %0 dim = 0 : tensor<4xf32>\n"
                                      "  loom.yield %1 : tensor<4xf32>");
  EXPECT_TRUE(mlir::failed(codegen::compileCpuKernels(*parse(text))));
  EXPECT_EQ(message, "kernel k: loom.cumulative has no kernel code; keep it out of kernels");
}
