//===- InterpreterOpsTest.cpp - every operation against hand-made values --===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "InterpreterTesting.h"
#include "UnaryFunctions.h"

#include "dialects/loom/LoomEvaluate.h"

#include <cmath>

using namespace gridloom;
using namespace gridloom::testing;
using loom::ElementKind;
using loom::HostTensor;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::NanSensitiveDoubleEq;
using ::testing::Pointwise;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

class InterpreterOps : public ::testing::Test {
protected:
  /// Evaluates the one loom operation in `text` that defines %r; arguments are %a, %b, ... of the
  /// given types.
  llvm::FailureOr<HostTensor> evaluate(const std::string &text,
                                       llvm::ArrayRef<HostTensor> operands) {
    std::string arguments;
    for (auto [i, operand] : llvm::enumerate(operands)) {
      std::string type;
      bool exact = operand.getKind() == ElementKind::Exact;
      mlir::Type element = exact ? mlir::Float32Type::get(context.get())
                                 : getElementType(operand.getKind(), context.get());
      llvm::raw_string_ostream(type) << mlir::RankedTensorType::get(operand.getShape(), element);
      arguments += (i ? ", %" : "%") + std::string(1, 'a' + i) + ": " + type;
    }
    auto module = context.parse(
        "loom.weight @w : tensor<2xf32> from <\"\", offset = 0, bytes = 8>\nfunc.func @f(" +
        arguments + ") {\n  %r = " + text + "\n  return\n}");
    if (!module)
      return mlir::failure();
    mlir::func::FuncOp function = *module->getOps<mlir::func::FuncOp>().begin();
    mlir::Operation &op = function.getBody().front().front();
    llvm::FailureOr<llvm::SmallVector<HostTensor>> results =
        mlir::cast<loom::EvaluateInterface>(op).evaluate(operands);
    if (failed(results))
      return mlir::failure();
    return results->front();
  }

  /// The result's elements; empty if evaluation failed.
  std::vector<double> values(const std::string &text, llvm::ArrayRef<HostTensor> operands) {
    llvm::FailureOr<HostTensor> result = evaluate(text, operands);
    return succeeded(result) ? result->toDoubles() : std::vector<double>();
  }

  Context context;
};

MATCHER_P(NearlyEqual, tolerance, "") {
  double actual = std::get<0>(arg), expected = std::get<1>(arg);
  return (std::isnan(actual) && std::isnan(expected)) ||
         std::abs(actual - expected) <= tolerance * std::max(1.0, std::abs(expected));
}

TEST_F(InterpreterOps, UnaryFloats) {
  HostTensor x = floats({4}, {-2, -0.5, 0.25, 3});
  auto apply = [&](const std::string &name) {
    return values("loom." + name + " %a : tensor<4xf32>", {x});
  };
  EXPECT_THAT(apply("negate"), ElementsAre(2, 0.5, -0.25, -3));
  EXPECT_THAT(apply("abs"), ElementsAre(2, 0.5, 0.25, 3));
  EXPECT_THAT(apply("floor"), ElementsAre(-2, -1, 0, 3));
  EXPECT_THAT(apply("ceil"), ElementsAre(-2, 0, 1, 3));
  EXPECT_THAT(apply("sign"), ElementsAre(-1, -1, 1, 1));
  EXPECT_THAT(apply("sqrt"), Pointwise(NearlyEqual(1e-7), {kNaN, kNaN, 0.5, 1.7320508076}));
  EXPECT_THAT(apply("log"),
              Pointwise(NearlyEqual(1e-7), {kNaN, kNaN, -1.3862943611, 1.0986122887}));
}

TEST_F(InterpreterOps, UnaryFunctions) {
  for (const UnaryFunction &function : kUnaryFunctions)
    EXPECT_THAT(values(std::string("loom.") + function.name + " %a : tensor<1xf64>",
                       {HostTensor::fromDoubles(ElementKind::F64, {1}, {function.argument})}),
                Pointwise(NearlyEqual(1e-9), {function.value}))
        << function.name;
}

