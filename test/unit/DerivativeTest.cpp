//===- DerivativeTest.cpp - pullbacks against differences -----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Programs of one or a few operations, in f64: the gradient of their weighted output along random
// directions must be the central difference of the output. What has no pullback is refused, one by
// one.
//
//===----------------------------------------------------------------------===//
#include "EquivalenceCases.h"

#include "passes/differentiate/Differentiate.h"

#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassManager.h"

using namespace gridloom;
using namespace gridloom::testing;
using loom::ElementKind;
using loom::HostTensor;

namespace {

/// Cases whose last operation has no pullback yet.
constexpr llvm::StringLiteral kRefused[] = {"cumulative_exclusive", "scatter_slices"};
bool isRefused(llvm::StringRef name) {
  return llvm::is_contained(kRefused, name) ||
         llvm::any_of(kUnaryFunctions, [&](const auto &function) {
           return name == function.name && !function.hasPullback;
         });
}

/// Cases that change in steps only.
constexpr llvm::StringLiteral kFlat[] = {"floor", "ceil", "sign", "round_nearest_even"};

bool isFloatType(const std::string &type) { return type.find("f32") != std::string::npos; }

/// Forms that have a pullback of their own, beside those of kCases: updates of which some go to one
/// place and some nowhere, products with zeros, padding that windows and convolutions leave out.
std::vector<Case> listFurtherCases() {
  return {
      {"scatter_rows_replaced",
       {"tensor<6x4xf32>", "index tensor<9xi64>", "tensor<9x4xf32>"},
       "%r = loom.scatter %a, %b, %c dim = 0 : (tensor<6x4xf32>, tensor<9xi64>, tensor<9x4xf32>) "
       "-> "
       "tensor<6x4xf32>",
       "tensor<6x4xf32>"},
      {"scatter_columns_added",
       {"tensor<4x6xf32>", "index tensor<9xi64>", "tensor<4x9xf32>"},
       "%r = loom.scatter %a, %b, %c dim = 1 reduce = sum : (tensor<4x6xf32>, tensor<9xi64>, "
       "tensor<4x9xf32>) -> tensor<4x6xf32>",
       "tensor<4x6xf32>"},
      {"scatter_elements_replaced",
       {"tensor<6x4xf32>", "index tensor<9x4xi64>", "tensor<9x4xf32>"},
       "%r = loom.scatter %a, %b, %c dim = 0 : (tensor<6x4xf32>, tensor<9x4xi64>, tensor<9x4xf32>) "
       "-> tensor<6x4xf32>",
       "tensor<6x4xf32>"},
      {"scatter_line_replaced",
       {"tensor<6xf32>", "index tensor<9xi64>", "tensor<9xf32>"},
       "%r = loom.scatter %a, %b, %c dim = 0 : (tensor<6xf32>, tensor<9xi64>, tensor<9xf32>) -> "
       "tensor<6xf32>",
       "tensor<6xf32>"},
      {"cumulative_sum_exclusive_reverse",
       {"tensor<3x5xf32>"},
       "%r = loom.cumulative sum %a dim = 1 exclusive reverse : tensor<3x5xf32>",
       "tensor<3x5xf32>"},
      {"reduce_prod_with_zeros",
       {"tensor<3x4xf32>"},
       "%z = loom.constant dense<[[0.0, 1.0, 1.0, 1.0], [0.0, 0.0, 1.0, 1.0], [1.0, 1.0, 1.0, "
       "1.0]]> "
       ": tensor<3x4xf32>\n"
       "%m = loom.multiply %a, %z : tensor<3x4xf32>\n"
       "%r = loom.reduce prod %m dims = [1] : (tensor<3x4xf32>) -> tensor<3xf32>",
       "tensor<3xf32>"},
      // The last row and column of the input are in no window; the gradient's padding is negative.
      {"convolution_cropped",
       {"tensor<2x4x8x7xf32>", "tensor<6x2x1x2xf32>"},
       "%r = loom.convolution %a, %b strides = [3, 2] low = [2, 0] high = [0, 1] input_dilations = "
       "[1, 1] dilations = [1, 2] groups = 2 : (tensor<2x4x8x7xf32>, tensor<6x2x1x2xf32>) -> "
       "tensor<2x6x4x3xf32>",
       "tensor<2x6x4x3xf32>"},
      {"convolution_transposed_grouped",
       {"tensor<2x4x5xf32>", "tensor<6x2x3xf32>"},
       "%r = loom.convolution %a, %b strides = [2] low = [1] high = [3] input_dilations = [3] "
       "dilations = [2] groups = 2 : (tensor<2x4x5xf32>, tensor<6x2x3xf32>) -> tensor<2x6x7xf32>",
       "tensor<2x6x7xf32>"},
      {"average_cropped",
       {"tensor<1x2x9xf32>"},
       "%r = loom.reduce_window sum %a dims = [2] sizes = [2] strides = [3] low = [3] high = [0] "
       "dilations = [1] : (tensor<1x2x9xf32>) -> tensor<1x2x4xf32>",
       "tensor<1x2x4xf32>"},
      {"largest_overlapping",
       {"tensor<1x2x9x8xf32>"},
       "%r = loom.reduce_window max %a dims = [2, 3] sizes = [3, 2] strides = [2, 1] low = [1, 0] "
       "high = [0, 1] dilations = [1, 2] : (tensor<1x2x9x8xf32>) -> tensor<1x2x4x7xf32>",
       "tensor<1x2x4x7xf32>"},
  };
}

/// Cases of floats that become floats.
std::vector<Case> listCases() {
  std::vector<Case> cases = listFurtherCases();
  for (const Case &test : kCases)
    if (isFloatType(test.result) && llvm::any_of(test.arguments, isFloatType))
      cases.push_back(test);
  return cases;
}

/// Random numbers of f64.
class Numbers {
public:
  HostTensor make(llvm::ArrayRef<int64_t> shape, double low, double high) {
    std::vector<double> values = makeUniform(++seed, llvm::product_of(shape));
    for (double &value : values)
      value = low + (high - low) * value;
    return HostTensor::fromDoubles(ElementKind::F64, shape, values);
  }

private:
  uint64_t seed = 20261123;
};

/// x + factor * direction.
HostTensor step(const HostTensor &x, double factor, const HostTensor &direction) {
  std::vector<double> values = x.toDoubles();
  for (auto [value, change] : llvm::zip_equal(values, direction.toDoubles()))
    value += factor * change;
  return HostTensor::fromDoubles(ElementKind::F64, x.getShape(), values);
}

double dot(const HostTensor &x, const HostTensor &y) {
  double sum = 0;
  for (auto [a, b] : llvm::zip_equal(x.toDoubles(), y.toDoubles()))
    sum += a * b;
  return sum;
}

class Derivative : public ::testing::TestWithParam<Case> {
protected:
  /// The case in f64, with its result times argument %cotangent as output.
  std::string makeProgram() const {
    const Case &test = GetParam();
    std::string text = "func.func @main(";
    for (auto [i, type] : llvm::enumerate(test.arguments)) {
      std::string name(1, static_cast<char>('a' + i));
      llvm::StringRef plain(type);
      plain.consume_front("index ");
      text += "%" + name + ": " + plain.str() + " {loom.name = \"" + name +
              "\", loom.dim_names = []}, ";
    }
    text += "%cotangent: " + test.result +
            " {loom.name = \"cotangent\", loom.dim_names = []}) -> (" + test.result +
            " {loom.name = \"out\", loom.dim_names = []}) attributes {loom.entry = "
            "\"main\", loom.dims = {}} {\n" +
            test.body + "\n %out = loom.multiply %r, %cotangent : " + test.result +
            "\n return %out : " + test.result + "\n}";
    for (size_t at = text.find("f32"); at != std::string::npos; at = text.find("f32", at))
      text.replace(at, 3, "f64");
    return text;
  }

