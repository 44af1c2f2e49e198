//===- CodegenShapeTest.cpp - rows, reductions and moves ------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "test/unit/CodegenTesting.h"

using namespace gridloom;
using namespace gridloom::testing;

namespace {

/// A kernel whose lines use types written with `N` for the last dimension.
std::string withN(std::string text, int64_t n) {
  for (size_t at = 0; (at = text.find('N', at)) != std::string::npos;)
    text.replace(at, 1, std::to_string(n));
  return text;
}

class LastDim : public ::testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(, LastDim, ::testing::Values(1, 2, 7, 16, 17, 31, 100, 384, 1000));

} // namespace

TEST_P(LastDim, Softmax) {
  auto compiled = checkKernels(
      withN(kernelText("%x: tensor<5xNxf32>", "  %0 = loom.softmax %x dim = 1 : tensor<5xNxf32>\n"
                                              "  loom.yield %0 : tensor<5xNxf32>"),
            GetParam()));
  if (GetParam() > 1) {
    EXPECT_EQ(compiled.kernels[0].skeleton, plan::Skeleton::Row);
    EXPECT_EQ(compiled.kernels[0].rows, 5);
  }
}

TEST_P(LastDim, ScaledMaskedSoftmax) {
  checkKernels(
      withN(kernelText(
                "%x: tensor<2x3x4xNxf32>, %m: tensor<2xNxi64>",
                "  %z = loom.constant dense<0> : tensor<2xNxi64>\n"
                "  %p = loom.compare ne %m, %z : (tensor<2xNxi64>, tensor<2xNxi64>) -> "
                "tensor<2xNxi1>\n"
                "  %pb = loom.broadcast %p dims = [0, 3] : (tensor<2xNxi1>) -> tensor<2x3x4xNxi1>\n"
                "  %s = loom.constant dense<0.125> : tensor<2x3x4xNxf32>\n"
                "  %low = loom.constant dense<-3.4e38> : tensor<2x3x4xNxf32>\n"
                "  %0 = loom.multiply %x, %s : tensor<2x3x4xNxf32>\n"
                "  %1 = loom.select %pb, %0, %low : tensor<2x3x4xNxi1>, tensor<2x3x4xNxf32>\n"
                "  %2 = loom.softmax %1 dim = 3 : tensor<2x3x4xNxf32>\n"
                "  loom.yield %2 : tensor<2x3x4xNxf32>"),
            GetParam()));
}

TEST_P(LastDim, SoftmaxOfOtherDims) {
  for (std::string dim : {"0", "1"})
    checkKernels(withN(kernelText("%x: tensor<6x9xNxf32>",
                                  "  %0 = loom.softmax %x dim = " + dim +
                                      " : tensor<6x9xNxf32>\n  loom.yield %0 : tensor<6x9xNxf32>"),
                       GetParam()));
}

TEST_P(LastDim, LayerNorm) {
  RunOptions options;
  // The difference of two nearly equal elements cancels most digits.
  options.tolerance = GetParam() < 16 ? 2e-5 : 2e-6;
  checkKernels(
      withN(kernelText("%x: tensor<3x5xNxf32>, %r: tensor<3x5xNxf32>, %s: tensor<Nxf32>, %b: "
                       "tensor<Nxf32>",
                       "  %0 = loom.add %x, %r : tensor<3x5xNxf32>\n"
                       "  %1 = loom.layer_norm %0, %s, %b epsilon = 1.0e-5 : (tensor<3x5xNxf32>, "
                       "tensor<Nxf32>, tensor<Nxf32>) -> tensor<3x5xNxf32>\n"
                       "  %2 = loom.layer_norm %0, %s epsilon = 1.0e-5 : (tensor<3x5xNxf32>, "
                       "tensor<Nxf32>) -> tensor<3x5xNxf32>\n"
                       "  %3 = loom.rms_norm %0, %s epsilon = 1.0e-5 : (tensor<3x5xNxf32>, "
                       "tensor<Nxf32>) -> tensor<3x5xNxf32>\n"
                       "  loom.yield %0, %1, %2, %3 : tensor<3x5xNxf32>, tensor<3x5xNxf32>, "
                       "tensor<3x5xNxf32>, tensor<3x5xNxf32>"),
            GetParam()),
      options);
}