TEST_F(InterpreterOps, BinaryFloats) {
  HostTensor x = floats({4}, {1, -2, kNaN, 9}), y = floats({4}, {4, 0.5, 1, -2});
  auto apply = [&](const std::string &name) {
    return values("loom." + name + " %a, %b : tensor<4xf32>", {x, y});
  };
  EXPECT_THAT(apply("add"), Pointwise(NearlyEqual(0), {5.0, -1.5, kNaN, 7.0}));
  EXPECT_THAT(apply("subtract"), Pointwise(NearlyEqual(0), {-3.0, -2.5, kNaN, 11.0}));
  EXPECT_THAT(apply("multiply"), Pointwise(NearlyEqual(0), {4.0, -1.0, kNaN, -18.0}));
  EXPECT_THAT(apply("divide"), Pointwise(NearlyEqual(0), {0.25, -4.0, kNaN, -4.5}));
  EXPECT_THAT(apply("maximum"), Pointwise(NearlyEqual(0), {4.0, 0.5, kNaN, 9.0}));
  EXPECT_THAT(apply("minimum"), Pointwise(NearlyEqual(0), {1.0, -2.0, kNaN, -2.0}));
  EXPECT_THAT(apply("power"), Pointwise(NearlyEqual(1e-7), {1.0, kNaN, kNaN, 1.0 / 81}));
}

