//===- CodegenGpuTest.cpp - kernels as PTX and cubins ---------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/codegen/WriteFile.h"
#include "compiler/target/KernelFiles.h"
#include "compiler/target/Target.h"
#include "support/TemporaryFolder.h"
#include "test/unit/CodegenTesting.h"

#include "llvm/Support/FileSystem.h"
#include "gmock/gmock.h"

#include <filesystem>
#include <fstream>
#include <thread>

using namespace gridloom;
using namespace gridloom::testing;
using ::testing::ElementsAre;
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
  EXPECT_EQ(kernel.info.skeleton, plan::Skeleton::Elementwise);
  EXPECT_THAT(kernel.grid, ElementsAre(512, 3072 / 4 / 256, 1));
  EXPECT_THAT(kernel.block, ElementsAre(256, 1, 1));
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
  // 40 registers still allow 48 of the 64 warps that a multiprocessor can hold.
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

/// Blocks are halved until each multiprocessor has two.
TEST(CodegenGpu, TargetSaysAmongHowManyProcessorsWorkIsDivided) {
  auto threadsOf = [](const std::string &name, int64_t vectors) {
    std::string type = "tensor<" + std::to_string(4 * vectors) + "xf32>", error;
    mlir::OwningOpRef<mlir::ModuleOp> module = parse(kernelText(
        "%x: " + type, "  %0 = loom.abs %x : " + type + "\n  loom.yield %0 : " + type, "k"));
    std::unique_ptr<Target> target = parseTarget({.name = name}, error);
    KernelFiles kernels;
    EXPECT_TRUE(mlir::succeeded(target->emitKernels(*module, kernels)));
    EXPECT_EQ(kernels.kernels["k"].library().substr(0, 5), "cuda0");
    return kernels.kernels["k"].block(0);
  };
  EXPECT_EQ(threadsOf("cuda:sm_80", 2 * 108 * 256), 256u);
  EXPECT_EQ(threadsOf("cuda:sm_80", 2 * 108 * 256 - 1), 128u);
  EXPECT_EQ(threadsOf("cuda:sm_90", 2 * 132 * 256), 256u);
  EXPECT_EQ(threadsOf("cuda:sm_90", 2 * 132 * 256 - 1), 128u);
  EXPECT_EQ(threadsOf("cuda:sm_100", 2 * 148 * 256), 256u);
  EXPECT_EQ(threadsOf("cuda:sm_100", 2 * 148 * 256 - 1), 128u);
}

TEST(CodegenGpu, EqualModulesGiveEqualBytes) {
  codegen::CompiledGpuKernel first = compileOne(kBiasGelu), second = compileOne(kBiasGelu);
  EXPECT_EQ(first.ptx, second.ptx);
  EXPECT_EQ(first.cubin, second.cubin);
}

namespace {

/// A kernel of one operation on %x.
codegen::CompiledGpuKernel compileOp(const std::string &op, const std::string &input,
                                     const std::string &output, bool named = true) {
  std::string types = named ? "(" + input + ") -> " + output : input;
  return compileOne(kernelText(
      "%x: " + input, "  %0 = loom." + op + " : " + types + "\n  loom.yield %0 : " + output, "op"));
}

} // namespace

TEST(CodegenGpu, LaunchesFollowShapes) {
  struct Case {
    std::string op, input, output, skeleton;
    std::array<uint32_t, 3> grid;
    uint32_t threads;
  };
  for (const Case &c : {
           // One warp per short row; several warps in a block if there are many rows.
           Case{"softmax %x dim = 1", "tensor<37x128xf32>", "", "row", {37, 1, 1}, 32},
           Case{"softmax %x dim = 1", "tensor<4096x128xf32>", "", "row", {512, 1, 1}, 256},
           // One block per long row, as large as the row, with up to four vectors per thread.
           Case{"softmax %x dim = 1", "tensor<37x768xf32>", "", "row", {37, 1, 1}, 192},
           Case{"softmax %x dim = 1", "tensor<37x3072xf32>", "", "row", {37, 1, 1}, 256},
           Case{"softmax %x dim = 1", "tensor<2x65536xf32>", "", "row", {2, 1, 1}, 1024},
           // Few columns: a block's threads share each sum. Many: one thread per sum.
           Case{"reduce sum %x dims = [0]",
                "tensor<1024x384xf32>",
                "tensor<384xf32>",
                "column",
                {1, 12, 1},
                256},
           Case{"reduce sum %x dims = [0]",
                "tensor<64x1048576xf32>",
                "tensor<1048576xf32>",
                "row",
                {1024, 1, 1},
                256},
           Case{"transpose %x [1, 0]",
                "tensor<512x3072xf32>",
                "tensor<3072x512xf32>",
                "transpose",
                {16, 96, 1},
                256},
           Case{"transpose %x [0, 2, 1]",
                "tensor<6x100x70xi8>",
                "tensor<6x70x100xi8>",
                "transpose",
                {2, 2, 6},
                256},
       }) {
    bool named = !c.output.empty();
    codegen::CompiledGpuKernel kernel = compileOp(c.op, c.input, named ? c.output : c.input, named);
    EXPECT_EQ(plan::stringifySkeleton(kernel.info.skeleton), c.skeleton) << c.op << " " << c.input;
    EXPECT_EQ(kernel.grid, c.grid) << c.op << " " << c.input;
    EXPECT_EQ(kernel.block[0], c.threads) << c.op << " " << c.input;
    EXPECT_LE(kernel.spillBytes, 0) << c.op << " " << c.input;
  }
}