TEST_P(LastDim, ReduceEveryDim) {
  for (std::string element : {"f32", "f64", "i64", "i32"})
    for (std::string kind : {"sum", "max", "min", "prod"}) {
      std::string text;
      for (auto [dims, shape] : {std::pair<std::string, std::string>{"0", "3xNx"},
                                 {"1", "4xNx"},
                                 {"2", "4x3x"},
                                 {"0, 1", "Nx"},
                                 {"1, 2", "4x"},
                                 {"0, 2", "3x"},
                                 {"0, 1, 2", ""}})
        text += kernelText("%x: tensor<4x3xNx" + element + ">",
                           "  %0 = loom.reduce " + kind + " %x dims = [" + dims +
                               "] : (tensor<4x3xNx" + element + ">) -> tensor<" + shape + element +
                               ">\n  loom.yield %0 : tensor<" + shape + element + ">",
                           "k" + std::to_string(text.size()));
      RunOptions options;
      options.low = kind == "prod" ? 0.9 : -1;
      options.high = kind == "prod" ? 1.1 : 1;
      options.tolerance = 1e-5;
      checkKernels(withN(text, GetParam()), options);
    }
}

TEST_P(LastDim, MeanPoolingAndNormalisation) {
  RunOptions options;
  options.tolerance = 1e-5;
  checkKernels(
      withN(kernelText(
                "%x: tensor<3x9xNxf32>, %m: tensor<3x9xi64>",
                "  %0 = loom.convert %m : (tensor<3x9xi64>) -> tensor<3x9xf32>\n"
                "  %1 = loom.broadcast %0 dims = [0, 1] : (tensor<3x9xf32>) -> tensor<3x9xNxf32>\n"
                "  %2 = loom.multiply %x, %1 : tensor<3x9xNxf32>\n"
                "  %3 = loom.reduce sum %2 dims = [1] : (tensor<3x9xNxf32>) -> tensor<3xNxf32>\n"
                "  %4 = loom.reduce sum %0 dims = [1] : (tensor<3x9xf32>) -> tensor<3xf32>\n"
                "  %5 = loom.constant dense<1.0e-9> : tensor<3xf32>\n"
                "  %6 = loom.maximum %4, %5 : tensor<3xf32>\n"
                "  %7 = loom.broadcast %6 dims = [0] : (tensor<3xf32>) -> tensor<3xNxf32>\n"
                "  %8 = loom.divide %3, %7 : tensor<3xNxf32>\n"
                "  %9 = loom.multiply %8, %8 : tensor<3xNxf32>\n"
                "  %10 = loom.reduce sum %9 dims = [1] : (tensor<3xNxf32>) -> tensor<3xf32>\n"
                "  %11 = loom.sqrt %10 : tensor<3xf32>\n"
                "  %12 = loom.broadcast %11 dims = [0] : (tensor<3xf32>) -> tensor<3xNxf32>\n"
                "  %13 = loom.divide %8, %12 : tensor<3xNxf32>\n"
                "  loom.yield %13 : tensor<3xNxf32>"),
            GetParam()),
      options);
}

TEST_P(LastDim, Transposes) {
  std::string text;
  for (auto [permutation, shape] : {std::pair<std::string, std::string>{"0, 2, 1", "4xNx3"},
                                    {"1, 0, 2", "3x4xN"},
                                    {"2, 1, 0", "Nx3x4"},
                                    {"1, 2, 0", "3xNx4"},
                                    {"2, 0, 1", "Nx4x3"}})
    for (std::string element : {"f32", "i1", "i64"})
      text += kernelText("%x: tensor<4x3xNx" + element + ">",
                         "  %0 = loom.transpose %x [" + permutation + "] : (tensor<4x3xNx" +
                             element + ">) -> tensor<" + shape + "x" + element +
                             ">\n  loom.yield %0 : tensor<" + shape + "x" + element + ">",
                         "k" + std::to_string(text.size()));
  checkKernels(withN(text, GetParam()));
}