TEST_F(InterpreterOps, PadsAndWindows) {
  HostTensor x = floats({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_THAT(
      values("loom.pad %a value = -1.0 : f32 low = [0, 1] high = [1, 0] interior = [0, 1] : "
             "(tensor<2x3xf32>) -> tensor<3x6xf32>",
             {x}),
      ElementsAre(-1, 1, -1, 2, -1, 3, -1, 4, -1, 5, -1, 6, -1, -1, -1, -1, -1, -1));
  EXPECT_THAT(values("loom.window %a dims = [1] sizes = [2] strides = [1] dilations = [1] : "
                     "(tensor<2x3xf32>) -> tensor<2x2x2xf32>",
                     {x}),
              ElementsAre(1, 2, 2, 3, 4, 5, 5, 6));
  // Positions keep their dimensions; window dimensions follow in the order of `dims`.
  EXPECT_THAT(
      values("loom.window %a dims = [0, 1] sizes = [2, 2] strides = [1, 1] dilations = [1, 1] "
             ": (tensor<2x3xf32>) -> tensor<1x2x2x2xf32>",
             {x}),
      ElementsAre(1, 2, 4, 5, 2, 3, 5, 6));
  EXPECT_THAT(values("loom.window %a dims = [1] sizes = [2] strides = [1] dilations = [2] : "
                     "(tensor<2x3xf32>) -> tensor<2x1x2xf32>",
                     {x}),
              ElementsAre(1, 3, 4, 6));
}

TEST_F(InterpreterOps, ReduceWindow) {
  HostTensor x = floats({1, 5}, {3, -1, 4, 1, -5});
  auto apply = [&](const std::string &kind) {
    return values(
        "loom.reduce_window " + kind +
            " %a dims = [1] sizes = [3] strides = [2] low = [1] high = [1] dilations = [1]"
            " : (tensor<1x5xf32>) -> tensor<1x3xf32>",
        {x});
  };
  EXPECT_THAT(apply("max"), ElementsAre(3, 4, 1));
  EXPECT_THAT(apply("min"), ElementsAre(-1, -1, -5));
  EXPECT_THAT(apply("sum"), ElementsAre(2, 4, -4));
  EXPECT_THAT(apply("prod"), ElementsAre(-3, -4, -5));
}

TEST_F(InterpreterOps, Convolution) {
  HostTensor x = floats({1, 2, 4}, {1, 2, 3, 4, 10, 20, 30, 40});
  HostTensor w = floats({1, 2, 2}, {1, 2, 0.5, 0});
  EXPECT_THAT(values("loom.convolution %a, %b strides = [1] low = [0] high = [1] input_dilations = "
                     "[1] dilations = [1] groups = 1 : (tensor<1x2x4xf32>, tensor<1x2x2xf32>) -> "
                     "tensor<1x1x4xf32>",
                     {x, w}),
              ElementsAre(10, 18, 26, 24));
  EXPECT_THAT(values("loom.convolution %a, %b strides = [2] low = [0] high = [0] input_dilations = "
                     "[2] dilations = [2] groups = 1 : (tensor<1x2x4xf32>, tensor<1x2x2xf32>) -> "
                     "tensor<1x1x3xf32>",
                     {x, w}),
              ElementsAre(10, 18, 26));
  HostTensor perChannel = floats({2, 1, 2}, {1, -1, 2, 1});
  EXPECT_THAT(values("loom.convolution %a, %b strides = [1] low = [0] high = [0] input_dilations = "
                     "[1] dilations = [1] groups = 2 : (tensor<1x2x4xf32>, tensor<2x1x2xf32>) -> "
                     "tensor<1x2x3xf32>",
                     {x, perChannel}),
              ElementsAre(-1, -1, -1, 40, 70, 100));
}

TEST_F(InterpreterOps, IntegersWrapAndTruncate) {
  HostTensor x =
      ints({4}, {std::numeric_limits<int64_t>::max(), -7, 6, std::numeric_limits<int64_t>::min()});
  HostTensor y = ints({4}, {1, 2, -4, -1});
  auto apply = [&](const std::string &name) {
    auto result = evaluate("loom." + name + " %a, %b : tensor<4xi64>", {x, y});
    return succeeded(result) ? result->toInts() : std::vector<int64_t>();
  };
  constexpr int64_t lowest = std::numeric_limits<int64_t>::min(),
                    highest = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(apply("add"), ElementsAre(lowest, -5, 2, highest));
  EXPECT_THAT(apply("divide"), ElementsAre(highest, -3, -1, lowest));
  EXPECT_THAT(apply("and"), ElementsAre(1, 0, 4, lowest));
  EXPECT_THAT(apply("or"), ElementsAre(highest, -5, -2, -1));
  EXPECT_THAT(apply("power"), ElementsAre(highest, 49, 0, 0));
  EXPECT_TRUE(failed(evaluate("loom.divide %a, %b : tensor<1xi64>", {ints({1}, 1), ints({1}, 0)})));
  EXPECT_THAT(context.takeError(), HasSubstr("divides an integer by zero"));
  EXPECT_TRUE(failed(evaluate("loom.exp %a : tensor<1xi64>", {ints({1}, 1)})));
  EXPECT_THAT(context.takeError(), HasSubstr("no meaning for elements of type i64"));
}

TEST_F(InterpreterOps, LogicComparesSelects) {
  HostTensor x = floats({3}, {1, kNaN, 3}), y = floats({3}, {2, 2, 3});
  auto compare = [&](const std::string &direction) {
    return values("loom.compare " + direction +
                      " %a, %b : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xi1>",
                  {x, y});
  };
  EXPECT_THAT(compare("eq"), ElementsAre(0, 0, 1));
  EXPECT_THAT(compare("ne"), ElementsAre(1, 1, 0));
  EXPECT_THAT(compare("lt"), ElementsAre(1, 0, 0));
  EXPECT_THAT(compare("le"), ElementsAre(1, 0, 1));
  EXPECT_THAT(compare("gt"), ElementsAre(0, 0, 0));
  EXPECT_THAT(compare("ge"), ElementsAre(0, 0, 1));
  HostTensor mask = HostTensor::fromInts(ElementKind::Bool, {3}, {1, 0, 1});
  EXPECT_THAT(values("loom.select %a, %b, %c : tensor<3xi1>, tensor<3xf32>",
                     {mask, floats({3}, {1, kNaN, 3}), y}),
              ElementsAre(1, 2, 3));
  EXPECT_THAT(values("loom.not %a : tensor<3xi1>", {mask}), ElementsAre(0, 1, 0));
  EXPECT_THAT(values("loom.not %a : tensor<2xi64>", {ints({2}, {0, 5})}), ElementsAre(-1, -6));
}

TEST_F(InterpreterOps, Converts) {
  HostTensor x = floats({4}, {-1.75, 0, 2.5, 300});
  EXPECT_THAT(values("loom.convert %a : (tensor<4xf32>) -> tensor<4xi64>", {x}),
              ElementsAre(-1, 0, 2, 300));
  EXPECT_THAT(values("loom.convert %a : (tensor<4xf32>) -> tensor<4xi1>", {x}),
              ElementsAre(1, 0, 1, 1));
  EXPECT_THAT(values("loom.convert %a : (tensor<4xf32>) -> tensor<4xbf16>", {x}),
              ElementsAre(-1.75, 0, 2.5, 300));
  EXPECT_THAT(values("loom.convert %a : (tensor<2xi64>) -> tensor<2xi8>", {ints({2}, {300, -1})}),
              ElementsAre(44, -1));
  EXPECT_THAT(
      values("loom.convert %a : (tensor<2xi64>) -> tensor<2xf32>", {ints({2}, {16777217, -3})}),
      ElementsAre(16777216, -3));
}

TEST_F(InterpreterOps, Moves) {
  HostTensor x = ints({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_THAT(values("loom.transpose %a [1, 0] : (tensor<2x3xi64>) -> tensor<3x2xi64>", {x}),
              ElementsAre(1, 4, 2, 5, 3, 6));
  EXPECT_THAT(values("loom.reshape %a : (tensor<2x3xi64>) -> tensor<3x2xi64>", {x}),
              ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(values("loom.broadcast %a dims = [0, 2] : (tensor<2x1xi64>) -> tensor<2x2x2xi64>",
                     {ints({2, 1}, {7, 8})}),
              ElementsAre(7, 7, 7, 7, 8, 8, 8, 8));
  EXPECT_THAT(
      values("loom.slice %a [0, 0] to [2, 3] by [1, 2] : (tensor<2x3xi64>) -> tensor<2x2xi64>",
             {x}),
      ElementsAre(1, 3, 4, 6));
  EXPECT_THAT(
      values(
          "loom.concatenate %a, %b dim = 1 : (tensor<2x3xi64>, tensor<2x1xi64>) -> tensor<2x4xi64>",
          {x, ints({2, 1}, {-1, -2})}),
      ElementsAre(1, 2, 3, -1, 4, 5, 6, -2));
  EXPECT_THAT(
      values("loom.gather %a, %b dim = 1 : (tensor<2x3xi64>, tensor<2x2xi64>) -> tensor<2x2x2xi64>",
             {x, ints({2, 2}, {2, 0, 1, 1})}),
      ElementsAre(3, 1, 2, 2, 6, 4, 5, 5));
  EXPECT_THAT(values("loom.iota dim = 1 : tensor<2x3xi64>", {}), ElementsAre(0, 1, 2, 0, 1, 2));
  EXPECT_TRUE(failed(
      evaluate("loom.gather %a, %b dim = 0 : (tensor<2x3xi64>, tensor<1xi64>) -> tensor<1x3xi64>",
               {x, ints({1}, 2)})));
  EXPECT_THAT(context.takeError(), HasSubstr("index 2 is outside of dimension 0 of size 2"));
}

TEST_F(InterpreterOps, OrderAndPeaks) {
  HostTensor x = floats({2, 4}, {3, 1, 3, -2, kNaN, 5, -INFINITY, 5});
  EXPECT_THAT(values("loom.argsort %a dim = 1 : (tensor<2x4xf32>) -> tensor<2x4xi64>", {x}),
              ElementsAre(3, 1, 0, 2, 2, 1, 3, 0));
  EXPECT_THAT(
      values("loom.argsort %a dim = 1 descending : (tensor<2x4xf32>) -> tensor<2x3xi64>", {x}),
      ElementsAre(0, 2, 1, 0, 1, 3));
  EXPECT_THAT(values("loom.argsort %a dim = 0 : (tensor<2x4xf32>) -> tensor<1x4xi64>", {x}),
              ElementsAre(0, 0, 1, 0));
  EXPECT_THAT(values("loom.arg_reduce max %a dim = 1 : (tensor<2x4xf32>) -> tensor<2xi64>", {x}),
              ElementsAre(0, 0));
  EXPECT_THAT(
      values("loom.arg_reduce max %a dim = 1 last : (tensor<2x4xf32>) -> tensor<2xi64>", {x}),
      ElementsAre(2, 0));
  EXPECT_THAT(values("loom.arg_reduce min %a dim = 0 : (tensor<2x4xf32>) -> tensor<4xi64>", {x}),
              ElementsAre(1, 0, 1, 0));
}

TEST_F(InterpreterOps, RunningValues) {
  HostTensor x = ints({2, 3}, {1, 2, 3, 4, -5, 6});
  EXPECT_THAT(values("loom.cumulative sum %a dim = 1 : tensor<2x3xi64>", {x}),
              ElementsAre(1, 3, 6, 4, -1, 5));
  EXPECT_THAT(values("loom.cumulative prod %a dim = 1 exclusive : tensor<2x3xi64>", {x}),
              ElementsAre(1, 1, 2, 1, 4, -20));
  EXPECT_THAT(values("loom.cumulative sum %a dim = 0 reverse : tensor<2x3xi64>", {x}),
              ElementsAre(5, -3, 9, 4, -5, 6));
  EXPECT_THAT(values("loom.cumulative max %a dim = 1 exclusive reverse : tensor<2x3xi64>", {x}),
              ElementsAre(3, 3, -0x1p63, 6, 6, -0x1p63));
  EXPECT_THAT(values("loom.cumulative min %a dim = 1 : tensor<2x3xi64>", {x}),
              ElementsAre(1, 1, 1, 4, -5, -5));
}

TEST_F(InterpreterOps, ElementsByIndex) {
  HostTensor x = ints({3, 2}, {1, 2, 3, 4, 5, 6});
  EXPECT_THAT(values("loom.reverse %a dims = [0] : tensor<3x2xi64>", {x}),
              ElementsAre(5, 6, 3, 4, 1, 2));
  EXPECT_THAT(values("loom.reverse %a dims = [0, 1] : tensor<3x2xi64>", {x}),
              ElementsAre(6, 5, 4, 3, 2, 1));
  EXPECT_THAT(values("loom.gather_elements %a, %b dim = 0 : (tensor<3x2xi64>, tensor<2x2xi64>) -> "
                     "tensor<2x2xi64>",
                     {x, ints({2, 2}, {2, 0, 1, 1})}),
              ElementsAre(5, 2, 3, 4));
  EXPECT_TRUE(failed(evaluate("loom.gather_elements %a, %b dim = 0 : (tensor<3x2xi64>, "
                              "tensor<1x2xi64>) -> tensor<1x2xi64>",
                              {x, ints({1, 2}, {0, 3})})));
  EXPECT_THAT(context.takeError(), HasSubstr("index 3 is outside of dimension 0 of size 3"));
  HostTensor updates = ints({2, 2}, {10, 20, 30, 40});
  auto scatter = [&](const std::string &how, const HostTensor &indices, const std::string &type) {
    return values("loom.scatter %a, %b, %c dim = 0" + how + " : (tensor<3x2xi64>, " + type +
                      ", tensor<2x2xi64>) -> tensor<3x2xi64>",
                  {x, indices, updates});
  };
  // The last update of an element wins; out-of-range updates are dropped.
  EXPECT_THAT(scatter("", ints({2, 2}, {1, 0, 1, 3}), "tensor<2x2xi64>"),
              ElementsAre(1, 20, 30, 4, 5, 6));
  EXPECT_THAT(scatter(" reduce = sum", ints({2, 2}, {1, 0, 1, 0}), "tensor<2x2xi64>"),
              ElementsAre(1, 62, 43, 4, 5, 6));
  EXPECT_THAT(scatter("", ints({2}, {2, -1}), "tensor<2xi64>"), ElementsAre(1, 2, 3, 4, 10, 20));
  EXPECT_THAT(scatter(" reduce = prod", ints({2}, {0, 0}), "tensor<2xi64>"),
              ElementsAre(300, 1600, 3, 4, 5, 6));
}

TEST_F(InterpreterOps, BitsAndRemainders) {
  auto bytes = [](std::vector<int64_t> list) {
    return HostTensor::fromInts(ElementKind::U8, {static_cast<int64_t>(list.size())}, list);
  };
  HostTensor x = bytes({200, 7, 255}), y = bytes({3, 9, 8});
  EXPECT_THAT(values("loom.shift_left %a, %b : tensor<3xui8>", {x, y}), ElementsAre(64, 0, 0));
  EXPECT_THAT(values("loom.shift_right_logical %a, %b : tensor<3xui8>", {x, y}),
              ElementsAre(25, 0, 0));
  EXPECT_THAT(values("loom.xor %a, %b : tensor<3xui8>", {x, y}), ElementsAre(203, 14, 247));
  EXPECT_THAT(values("loom.remainder %a, %b : tensor<3xui8>", {x, y}), ElementsAre(2, 7, 7));
  EXPECT_THAT(values("loom.remainder %a, %b : tensor<3xi64>",
                     {ints({3}, {-7, 7, 5}), ints({3}, {3, -3, 0})}),
              ElementsAre(-1, 1, 5));
  EXPECT_THAT(values("loom.remainder %a, %b : tensor<2xf32>",
                     {floats({2}, {-7.5, 7.5}), floats({2}, {2, -2})}),
              ElementsAre(-1.5, 1.5));
  EXPECT_THAT(
      values("loom.bitcast_convert %a : (tensor<2xf32>) -> tensor<2xui32>", {floats({2}, {1, -2})}),
      ElementsAre(0x3f800000, 0xc0000000u));
  HostTensor large = HostTensor::fromInts(ElementKind::U64, {2}, {-1, 6});
  HostTensor small = HostTensor::fromInts(ElementKind::U64, {2}, {5, 4});
  EXPECT_THAT(values("loom.divide %a, %b : tensor<2xui64>", {large, small}),
              ElementsAre(0x1p64 / 5, 1));
  EXPECT_THAT(values("loom.maximum %a, %b : tensor<2xui64>", {large, small}),
              ElementsAre(0x1p64, 6));
  EXPECT_THAT(
      values("loom.round_nearest_even %a : tensor<4xf32>", {floats({4}, {0.5, 1.5, -2.5, 2.6})}),
      ElementsAre(0, 2, -2, 3));
}

TEST_F(InterpreterOps, ConstantsOfEveryStorage) {
  EXPECT_THAT(values("loom.constant dense<[true, false, true]> : tensor<3xi1>", {}),
              ElementsAre(1, 0, 1));
  EXPECT_THAT(values("loom.constant dense<true> : tensor<2xi1>", {}), ElementsAre(1, 1));
  EXPECT_THAT(values("loom.constant dense<1.5> : tensor<2xf16>", {}), ElementsAre(1.5, 1.5));
  EXPECT_THAT(values("loom.constant dense<[-1, 2]> : tensor<2xi8>", {}), ElementsAre(-1, 2));
  EXPECT_THAT(values("loom.constant dense<> : tensor<0xf32>", {}), ElementsAre());
}

TEST_F(InterpreterOps, AttributesRoundTrip) {
  for (ElementKind kind :
       {ElementKind::Bool, ElementKind::I8, ElementKind::I16, ElementKind::I32, ElementKind::I64,
        ElementKind::U8, ElementKind::U16, ElementKind::U32, ElementKind::U64, ElementKind::F16,
        ElementKind::BF16, ElementKind::F32, ElementKind::F64}) {
    for (auto values : {std::vector<double>{1, 0, 1, 1, 0, 0}, std::vector<double>(6, 1)}) {
      HostTensor tensor = HostTensor::fromDoubles(kind, {2, 3}, values);
      auto back = HostTensor::fromAttribute(tensor.toAttribute(context.get()));
      ASSERT_TRUE(succeeded(back)) << loom::nameOf(kind).str();
      EXPECT_TRUE(back->isBitwiseEqual(tensor)) << loom::nameOf(kind).str();
    }
  }
}

TEST_F(InterpreterOps, DotGeneralIsTheSumOfProducts) {
  EXPECT_THAT(values("loom.dot_general %a, %b batch = [] x [] contract = [1] x [0]"
                     " : (tensor<2x3xf32>, tensor<3x2xf32>) -> tensor<2x2xf32>",
                     {floats({2, 3}, {1, 2, 3, 4, 5, 6}), floats({3, 2}, {1, -1, 2, 0, 0.5, 3})}),
              ElementsAre(6.5, 8, 17, 14));
  // Batch in the middle of the left side, contraction over two dimensions, sizes beyond one block.
  constexpr int64_t b = 2, m = 5, k1 = 3, k2 = 50, n = 300;
  std::vector<double> x = makeUniform(1, k1 * b * m * k2), y = makeUniform(2, b * n * k1 * k2);
  HostTensor lhs = HostTensor::fromDoubles(ElementKind::F64, {k1, b, m, k2}, x);
  HostTensor rhs = HostTensor::fromDoubles(ElementKind::F64, {b, n, k1, k2}, y);
  std::vector<double> expected(b * m * n);
  for (int64_t i = 0; i < b * m * n; ++i)
    for (int64_t p = 0; p < k1; ++p)
      for (int64_t q = 0; q < k2; ++q)
        expected[i] += x[((p * b + i / (m * n)) * m + i / n % m) * k2 + q] *
                       y[((i / (m * n) * n + i % n) * k1 + p) * k2 + q];
  EXPECT_THAT(values("loom.dot_general %a, %b batch = [1] x [0] contract = [0, 3] x [2, 3]"
                     " : (tensor<3x2x5x50xf64>, tensor<2x300x3x50xf64>) -> tensor<2x5x300xf64>",
                     {lhs, rhs}),
              Pointwise(NearlyEqual(1e-12), expected));
}

TEST_F(InterpreterOps, Reduces) {
  HostTensor x = floats({2, 3}, {1, 5, 3, -4, 2, 2});
  EXPECT_THAT(values("loom.reduce sum %a dims = [1] : (tensor<2x3xf32>) -> tensor<2xf32>", {x}),
              ElementsAre(9, 0));
  EXPECT_THAT(values("loom.reduce max %a dims = [0] : (tensor<2x3xf32>) -> tensor<3xf32>", {x}),
              ElementsAre(1, 5, 3));
  EXPECT_THAT(values("loom.reduce min %a dims = [0, 1] : (tensor<2x3xf32>) -> tensor<f32>", {x}),
              ElementsAre(-4));
  EXPECT_THAT(values("loom.reduce prod %a dims = [1] : (tensor<2x3xf32>) -> tensor<2xf32>", {x}),
              ElementsAre(15, -16));
  // Of nothing, in the element's width.
  HostTensor none = HostTensor::fromInts(ElementKind::I32, {2, 0}, {});
  EXPECT_THAT(values("loom.reduce max %a dims = [1] : (tensor<2x0xi32>) -> tensor<2xi32>", {none}),
              ElementsAre(-0x1p31, -0x1p31));
  EXPECT_THAT(values("loom.reduce min %a dims = [1] : (tensor<2x0xi32>) -> tensor<2xi32>", {none}),
              ElementsAre(0x1p31 - 1, 0x1p31 - 1));
  // Sums are accumulated in f64: f32's 24 bits would lose the ones beside 2^24.
  EXPECT_THAT(values("loom.reduce sum %a dims = [0] : (tensor<4xf32>) -> tensor<f32>",
                     {floats({4}, {0x1p24, 1, 1, -0x1p24})}),
              ElementsAre(2));
}

TEST_F(InterpreterOps, Composites) {
  HostTensor x = floats({2, 2}, {1, 3, -1, 0.5});
  EXPECT_THAT(
      values("loom.softmax %a dim = 1 : tensor<2x2xf32>", {x}),
      Pointwise(NearlyEqual(1e-7), {0.1192029220, 0.8807970780, 0.1824255238, 0.8175744762}));
  EXPECT_THAT(
      values("loom.softmax %a dim = 0 : tensor<2x2xf32>", {x}),
      Pointwise(NearlyEqual(1e-7), {0.8807970780, 0.9241418200, 0.1192029220, 0.0758581800}));
  EXPECT_THAT(
      values("loom.layer_norm %a, %b, %c epsilon = 0.25 : (tensor<2x2xf32>, tensor<2xf32>, "
             "tensor<2xf32>)"
             " -> tensor<2x2xf32>",
             {x, floats({2}, {2, 1}), floats({2}, {0, 10})}),
      Pointwise(NearlyEqual(1e-6), {-2 / std::sqrt(1.25), 10 + 1 / std::sqrt(1.25),
                                    -1.5 / std::sqrt(0.8125), 10 + 0.75 / std::sqrt(0.8125)}));
  EXPECT_THAT(values("loom.rms_norm %a, %b epsilon = 0.5 : (tensor<2x2xf32>, tensor<2xf32>) -> "
                     "tensor<2x2xf32>",
                     {floats({2, 2}, {1, -2, 3, 0}), floats({2}, {2, 10})}),
              Pointwise(NearlyEqual(1e-6),
                        {2 / std::sqrt(3.0), -20 / std::sqrt(3.0), 6 / std::sqrt(5.0), 0.0}));
  EXPECT_THAT(
      values("loom.gelu erf %a : tensor<2x2xf32>", {x}),
      Pointwise(NearlyEqual(1e-6), {0.8413447461, 2.9959503063, -0.1586552539, 0.3457312306}));
  EXPECT_THAT(
      values("loom.gelu tanh %a : tensor<2x2xf32>", {x}),
      Pointwise(NearlyEqual(1e-6), {0.8411919906, 2.9963626079, -0.1588080094, 0.3457140116}));
}

TEST_F(InterpreterOps, WeightsNeedTheInterpreter) {
  EXPECT_TRUE(failed(evaluate("loom.get_weight @w : tensor<2xf32>", {})));
  EXPECT_THAT(context.takeError(), HasSubstr("weights are resolved by the interpreter"));
}

//===----------------------------------------------------------------------===//
// Exact mode
//===----------------------------------------------------------------------===//

TEST(ExactField, FloatsAreTheRationalsTheyAre) {
  using loom::Exact;
  EXPECT_EQ(Exact::fromDouble(0).word, 0);
  EXPECT_EQ(Exact::fromDouble(-7).word, -7);
  EXPECT_EQ(Exact::fromDouble(0x1p60).word, (int64_t(1) << 60) - Exact::kPrime);
  EXPECT_EQ((Exact::fromDouble(0.125) * Exact{8}).word, 1);
  EXPECT_EQ((Exact::fromDouble(-0.375) * Exact{8}).word, -3);
  EXPECT_EQ(Exact::fromDouble(0.1) * Exact::fromDouble(3),
            Exact::fromDouble(0.1) + Exact::fromDouble(0.1) + Exact::fromDouble(0.1));
  EXPECT_EQ(Exact{10} / Exact{2}, Exact{5});
  EXPECT_EQ(Exact::fromDouble(1.0 / 1024), Exact{1} / Exact{1024});
  EXPECT_EQ(Exact::fromDouble(std::numeric_limits<double>::denorm_min()) * Exact{1}.power(1),
            Exact{2}.inverse().power(1074));
}

TEST(ExactField, IsAFieldWithInfinities) {
  using loom::Exact;
  std::vector<Exact> samples;
  for (double value : makeUniform(3, 50))
    samples.push_back(Exact::hash(1, Exact::fromDouble(value)));
  for (size_t i = 0; i + 2 < samples.size(); ++i) {
    Exact x = samples[i], y = samples[i + 1], z = samples[i + 2];
    EXPECT_EQ((x + y) + z, x + (y + z));
    EXPECT_EQ((x * y) * z, x * (y * z));
    EXPECT_EQ(x * (y + z), x * y + x * z);
    EXPECT_EQ(x * x.inverse(), Exact{1});
    EXPECT_EQ(x - x, Exact{0});
  }
  EXPECT_TRUE((Exact::infinity() - Exact::infinity()).isNaN());
  EXPECT_TRUE((Exact::infinity() * Exact{0}).isNaN());
  EXPECT_TRUE((Exact::nan() * Exact{0}).isNaN());
  EXPECT_EQ(Exact{5} / Exact::infinity(), Exact{0});
  EXPECT_TRUE(-Exact::infinity() < Exact{-5});
}

/// Exact mode guarantees that a contraction does not depend on how it is split.
TEST_F(InterpreterOps, ExactContractionsDoNotDependOnOrder) {
  HostTensor x = floats({2, 200}, makeUniform(5, 400)).toExactMode();
  HostTensor y = floats({200, 3}, makeUniform(6, 600)).toExactMode();
  auto dot = [&](int64_t start, int64_t size) {
    std::string k = std::to_string(size);
    return *evaluate("loom.dot_general %a, %b batch = [] x [] contract = [1] x [0] : (tensor<2x" +
                         k + "xf32>, tensor<" + k + "x3xf32>) -> tensor<2x3xf32>",
                     {x.extract({0, start}, {2, size}), y.extract({start, 0}, {size, 3})});
  };
  HostTensor whole = dot(0, 200),
             split = loom::combine(dist::ReductionKind::Sum, {dot(77, 123), dot(0, 77)});
  EXPECT_TRUE(whole.isBitwiseEqual(split));
  loom::Exact first{0};
  for (int64_t k = 0; k < 200; ++k)
    first = first + x.getValues<loom::Exact>()[k] * y.getValues<loom::Exact>()[k * 3];
  EXPECT_EQ(whole.getValues<loom::Exact>()[0], first);
  // One NaN in the left operand poisons its row and no other.
  HostTensor poisoned = x;
  poisoned.getMutableValues<loom::Exact>()[199] = loom::Exact::nan();
  x = poisoned;
  HostTensor result = dot(0, 200);
  EXPECT_TRUE(result.getValues<loom::Exact>()[2].isNaN());
  EXPECT_EQ(result.getValues<loom::Exact>()[3], whole.getValues<loom::Exact>()[3]);
}

TEST_F(InterpreterOps, ExactCompositesAreTheirDecompositions) {
  HostTensor x = floats({2, 3}, {1, 2, 3, -1, 0.5, 8}).toExactMode();
  auto result = evaluate("loom.softmax %a dim = 1 : tensor<2x3xf32>", {x});
  ASSERT_TRUE(succeeded(result));
  auto values = result->getValues<loom::Exact>();
  // Rows of a softmax sum to 1 in the field, too, whatever value exp has there.
  EXPECT_EQ(values[0] + values[1] + values[2], loom::Exact{1});
  EXPECT_EQ(values[3] + values[4] + values[5], loom::Exact{1});
  auto norm = evaluate(
      "loom.layer_norm %a, %b epsilon = 0.25 : (tensor<2x3xf32>, tensor<3xf32>) -> tensor<2x3xf32>",
      {x, floats({3}, {1, 1, 1}).toExactMode()});
  ASSERT_TRUE(succeeded(norm));
  auto row = norm->getValues<loom::Exact>();
  EXPECT_EQ(row[0] + row[1] + row[2], loom::Exact{0});
}

} // namespace
