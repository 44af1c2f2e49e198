//===- CodegenGpuTest.cpp - kernels as PTX and cubins ---------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "test/unit/CodegenTesting.h"

#include "gmock/gmock.h"

using namespace gridloom;
using namespace gridloom::testing;
using ::testing::HasSubstr;
using ::testing::Not;

namespace {

const std::string kBiasGelu =
    kernelText("%x: tensor<512x3072xf32>, %b: tensor<3072xf32>",
               "  %0 = loom.broadcast %b dims = [1] : (tensor<3072xf32>) -> tensor<512x3072xf32>\n"
               "  %1 = loom.add %x, %0 : tensor<512x3072xf32>\n"
               "  %2 = loom.gelu erf %1 : tensor<512x3072xf32>\n"
               "  loom.yield %2 : tensor<512x3072xf32>",
               "bias_gelu");

codegen::CompiledGpuKernel compileOne(const std::string &text,
                                      const codegen::GpuOptions &options = {}) {
  mlir::OwningOpRef<mlir::ModuleOp> module = parse(text);
  auto kernels = codegen::compileGpuKernels(*module, options);
  EXPECT_TRUE(mlir::succeeded(kernels) && kernels->size() == 1);
  if (mlir::failed(kernels) || kernels->empty())
    return {};
  return kernels->front();
}

/// The first error of compiling `text`.
std::string errorOf(const std::string &text, const codegen::GpuOptions &options) {
  std::string message;
  mlir::ScopedDiagnosticHandler handler(&getContext(), [&](mlir::Diagnostic &diagnostic) {
    if (message.empty())
      message = diagnostic.str();
    return mlir::success();
  });
  mlir::OwningOpRef<mlir::ModuleOp> module = parse(text);
  EXPECT_TRUE(mlir::failed(codegen::compileGpuKernels(*module, options)));
  return message;
}

} // namespace

TEST(CodegenGpu, LaunchAndPtx) {
  codegen::CompiledGpuKernel kernel = compileOne(kBiasGelu);
  EXPECT_EQ(kernel.info.symbol, "bias_gelu");
  EXPECT_EQ(kernel.info.numPointers, 3u);
  EXPECT_EQ(kernel.info.skeleton, "elementwise");
  EXPECT_EQ(kernel.grid[0], 512 * 3072 / 4 / 256u);
  EXPECT_EQ(kernel.block[0], 256u);
  EXPECT_THAT(kernel.ptx, HasSubstr(".entry bias_gelu"));
  EXPECT_THAT(kernel.ptx, HasSubstr("ld.global.v4.b32"));
  EXPECT_THAT(kernel.ptx, HasSubstr("st.global.v4.b32"));
}

TEST(CodegenGpu, RegistersAndSpills) {
  codegen::CompiledGpuKernel kernel = compileOne(kBiasGelu);
  if (kernel.cubin.empty())
    GTEST_SKIP() << "no ptxas: set CUDA_HOME to a CUDA toolkit";
  EXPECT_EQ(kernel.cubin.substr(1, 3), "ELF");
  EXPECT_GT(kernel.registers, 0);
  // 40 registers still allow 48 warps of the 64 that a multiprocessor holds.
  EXPECT_LE(kernel.registers, 40);
  EXPECT_EQ(kernel.spillBytes, 0);
  EXPECT_EQ(kernel.sharedBytes, 0u);
}

TEST(CodegenGpu, WithoutToolkitThereIsPtxOfPolynomials) {
  codegen::GpuOptions options;
  options.toolkit = "/nonexistent";
  codegen::CompiledGpuKernel kernel = compileOne(kBiasGelu, options);
  EXPECT_TRUE(kernel.cubin.empty());
  EXPECT_EQ(kernel.registers, -1);
  EXPECT_THAT(kernel.ptx, HasSubstr(".entry bias_gelu"));
  EXPECT_THAT(kernel.ptx, Not(HasSubstr("__nv_")));
  EXPECT_THAT(
      errorOf(kernelText("%x: tensor<8xf64>",
                         "  %0 = loom.erf %x : tensor<8xf64>\n  loom.yield %0 : tensor<8xf64>"),
              options),
      HasSubstr("kernel k: math.erf of 'f64' needs libdevice of the CUDA toolkit; set CUDA_HOME"));
}

TEST(CodegenGpu, OtherChips) {
  codegen::GpuOptions options;
  options.chip = "sm_80";
  EXPECT_THAT(compileOne(kBiasGelu, options).ptx, HasSubstr(".target sm_80"));
  options.chip = "sm_1";
  EXPECT_EQ(errorOf(kBiasGelu, options),
            "unknown GPU architecture 'sm_1'; use sm_80, sm_90 or the like");
}

TEST(CodegenGpu, EqualModulesGiveEqualBytes) {
  codegen::CompiledGpuKernel first = compileOne(kBiasGelu), second = compileOne(kBiasGelu);
  EXPECT_EQ(first.ptx, second.ptx);
  EXPECT_EQ(first.cubin, second.cubin);
}

TEST(CodegenGpu, ShortRowsHaveAWarpLongOnesABlock) {
  auto softmax = [](int64_t rows, int64_t columns) {
    std::string type = "tensor<" + std::to_string(rows) + "x" + std::to_string(columns) + "xf32>";
    return compileOne(kernelText(
        "%x: " + type, "  %0 = loom.softmax %x dim = 1 : " + type + "\n  loom.yield %0 : " + type,
        "rows"));
  };
  codegen::CompiledGpuKernel warps = softmax(37, 128), blocks = softmax(37, 3072);
  EXPECT_EQ(warps.info.skeleton, "row");
  EXPECT_EQ(warps.grid[0], 5u);
  EXPECT_EQ(blocks.grid[0], 37u);
  EXPECT_THAT(blocks.ptx, HasSubstr("shfl.sync.bfly.b32"));
  for (const codegen::CompiledGpuKernel *kernel : {&warps, &blocks})
    if (!kernel->cubin.empty())
      EXPECT_EQ(kernel->spillBytes, 0);
}