  /// Adds outputs NAME.grad.
  mlir::LogicalResult differentiate(mlir::ModuleOp module) {
    mlir::PassManager manager(context.get());
    DifferentiateOptions options;
    options.of = "out";
    for (auto [i, type] : llvm::enumerate(GetParam().arguments))
      if (isFloatType(type))
        options.withRespectTo.push_back(std::string(1, static_cast<char>('a' + i)));
    manager.addPass(createDifferentiate(options));
    return manager.run(module);
  }

  /// Values where the functions are smooth.
  NamedTensors makeInputs(mlir::ModuleOp module) {
    Case test = GetParam();
    test.arguments.push_back(test.result); // %cotangent
    NamedTensors inputs = makeCaseInputs(test, module);
    double low = 0.1, high = 0.6;
    for (const UnaryFunction &function : kUnaryFunctions)
      if (GetParam().name == function.name) {
        double margin = 0.1 * (function.high - function.low);
        low = function.low + margin;
        high = function.high - margin;
      }
    for (auto &entry : inputs)
      if (entry.second.getKind() == ElementKind::F64)
        entry.second = numbers.make(entry.second.getShape(), low, high);
    auto function = *module.getOps<mlir::func::FuncOp>().begin();
    auto type = mlir::cast<mlir::RankedTensorType>(function.getResultTypes()[0]);
    inputs["cotangent"] = numbers.make(type.getShape(), -1, 1);
    return inputs;
  }