TEST(CodegenGpu, ProductsOfFewRows) {
  struct Case {
    std::string left, right, dims, output, element;
    std::array<uint32_t, 3> grid;
    uint32_t threads;
    const char *load;
  };
  const char *kAcross = "batch = [] x [] contract = [1] x [0]",
             *kAlong = "batch = [] x [] contract = [1] x [1]",
             *kBatched = "batch = [0] x [0] contract = [2] x [2]";
  for (const Case &c : {
           // Two adjacent vectors, 32 bytes, so that most multiprocessors have a block.
           Case{"1x768", "768x768", kAcross, "1x768", "f32", {96, 1, 1}, 256, "v4.b32"},
           Case{"1x768", "768x768", kAcross, "1x768", "bf16", {48, 1, 1}, 256, "v4.b32"},
           // As wide as still leaves enough blocks; long sums use the most threads.
           Case{"1x3072", "3072x768", kAcross, "1x768", "f16", {48, 1, 1}, 512, "v4.b32"},
           Case{"4x768", "768x3072", kAcross, "4x3072", "f32", {192, 1, 1}, 512, "v4.b32"},
           Case{"4x768", "768x3072", kAcross, "4x3072", "bf16", {192, 1, 1}, 256, "v4.b32"},
           // Their sums fit in shared memory.
           Case{"4x128", "128x33792", kAcross, "4x33792", "f16", {264, 1, 1}, 256, "v4.b32"},
           // Rows of an odd length have no vectors.
           Case{"1x768", "768x50257", kAcross, "1x50257", "f32", {1571, 1, 1}, 512, "b32"},
           // A warp per column; several warps where few columns have long sums.
           Case{"1x768", "50257x768", kAlong, "1x50257", "bf16", {6283, 1, 1}, 256, "v4.b32"},
           Case{"4x768", "50257x768", kAlong, "4x50257", "f32", {6283, 1, 1}, 256, "v4.b32"},
           Case{"1x8192", "64x8192", kAlong, "1x64", "f32", {64, 1, 1}, 256, "v4.b32"},
           // Scores of attention: 16 threads per key.
           Case{"12x1x64", "12x1024x64", kBatched, "12x1x1024", "f32", {64, 12, 1}, 256, "v4.b32"},
       })
    for (const char *chip : {"sm_80", "sm_90", "sm_100"}) {
      auto type = [&](const std::string &shape) {
        return "tensor<" + shape + "x" + c.element + ">";
      };
      std::string out = type(c.output);
      codegen::GpuOptions options;
      options.chip = chip;
      codegen::CompiledGpuKernel kernel = compileOne(
          kernelText("%x: " + type(c.left) + ", %w: " + type(c.right) + ", %b: " + out,
                     "  %0 = loom.dot_general %x, %w " + c.dims + " : (" + type(c.left) + ", " +
                         type(c.right) + ") -> " + out + "\n  %1 = loom.add %0, %b : " + out +
                         "\n  %2 = loom.gelu tanh %1 : " + out + "\n  loom.yield %2 : " + out),
          options);
      SCOPED_TRACE(c.left + " by " + c.right + " of " + c.element + " on " + chip);
      EXPECT_EQ(kernel.info.skeleton, plan::Skeleton::Product);
      EXPECT_EQ(kernel.grid, c.grid);
      EXPECT_EQ(kernel.block[0], c.threads);
      // sm_100 may load a vector of four words as two pairs, for its instructions on pairs.
      EXPECT_TRUE(llvm::StringRef(kernel.ptx).contains(std::string("ld.global.nc.") + c.load) ||
                  (chip == std::string("sm_100") &&
                   kernel.ptx.find("ld.global.nc.v2.b64") != kernel.ptx.npos));
      EXPECT_LE(kernel.spillBytes, 0);
    }
}