TEST_P(LastDim, Concatenations) {
  std::string text;
  for (auto [dim, shape] : {std::pair<std::string, std::string>{"0", "13x4xN"}, {"1", "4x13xN"}})
    text += kernelText(
        "%x: tensor<4x4xNxf32>, %y: tensor<" + std::string(dim == "0" ? "5x4" : "4x5") + "xNxf32>",
        "  %0 = loom.exp %x : tensor<4x4xNxf32>\n"
        "  %1 = loom.concatenate %x, %y, %0 dim = " +
            dim + " : (tensor<4x4xNxf32>, tensor<" + std::string(dim == "0" ? "5x4" : "4x5") +
            "xNxf32>, tensor<4x4xNxf32>) -> tensor<" + shape + "xf32>\n  loom.yield %1 : tensor<" +
            shape + "xf32>",
        "dim" + dim);
  checkKernels(withN(text, GetParam()));
}

TEST_P(LastDim, Slices) {
  checkKernels(withN(kernelText("%x: tensor<6x5xNxf32>",
                                "  %0 = loom.slice %x [1, 0, 0] to [6, 5, N] by [2, 3, 1] : "
                                "(tensor<6x5xNxf32>) -> tensor<3x2xNxf32>\n"
                                "  %1 = loom.tanh %0 : tensor<3x2xNxf32>\n"
                                "  loom.yield %1 : tensor<3x2xNxf32>"),
                     GetParam()));
}

TEST_P(LastDim, GatherRows) {
  RunOptions options;
  options.inputs[1] = HostTensor::fromInts(ElementKind::I64, {2, 3}, {4, 0, 9, 3, 2, 8});
  checkKernels(withN(kernelText("%t: tensor<10xNxf32>, %i: tensor<2x3xi64>, %p: tensor<3xNxf32>",
                                "  %0 = loom.gather %t, %i dim = 0 : (tensor<10xNxf32>, "
                                "tensor<2x3xi64>) -> tensor<2x3xNxf32>\n"
                                "  %1 = loom.broadcast %p dims = [1, 2] : (tensor<3xNxf32>) -> "
                                "tensor<2x3xNxf32>\n"
                                "  %2 = loom.add %0, %1 : tensor<2x3xNxf32>\n"
                                "  loom.yield %2 : tensor<2x3xNxf32>"),
                     GetParam()),
               options);
}

TEST(CodegenShape, GatherInner) {
  RunOptions options;
  options.inputs[1] = HostTensor::fromInts(
      ElementKind::I32, {20}, {0, 1, 2, 3, 4, 5, 6, 6, 5, 4, 3, 2, 1, 0, 0, 1, 2, 3, 4, 5});
  checkKernels(
      kernelText("%t: tensor<4x7xf32>, %i: tensor<20xi32>",
                 "  %0 = loom.gather %t, %i dim = 1 : (tensor<4x7xf32>, tensor<20xi32>) -> "
                 "tensor<4x20xf32>\n  loom.yield %0 : tensor<4x20xf32>"),
      options);
}

TEST(CodegenShape, GatherStaysInside) {
  mlir::OwningOpRef<mlir::ModuleOp> module =
      parse(kernelText("%t: tensor<10x16xf32>, %i: tensor<3xi64>",
                       "  %0 = loom.gather %t, %i dim = 0 : (tensor<10x16xf32>, tensor<3xi64>) -> "
                       "tensor<3x16xf32>\n  loom.yield %0 : tensor<3x16xf32>"));
  auto compiled = codegen::compileCpuKernels(*module);
  ASSERT_TRUE(mlir::succeeded(compiled));
  std::vector<float> table(160), out(48, -1);
  std::iota(table.begin(), table.end(), 0.0F);
  int64_t indices[3] = {-7, 1000000, 4};
  void *pointers[] = {table.data(), indices, out.data()};
  LoadedKernels loaded(compiled->sharedObject);
  loaded.find("k")(pointers, 0, compiled->kernels[0].rows);
  EXPECT_EQ(out[0], 0);
  EXPECT_EQ(out[16], 9 * 16);
  EXPECT_EQ(out[32], 4 * 16);
}