  Context context;
  Numbers numbers;
};

TEST_P(Derivative, IsTheLimitOfDifferences) {
  constexpr double kStep = 1e-6, kTolerance = 1e-7;
  auto module = context.parse(makeProgram());
  ASSERT_TRUE(module);
  NamedTensors inputs = makeInputs(*module);
  mlir::OwningOpRef<mlir::ModuleOp> plain = module->clone();
  bool isDone = succeeded(differentiate(*module));
  std::string error = context.takeError();
  if (llvm::is_contained(kFlat, GetParam().name)) {
    EXPECT_FALSE(isDone);
    EXPECT_THAT(error, ::testing::HasSubstr("depends on none"));
    return;
  }
  if (isRefused(GetParam().name)) {
    EXPECT_FALSE(isDone);
    EXPECT_THAT(error, ::testing::HasSubstr("has no derivative yet"));
    return;
  }
  ASSERT_TRUE(isDone) << error;
  ASSERT_TRUE(succeeded(mlir::verify(*module))) << context.takeError();
  auto gradients = run(*module, inputs);
  ASSERT_TRUE(succeeded(gradients)) << context.takeError();
  for (auto [i, type] : llvm::enumerate(GetParam().arguments))
    if (isFloatType(type))
      ASSERT_TRUE(gradients->contains(std::string(1, static_cast<char>('a' + i)) + ".grad")) << i;
  for (int sample = 0; sample < 3; ++sample) {
    NamedTensors up = inputs, down = inputs;
    double expected = 0, scale = 0;
    for (const auto &entry : *gradients) {
      llvm::StringRef name = entry.first();
      if (!name.consume_back(".grad"))
        continue;
      HostTensor direction = numbers.make(entry.second.getShape(), -1, 1);
      up[name] = step(inputs[name], kStep, direction);
      down[name] = step(inputs[name], -kStep, direction);
      expected += dot(entry.second, direction);
      scale += std::sqrt(dot(entry.second, entry.second) * dot(direction, direction));
    }
    ASSERT_GT(scale, 0) << "all gradients are zero";
    auto sum = [&](const NamedTensors &at) {
      auto outputs = run(*plain, at);
      EXPECT_TRUE(succeeded(outputs)) << context.takeError();
      double total = 0;
      for (double value : (*outputs)["out"].toDoubles())
        total += value;
      return total;
    };
    double difference = (sum(up) - sum(down)) / (2 * kStep);
    EXPECT_NEAR(expected, difference, kTolerance * scale) << "direction " << sample;
  }
}

INSTANTIATE_TEST_SUITE_P(Operations, Derivative, ::testing::ValuesIn(listCases()),
                         [](const auto &info) { return std::string(info.param.name); });

//===----------------------------------------------------------------------===//
// Where there are several derivatives
//===----------------------------------------------------------------------===//

class Ties : public ::testing::Test {
protected:
  /// The gradients of `body`'s %r by %a and %b at the same values.
  std::vector<std::vector<double>> differentiate(const std::string &body,
                                                 llvm::ArrayRef<double> values) {
    std::string text =
        "func.func @main(%a: tensor<3xf64> {loom.name = \"a\", loom.dim_names = []}, "
        "%b: tensor<3xf64> {loom.name = \"b\", loom.dim_names = []}) -> (tensor<3xf64> "
        "{loom.name = \"out\"}) attributes {loom.entry = \"main\", loom.dims = {}} {\n" +
        body + "\n return %r : tensor<3xf64>\n}";
    auto module = context.parse(text);
    mlir::PassManager manager(context.get());
    DifferentiateOptions options;
    options.of = "out";
    options.withRespectTo = {"a", "b"};
    manager.addPass(createDifferentiate(options));
    EXPECT_TRUE(succeeded(manager.run(*module))) << context.takeError();
    HostTensor zeros = HostTensor::fromDoubles(ElementKind::F64, {3}, {0, 0, 0});
    NamedTensors inputs;
    inputs["a"] = HostTensor::fromDoubles(ElementKind::F64, {3}, values);
    inputs["b"] = zeros;
    auto outputs = run(*module, inputs);
    EXPECT_TRUE(succeeded(outputs)) << context.takeError();
    return {(*outputs)["a.grad"].toDoubles(), (*outputs)["b.grad"].toDoubles()};
  }