TEST(CodegenGpu, EightKernelsHaveOneLibrary) {
  std::string text;
  for (int i = 0; i < 9; ++i)
    text += kernelText("%x: tensor<" + std::to_string(i + 8) + "xf32>",
                       "  %0 = loom.sine %x : tensor<" + std::to_string(i + 8) +
                           "xf32>\n  loom.yield %0 : tensor<" + std::to_string(i + 8) + "xf32>",
                       "k" + std::to_string(i));
  mlir::OwningOpRef<mlir::ModuleOp> module = parse(text);
  auto kernels = codegen::compileGpuKernels(*module);
  ASSERT_TRUE(mlir::succeeded(kernels) && kernels->size() == 9);
  for (int i = 0; i < 9; ++i) {
    const codegen::CompiledGpuKernel &kernel = (*kernels)[i];
    EXPECT_EQ(kernel.library, i < 8 ? "cuda0" : "cuda1");
    EXPECT_EQ(kernel.ptx, (*kernels)[i < 8 ? 0 : 8].ptx);
    EXPECT_THAT(kernel.ptx, HasSubstr(".entry k" + std::to_string(i)));
    EXPECT_GT(kernel.milliseconds.ptx, 0);
    if (!kernel.cubin.empty())
      EXPECT_GT(kernel.registers, 8) << kernel.info.symbol;
  }
}

namespace {

/// Compiles four kernels, one library each. ptxas is this shell script, with the path of its PTX in
/// $input and the kernel's name in $kernel. Returns the errors in the order of their reports.
std::vector<std::string> assembleWith(const TemporaryFolder &toolkit, const std::string &script) {
  std::string text, binaries = toolkit.file("bin");
  for (int i = 0; i < 4; ++i)
    text += kernelText("%x: tensor<8xf32>",
                       "  %0 = loom.negate %x : tensor<8xf32>\n  loom.yield %0 : tensor<8xf32>",
                       "k" + std::to_string(i));
  EXPECT_FALSE(llvm::sys::fs::create_directories(binaries));
  std::ofstream(binaries + "/ptxas")
      << "#!/bin/sh\nfor word; do case $word in *.ptx) input=$word;; esac; done\n"
      << "kernel=$(sed -n 's/.*\\.entry \\(k[0-9]\\).*/\\1/p' \"$input\")\n"
      << script;
  std::filesystem::permissions(binaries + "/ptxas", std::filesystem::perms::owner_all);
  codegen::GpuOptions options;
  options.toolkit = toolkit.file("");
  options.kernelsPerLibrary = 1;
  std::vector<std::string> errors;
  mlir::ScopedDiagnosticHandler handler(&getContext(), [&](mlir::Diagnostic &diagnostic) {
    errors.push_back(diagnostic.str());
    return mlir::success();
  });
  mlir::OwningOpRef<mlir::ModuleOp> module = parse(text);
  EXPECT_TRUE(mlir::failed(codegen::compileGpuKernels(*module, options)));
  return errors;
}

} // namespace

TEST(CodegenGpu, ErrorsOfLibrariesComeInTheirOrder) {
  TemporaryFolder toolkit("gridloom-toolkit");
  // The first finishes last.
  EXPECT_THAT(assembleWith(toolkit, "[ $kernel = k0 ] && sleep 0.3\necho \"no $kernel\"\nexit 3\n"),
              ElementsAre("ptxas refuses a kernel among k0: no k0",
                          "ptxas refuses a kernel among k1: no k1",
                          "ptxas refuses a kernel among k2: no k2",
                          "ptxas refuses a kernel among k3: no k3"));
  TemporaryFolder other("gridloom-toolkit");
  EXPECT_THAT(assembleWith(other, "kill -9 $$\n").front(),
              HasSubstr("among k0: it was ended by signal 9"));
}

/// Each assembler waits until a second one runs, which never happens one after the other.
TEST(CodegenGpu, LibrariesAreAssembledAtOnce) {
  if (std::thread::hardware_concurrency() < 2)
    GTEST_SKIP() << "one processor runs one assembler at a time";
  TemporaryFolder toolkit("gridloom-toolkit");
  std::vector<std::string> errors =
      assembleWith(toolkit, "here=$(dirname \"$0\")\ntouch \"$here/$kernel.here\"\n"
                            "for i in $(seq 200); do\n"
                            "  [ $(ls \"$here\" | grep -c here) -ge 2 ] && echo met && exit 3\n"
                            "  sleep 0.05\ndone\necho alone\nexit 3\n");
  ASSERT_EQ(errors.size(), 4u);
  EXPECT_THAT(errors.front(), HasSubstr(": met"));
}