/// There is no nearest row; what lies before the table is not read.
TEST(CodegenShape, GatherOfNothing) {
  mlir::OwningOpRef<mlir::ModuleOp> module = parse(kernelText(
      "%t: tensor<0x16xf32>, %i: tensor<3xi64>, %j: tensor<3x16xi64>",
      "  %0 = loom.gather %t, %i dim = 0 : (tensor<0x16xf32>, tensor<3xi64>) -> tensor<3x16xf32>\n"
      "  %1 = loom.gather_elements %t, %j dim = 0 : (tensor<0x16xf32>, tensor<3x16xi64>) -> "
      "tensor<3x16xf32>\n"
      "  %2 = loom.add %0, %1 : tensor<3x16xf32>\n  loom.yield %2 : tensor<3x16xf32>"));
  auto compiled = codegen::compileCpuKernels(*module);
  ASSERT_TRUE(mlir::succeeded(compiled));
  std::vector<float> before(16, 5), out(48, -1);
  std::vector<int64_t> rows(3), elements(48);
  void *pointers[] = {before.data() + before.size(), rows.data(), elements.data(), out.data()};
  LoadedKernels loaded(compiled->sharedObject);
  loaded.find("k")(pointers, 0, compiled->kernels[0].rows);
  EXPECT_EQ(out, std::vector<float>(48));
}

TEST(CodegenShape, SplitHeads) {
  // q, k and v of one product, per head: slices, reshapes and transposes in one kernel.
  std::string body =
      "  %bb = loom.broadcast %b dims = [1] : (tensor<288xf32>) -> tensor<16x288xf32>\n"
      "  %s = loom.add %x, %bb : tensor<16x288xf32>\n";
  for (int i = 0; i < 3; ++i) {
    std::string n = std::to_string(i), at = std::to_string(96 * i),
                end = std::to_string(96 * (i + 1));
    body += "  %p" + n + " = loom.slice %s [0, " + at + "] to [16, " + end +
            "] by [1, 1] : (tensor<16x288xf32>) -> tensor<16x96xf32>\n  %r" + n +
            " = loom.reshape %p" + n + " : (tensor<16x96xf32>) -> tensor<2x8x3x32xf32>\n  %t" + n +
            " = loom.transpose %r" + n + " [0, 2, " + (i == 1 ? "3, 1" : "1, 3") +
            "] : (tensor<2x8x3x32xf32>) -> tensor<2x3x" + (i == 1 ? "32x8" : "8x32") + "xf32>\n";
  }
  body += "  loom.yield %t0, %t1, %t2 : tensor<2x3x8x32xf32>, tensor<2x3x32x8xf32>, "
          "tensor<2x3x8x32xf32>";
  checkKernels(kernelText("%x: tensor<16x288xf32>, %b: tensor<288xf32>", body));
}

TEST(CodegenShape, MergeHeads) {
  auto compiled = checkKernels(
      kernelText("%x: tensor<2x3x8x32xf32>",
                 "  %0 = loom.transpose %x [0, 2, 1, 3] : (tensor<2x3x8x32xf32>) -> "
                 "tensor<2x8x3x32xf32>\n"
                 "  %1 = loom.reshape %0 : (tensor<2x8x3x32xf32>) -> tensor<16x96xf32>\n"
                 "  loom.yield %1 : tensor<16x96xf32>"));
  EXPECT_EQ(compiled.kernels[0].skeleton, plan::Skeleton::Elementwise);
}

TEST(CodegenShape, ReshapesThatDoNotDivide) {
  checkKernels(
      kernelText("%x: tensor<6x35xf32>",
                 "  %0 = loom.transpose %x [1, 0] : (tensor<6x35xf32>) -> tensor<35x6xf32>\n"
                 "  %1 = loom.reshape %0 : (tensor<35x6xf32>) -> tensor<14x15xf32>\n"
                 "  %2 = loom.tanh %1 : tensor<14x15xf32>\n"
                 "  loom.yield %2 : tensor<14x15xf32>"));
}