  Context context;
};

using Lists = std::vector<std::vector<double>>;

TEST_F(Ties, AreHalvedOrGoToOneSide) {
  EXPECT_EQ(differentiate("%r = loom.maximum %a, %b : tensor<3xf64>", {-1, 0, 1}),
            (Lists{{0, 0.5, 1}, {1, 0.5, 0}}));
  EXPECT_EQ(
      differentiate("%r = loom.maximum %a, %b {loom.ties = \"rhs\"} : tensor<3xf64>", {-1, 0, 1}),
      (Lists{{0, 0, 1}, {1, 1, 0}}));
  EXPECT_EQ(
      differentiate("%r = loom.minimum %a, %b {loom.ties = \"lhs\"} : tensor<3xf64>", {-1, 0, 1}),
      (Lists{{1, 1, 0}, {0, 0, 1}}));
}

TEST_F(Ties, PowersOfZeroHaveNoNan) {
  // a ^ b at b = 0: the slope by a is 0, that by b is log a, and 0 where a is 0.
  EXPECT_EQ(differentiate("%r = loom.power %a, %b : tensor<3xf64>", {0, 1, 2}),
            (Lists{{0, 0, 0}, {0, 0, std::log(2.0)}}));
}

TEST_F(Ties, OfReductionsAreSharedAndOfWindowsGoToTheFirst) {
  EXPECT_EQ(differentiate("%m = loom.reduce max %a dims = [0] : (tensor<3xf64>) -> tensor<f64>\n"
                          "%w = loom.broadcast %m dims = [] : (tensor<f64>) -> tensor<3xf64>\n"
                          "%r = loom.add %w, %b : tensor<3xf64>",
                          {2, 1, 2}),
            (Lists{{1.5, 0, 1.5}, {1, 1, 1}}));
  EXPECT_EQ(
      differentiate("%w = loom.reduce_window max %a dims = [0] sizes = [3] strides = [1] low = [1] "
                    "high = [1] dilations = [1] : (tensor<3xf64>) -> tensor<3xf64>\n"
                    "%r = loom.add %w, %b : tensor<3xf64>",
                    {2, 1, 2}),
      (Lists{{2, 0, 1}, {1, 1, 1}}));
}

TEST_F(Ties, FlatOperationsAreConstants) {
  // x - max x, and a * b where only one factor counts.
  EXPECT_EQ(differentiate("%m = loom.reduce max %a dims = [0] {loom.flat} : (tensor<3xf64>) -> "
                          "tensor<f64>\n"
                          "%w = loom.broadcast %m dims = [] : (tensor<f64>) -> tensor<3xf64>\n"
                          "%s = loom.subtract %a, %w : tensor<3xf64>\n"
                          "%r = loom.add %s, %b : tensor<3xf64>",
                          {2, 1, 2}),
            (Lists{{1, 1, 1}, {1, 1, 1}}));
  EXPECT_EQ(differentiate("%n = loom.negate %a {loom.flat} : tensor<3xf64>\n"
                          "%p = loom.multiply %a, %n : tensor<3xf64>\n"
                          "%r = loom.add %p, %b : tensor<3xf64>",
                          {2, 1, 3}),
            (Lists{{-2, -1, -3}, {1, 1, 1}}));
}

} // namespace
