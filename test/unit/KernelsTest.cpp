//===- KernelsTest.cpp - predicted kernels and their prices ---------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/Kernels.h"

#include "dialects/dist/Dist.h"
#include "dialects/loom/Work.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"

#include <gmock/gmock.h>

using namespace mlir;
using namespace gridloom;

namespace {

class KernelsTest : public testing::Test {
protected:
  KernelsTest() {
    context.loadDialect<func::FuncDialect, dist::DistDialect, loom::LoomDialect>();
    // A byte takes a second, a launch a thousand, arithmetic none.
    cluster::DeviceKind kind;
    kind.target = "cuda:sm_90";
    kind.bytesPerSecond = 1;
    kind.launchSeconds = 1000;
    for (auto &rates : kind.flopsPerSecond)
      rates.fill(1e30);
    machine.kinds.push_back(kind);
  }

  /// The seconds of a function's operations by name, added up. The function has %a and %b of 4 x 8
  /// f32 and %i of 4 i64, and returns %r of 4 x 8 f32.
  std::map<std::string, double> price(const std::string &body) {
    std::string text = R"(func.func @main(%a: tensor<4x8xf32>, %b: tensor<4x8xf32>,
        %i: tensor<4xi64>) -> tensor<4x8xf32> {)" +
                       body + "return %r : tensor<4x8xf32> }";
    module = parseSourceString<ModuleOp>(text, &context);
    std::map<std::string, double> seconds;
    if (!module) {
      ADD_FAILURE() << "does not parse:\n" << text;
      return seconds;
    }
    module->walk([&](Operation *op) {
      if (isa<loom::CostInterface>(op))
        seconds[op->getName().stripDialect().str()] += loom::getComputeSeconds(op, machine);
    });
    return seconds;
  }

  MLIRContext context;
  cluster::Machine machine;
  OwningOpRef<ModuleOp> module;
};

TEST_F(KernelsTest, RowsOfAResultAreAnAddress) {
  auto seconds = price(R"(
    %0 = loom.exp %a : tensor<4x8xf32>
    %1 = loom.slice %0 [0, 0] to [2, 8] by [1, 1] : (tensor<4x8xf32>) -> tensor<2x8xf32>
    %2 = loom.reduce sum %1 dims = [0] : (tensor<2x8xf32>) -> tensor<8xf32>
    %3 = loom.broadcast %2 dims = [1] : (tensor<8xf32>) -> tensor<4x8xf32>
    %r = loom.add %0, %3 : tensor<4x8xf32>
  )");
  EXPECT_EQ(seconds["slice"], 0);
  EXPECT_EQ(seconds["reduce"], 1000 + 64 + 32);
}

TEST_F(KernelsTest, ColumnsAreCopiedWithoutTheRest) {
  auto seconds = price(R"(
    %0 = loom.exp %a : tensor<4x8xf32>
    %1 = loom.slice %0 [0, 0] to [4, 2] by [1, 1] : (tensor<4x8xf32>) -> tensor<4x2xf32>
    %2 = loom.reduce sum %1 dims = [0] : (tensor<4x2xf32>) -> tensor<2xf32>
    %3 = loom.reshape %2 : (tensor<2xf32>) -> tensor<1x2xf32>
    %4 = loom.pad %3 value = 0.0 : f32 low = [0, 0] high = [3, 6] interior = [0, 0] : (tensor<1x2xf32>) -> tensor<4x8xf32>
    %r = loom.add %0, %4 : tensor<4x8xf32>
  )");
  EXPECT_EQ(seconds["slice"], 1000 + 32 + 32);
}

TEST_F(KernelsTest, OneElementOfARowStaysInItsKernel) {
  auto seconds = price(R"(
    %0 = loom.reduce max %a dims = [1] : (tensor<4x8xf32>) -> tensor<4xf32>
    %1 = loom.exp %0 : tensor<4xf32>
    %2 = loom.broadcast %1 dims = [0] : (tensor<4xf32>) -> tensor<4x8xf32>
    %r = loom.subtract %a, %2 : tensor<4x8xf32>
  )");
  EXPECT_EQ(seconds["reduce"], 128);
  EXPECT_EQ(seconds["exp"], 0);
  EXPECT_EQ(seconds["subtract"], 1000 + 128 + 128);
}

TEST_F(KernelsTest, ElementsOfColumnsAreComputedBefore) {
  auto seconds = price(R"(
    %0 = loom.reduce max %a dims = [0] : (tensor<4x8xf32>) -> tensor<8xf32>
    %1 = loom.exp %0 : tensor<8xf32>
    %2 = loom.broadcast %1 dims = [1] : (tensor<8xf32>) -> tensor<4x8xf32>
    %r = loom.subtract %a, %2 : tensor<4x8xf32>
  )");
  EXPECT_EQ(seconds["reduce"], 1000 + 128 + 32);
  EXPECT_EQ(seconds["exp"], 1000 + 32 + 32);
  EXPECT_EQ(seconds["subtract"], 1000 + 128 + 32 + 128);
}

TEST_F(KernelsTest, AnOperandIsReadOnce) {
  auto seconds = price("%r = loom.multiply %a, %a : tensor<4x8xf32>");
  EXPECT_EQ(seconds["multiply"], 1000 + 128 + 128);
}

TEST_F(KernelsTest, ScattersReadLiteralsFromMemory) {
  auto seconds = price(R"(
    %0 = loom.constant dense<0.0> : tensor<4x8xf32>
    %r = loom.scatter %0, %i, %a dim = 0 : (tensor<4x8xf32>, tensor<4xi64>, tensor<4x8xf32>) -> tensor<4x8xf32>
  )");
  EXPECT_EQ(seconds["scatter"], 1000 + 128 + 32 + 128 + 128);
}

} // namespace