TEST(CodegenShape, ReshapeUnderReduction) {
  checkKernels(kernelText("%x: tensor<4x6x35xf32>",
                          "  %0 = loom.transpose %x [0, 2, 1] : (tensor<4x6x35xf32>) -> "
                          "tensor<4x35x6xf32>\n"
                          "  %1 = loom.reshape %0 : (tensor<4x35x6xf32>) -> tensor<4x210xf32>\n"
                          "  %2 = loom.softmax %1 dim = 1 : tensor<4x210xf32>\n"
                          "  %3 = loom.reshape %2 : (tensor<4x210xf32>) -> tensor<8x105xf32>\n"
                          "  loom.yield %2, %3 : tensor<4x210xf32>, tensor<8x105xf32>"));
}

TEST(CodegenShape, ConcatenateUnderReduction) {
  checkKernels(
      kernelText("%x: tensor<4x10xf32>, %y: tensor<4x23xf32>",
                 "  %0 = loom.concatenate %x, %y dim = 1 : (tensor<4x10xf32>, tensor<4x23xf32>) -> "
                 "tensor<4x33xf32>\n"
                 "  %1 = loom.softmax %0 dim = 1 : tensor<4x33xf32>\n"
                 "  %2 = loom.reduce max %0 dims = [1] : (tensor<4x33xf32>) -> tensor<4xf32>\n"
                 "  loom.yield %1, %2 : tensor<4x33xf32>, tensor<4xf32>"));
}

TEST(CodegenShape, ReductionUnderConcatenate) {
  // The parts have different numbers of rows: a softmax must not run over the other part's rows.
  checkKernels(kernelText(
      "%x: tensor<2x40xf32>, %y: tensor<3x40xf32>",
      "  %0 = loom.softmax %x dim = 1 : tensor<2x40xf32>\n"
      "  %1 = loom.softmax %y dim = 1 : tensor<3x40xf32>\n"
      "  %2 = loom.concatenate %0, %1, %0 dim = 0 : (tensor<2x40xf32>, tensor<3x40xf32>, "
      "tensor<2x40xf32>) -> tensor<7x40xf32>\n"
      "  %3 = loom.transpose %2 [1, 0] : (tensor<7x40xf32>) -> tensor<40x7xf32>\n"
      "  %4 = loom.reshape %2 : (tensor<7x40xf32>) -> tensor<35x8xf32>\n"
      "  loom.yield %2, %3, %4 : tensor<7x40xf32>, tensor<40x7xf32>, tensor<35x8xf32>"));
}

TEST(CodegenShape, LongColumns) {
  RunOptions options;
  options.tolerance = 1e-4;
  auto compiled = checkKernels(
      kernelText(
          "%x: tensor<1000x200xf32>",
          "  %0 = loom.reduce sum %x dims = [0] : (tensor<1000x200xf32>) -> tensor<200xf32>\n"
          "  loom.yield %0 : tensor<200xf32>"),
      options);
  // Threads can share the columns.
  EXPECT_EQ(compiled.kernels[0].rows, 4);
}

TEST(CodegenShape, NoElements) {
  checkKernels(
      kernelText("%x: tensor<3x0xf32>",
                 "  %0 = loom.exp %x : tensor<3x0xf32>\n"
                 "  %1 = loom.reduce sum %x dims = [1] : (tensor<3x0xf32>) -> tensor<3xf32>\n"
                 "  %2 = loom.reduce prod %x dims = [0, 1] : (tensor<3x0xf32>) -> tensor<f32>\n"
                 "  loom.yield %0, %1, %2 : tensor<3x0xf32>, tensor<3xf32>, tensor<f32>"));
}

TEST(CodegenShape, SoftmaxOfSoftmax) {
  // The inner sums are needed for the current row and, in the outer softmax's loops, for others.
  checkKernels(kernelText("%x: tensor<16x17x1x6xf32>",
                          "  %0 = loom.tanh %x : tensor<16x17x1x6xf32>\n"
                          "  %1 = loom.softmax %0 dim = 1 : tensor<16x17x1x6xf32>\n"
                          "  %2 = loom.softmax %1 dim = 0 : tensor<16x17x1x6xf32>\n"
                          "  loom.yield %2 : tensor<16x17x1x6xf32>"));
}

TEST(CodegenShape, ConcatenateColumns) {
  checkKernels(
      kernelText("%x: tensor<16x1xf32>, %y: tensor<16x1xf32>",
                 "  %0 = loom.tanh %x : tensor<16x1xf32>\n"
                 "  %1 = loom.concatenate %0, %y dim = 1 : (tensor<16x1xf32>, tensor<16x1xf32>) -> "
                 "tensor<16x2xf32>\n"
                 "  loom.yield %1 : tensor<16x2xf32>"));
}

TEST(CodegenShape, RotateHalf) {
  // Rotary embeddings: x * cos + concat(-x2, x1) * sin.
  checkKernels(kernelText(
      "%x: tensor<2x3x5x32xf32>, %c: tensor<5x32xf32>, %s: tensor<5x32xf32>",
      "  %l = loom.slice %x [0, 0, 0, 0] to [2, 3, 5, 16] by [1, 1, 1, 1] : "
      "(tensor<2x3x5x32xf32>) -> tensor<2x3x5x16xf32>\n"
      "  %h = loom.slice %x [0, 0, 0, 16] to [2, 3, 5, 32] by [1, 1, 1, 1] : "
      "(tensor<2x3x5x32xf32>) -> tensor<2x3x5x16xf32>\n"
      "  %n = loom.negate %h : tensor<2x3x5x16xf32>\n"
      "  %r = loom.concatenate %n, %l dim = 3 : (tensor<2x3x5x16xf32>, tensor<2x3x5x16xf32>) -> "
      "tensor<2x3x5x32xf32>\n"
      "  %cb = loom.broadcast %c dims = [2, 3] : (tensor<5x32xf32>) -> tensor<2x3x5x32xf32>\n"
      "  %sb = loom.broadcast %s dims = [2, 3] : (tensor<5x32xf32>) -> tensor<2x3x5x32xf32>\n"
      "  %0 = loom.multiply %x, %cb : tensor<2x3x5x32xf32>\n"
      "  %1 = loom.multiply %r, %sb : tensor<2x3x5x32xf32>\n"
      "  %2 = loom.add %0, %1 : tensor<2x3x5x32xf32>\n"
      "  loom.yield %2 : tensor<2x3x5x32xf32>"));
}

/// A class token before patches: its row stays live across iterations.
TEST(CodegenShape, TokenBeforePatches) {
  for (auto [element, tolerance] : {std::pair<std::string, double>{"f16", 2e-3}, {"bf16", 2e-2}}) {
    auto tensor = [&, e = element](const char *shape) { return "tensor<" + (shape + e) + ">"; };
    std::string out = tensor("4x17x64x"), first = tensor("4x1x64x"), rest = tensor("4x16x64x"),
                token = tensor("1x64x"), places = tensor("17x64x");
    RunOptions options;
    options.tolerance = tolerance;
    checkKernels(kernelText("%t: " + token + ", %x: " + rest + ", %p: " + places,
                            "  %0 = loom.broadcast %t dims = [1, 2] : (" + token + ") -> " + first +
                                "\n  %1 = loom.concatenate %0, %x dim = 1 : (" + first + ", " +
                                rest + ") -> " + out +
                                "\n  %2 = loom.broadcast %p dims = [1, 2] : (" + places + ") -> " +
                                out + "\n  %3 = loom.add %1, %2 : " + out +
                                "\n  loom.yield %3 : " + out),
                 options);
  }
}

TEST(CodegenShape, HalfIota) {
  for (std::string element : {"f16", "bf16"}) {
    std::string type = "tensor<3x37x" + element + ">";
    checkKernels(kernelText("%x: " + type, "  %0 = loom.iota dim = 1 : " + type +
                                               "\n  %1 = loom.maximum %0, %x : " + type +
                                               "\n  loom.yield %1 : " + type));
  }
}

TEST(CodegenShape, ConstantsAndIota) {
  checkKernels(kernelText(
      "%x: tensor<3x5xf32>",
      "  %c = loom.constant dense<[[1.0, 2.0, 3.0, 4.0, 5.0], [6.0, 7.0, 8.0, 9.0, 10.0], [0.5, "
      "0.25, 0.125, 0.0, -1.0]]> : tensor<3x5xf32>\n"
      "  %b = loom.constant dense<[true, false, true, true, false]> : tensor<5xi1>\n"
      "  %bb = loom.broadcast %b dims = [1] : (tensor<5xi1>) -> tensor<3x5xi1>\n"
      "  %i = loom.iota dim = 1 : tensor<3x5xf32>\n"
      "  %j = loom.iota dim = 0 : tensor<3x5xi64>\n"
      "  %k = loom.iota dim = 1 : tensor<3x5xi64>\n"
      "  %m = loom.compare le %k, %j : (tensor<3x5xi64>, tensor<3x5xi64>) -> tensor<3x5xi1>\n"
      "  %0 = loom.multiply %x, %c : tensor<3x5xf32>\n"
      "  %1 = loom.select %bb, %0, %i : tensor<3x5xi1>, tensor<3x5xf32>\n"
      "  %2 = loom.select %m, %1, %x : tensor<3x5xi1>, tensor<3x5xf32>\n"
      "  loom.yield %2, %m, %k, %bb : tensor<3x5xf32>, tensor<3x5xi1>, tensor<3x5xi64>, "
      "tensor<3x5xi1>"));
}

TEST(CodegenShape, CausalMask) {
  checkKernels(kernelText(
      "%x: tensor<2x2x33x33xf32>",
      "  %i = loom.iota dim = 2 : tensor<2x2x33x33xi64>\n"
      "  %j = loom.iota dim = 3 : tensor<2x2x33x33xi64>\n"
      "  %p = loom.compare ge %i, %j : (tensor<2x2x33x33xi64>, tensor<2x2x33x33xi64>) -> "
      "tensor<2x2x33x33xi1>\n"
      "  %l = loom.constant dense<0xFF800000> : tensor<2x2x33x33xf32>\n"
      "  %0 = loom.select %p, %x, %l : tensor<2x2x33x33xi1>, tensor<2x2x33x33xf32>\n"
      "  %1 = loom.softmax %0 dim = 3 : tensor<2x2x33x33xf32>\n"
      "  loom.yield %1 : tensor<2x2x33x33xf32>"));
}

TEST(CodegenShape, OutputsOfSeveralShapes) {
  RunOptions options;
  options.tolerance = 1e-5;
  checkKernels(
      kernelText("%x: tensor<6x40xf32>, %s: tensor<f32>",
                 "  %sb = loom.broadcast %s dims = [] : (tensor<f32>) -> tensor<6x40xf32>\n"
                 "  %0 = loom.multiply %x, %sb : tensor<6x40xf32>\n"
                 "  %1 = loom.reduce sum %0 dims = [1] : (tensor<6x40xf32>) -> tensor<6xf32>\n"
                 "  %2 = loom.reduce max %0 dims = [0, 1] : (tensor<6x40xf32>) -> tensor<f32>\n"
                 "  loom.yield %0, %1, %2, %x : tensor<6x40xf32>, tensor<6xf32>, tensor<f32>, "
                 "tensor<6x40xf32>"),
      options);
}

TEST(CodegenShape, HalfRows) {
  for (auto [element, tolerance] : {std::pair<std::string, double>{"f16", 2e-3}, {"bf16", 2e-2}}) {
    std::string type = "tensor<4x50x" + element + ">", row = "tensor<50x" + element + ">";
    RunOptions options;
    options.tolerance = tolerance;
    checkKernels(kernelText("%x: " + type + ", %s: " + row,
                            "  %0 = loom.softmax %x dim = 1 : " + type +
                                "\n  %1 = loom.layer_norm %x, %s epsilon = 1.0e-5 : (" + type +
                                ", " + row + ") -> " + type + "\n  loom.yield %0, %1 : " + type +
                                ", " + type),
                 options);
  }
}
