//===- DerivativeTest.cpp - pullbacks against differences -----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Programs of one or a few operations, in f64: the gradient of their weighted output along random
// directions must equal the central difference of the output. Operations without a pullback must be
// refused.
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

/// Piecewise constant cases.
constexpr llvm::StringLiteral kFlat[] = {"floor", "ceil", "sign", "round_nearest_even"};

bool isFloatType(const std::string &type) { return type.find("f32") != std::string::npos; }

/// Variants with pullbacks of their own, in addition to kCases: scatters with repeated and dropped
/// indices, products with zeros, padding that windows and convolutions do not reach.
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

/// Cases with float inputs and a float result.
std::vector<Case> listCases() {
  std::vector<Case> cases = listFurtherCases();
  for (const Case &test : kCases)
    if (isFloatType(test.result) && llvm::any_of(test.arguments, isFloatType))
      cases.push_back(test);
  return cases;
}

/// Random f64 tensors.
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

std::string nameArgument(size_t i) { return {static_cast<char>('a' + i)}; }

/// The case in f64; the output is its result times argument %cotangent.
std::string makeProgram(const Case &test) {
  std::string text = "func.func @main(";
  for (auto [i, type] : llvm::enumerate(test.arguments)) {
    std::string name = nameArgument(i);
    llvm::StringRef plain(type);
    plain.consume_front("index ");
    text +=
        "%" + name + ": " + plain.str() + " {loom.name = \"" + name + "\", loom.dim_names = []}, ";
  }
  text += "%cotangent: " + test.result + " {loom.name = \"cotangent\", loom.dim_names = []}) -> (" +
          test.result +
          " {loom.name = \"out\", loom.dim_names = []}) attributes {loom.entry = "
          "\"main\", loom.dims = {}} {\n" +
          test.body + "\n %out = loom.multiply %r, %cotangent : " + test.result +
          "\n return %out : " + test.result + "\n}";
  for (size_t at = text.find("f32"); at != std::string::npos; at = text.find("f32", at))
    text.replace(at, 3, "f64");
  return text;
}

/// Adds the gradients as outputs NAME.grad.
mlir::LogicalResult differentiate(Context &context, mlir::ModuleOp module, const Case &test) {
  mlir::PassManager manager(context.get());
  DifferentiateOptions options;
  options.of = "out";
  for (auto [i, type] : llvm::enumerate(test.arguments))
    if (isFloatType(type))
      options.withRespectTo.push_back(nameArgument(i));
  manager.addPass(createDifferentiate(options));
  return manager.run(module);
}

class Derivative : public ::testing::TestWithParam<Case> {
protected:
  std::string makeProgram() const { return ::makeProgram(GetParam()); }
  mlir::LogicalResult differentiate(mlir::ModuleOp module) {
    return ::differentiate(context, module, GetParam());
  }

  /// Inputs where the functions are smooth.
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
      ASSERT_TRUE(gradients->contains(nameArgument(i) + ".grad")) << i;
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
// Polynomial operations, exactly
//===----------------------------------------------------------------------===//

/// In exact arithmetic <ct, J v> = <J^T ct, v> holds bit by bit, if J v is exact, too. Along a
/// line, g(e) = <ct, f(x + e v)> has the derivative <ct, J v> at 0, which the values at 0, 1, ...
/// give exactly if g is a polynomial: the sum of (-1)^(k+1) D^k g(0) / k over its forward
/// differences D^k (Jordan 1965, section 59).
class ExactDerivative {
public:
  /// The highest degree.
  static constexpr int kDegree = 8;
  enum Verdict { NoPolynomial, NoPullback, Wrong, Exact };

  explicit ExactDerivative(const Case &test) : test(test) {}

  Verdict judge() {
    auto module = context.parse(makeProgram(test));
    if (!module)
      return Wrong;
    mlir::OwningOpRef<mlir::ModuleOp> plain = module->clone();
    if (failed(differentiate(context, *module, test)))
      return NoPullback;
    for (int sample = 0; sample < 3; ++sample) {
      NamedTensors inputs = makeInputs(*plain);
      std::map<std::string, HostTensor> direction;
      for (auto [i, type] : llvm::enumerate(test.arguments))
        if (isFloatType(type))
          direction[nameArgument(i)] = makeIntegers(inputs[nameArgument(i)].getShape(), 4);
      std::optional<loom::Exact> forward = differentiateAlong(*plain, inputs, direction);
      if (!forward)
        return NoPolynomial;
      auto gradients = run(*module, inputs, {.exact = true, .observer = {}});
      if (failed(gradients))
        return Wrong;
      loom::Exact reverse;
      for (const auto &[name, along] : direction)
        for (auto [g, v] :
             llvm::zip_equal((*gradients)[name + ".grad"].toExact(), along.toExactMode().toExact()))
          reverse = reverse + g * v;
      if (!(reverse == *forward))
        return Wrong;
    }
    return Exact;
  }

private:
  /// Nonzero whole numbers from -`most` to `most`. With a large `most` they are far apart, so that
  /// no small step changes their order.
  HostTensor makeIntegers(llvm::ArrayRef<int64_t> shape, double most) {
    std::vector<double> values = numbers.make(shape, -most, most).toDoubles();
    for (double &value : values)
      value = value < 0 ? std::floor(value) : std::ceil(value);
    return HostTensor::fromDoubles(ElementKind::F64, shape, values);
  }

  NamedTensors makeInputs(mlir::ModuleOp module) {
    Case whole = test;
    whole.arguments.push_back(test.result); // %cotangent
    NamedTensors inputs = makeCaseInputs(whole, module);
    for (auto &entry : inputs)
      if (entry.second.getKind() == ElementKind::F64)
        entry.second = makeIntegers(entry.second.getShape(), 1e9);
    auto function = *module.getOps<mlir::func::FuncOp>().begin();
    auto type = mlir::cast<mlir::RankedTensorType>(function.getResultTypes()[0]);
    inputs["cotangent"] = makeIntegers(type.getShape(), 1e9);
    return inputs;
  }

  /// The derivative of the output's sum at 0; nothing if it is not a polynomial.
  std::optional<loom::Exact> differentiateAlong(mlir::ModuleOp module, const NamedTensors &inputs,
                                                std::map<std::string, HostTensor> &direction) {
    std::vector<loom::Exact> differences;
    for (int point = 0; point <= kDegree + 1; ++point) {
      NamedTensors at = inputs;
      for (const auto &[name, along] : direction)
        at[name] = step(at[name], point, along);
      auto outputs = run(module, at, {.exact = true, .observer = {}});
      if (failed(outputs))
        return std::nullopt;
      differences.emplace_back();
      for (loom::Exact value : (*outputs)["out"].toExact())
        differences.back() = differences.back() + value;
    }
    loom::Exact derivative;
    for (int order = 1; order <= kDegree + 1; ++order) {
      for (int i = 0; i + order <= kDegree + 1; ++i)
        differences[i] = differences[i + 1] - differences[i];
      loom::Exact term = differences[0] / loom::Exact::fromInt(order);
      derivative = order % 2 ? derivative + term : derivative - term;
    }
    if (!(differences[0] == loom::Exact()))
      return std::nullopt;
    return derivative;
  }

  const Case &test;
  Context context;
  Numbers numbers;
};

TEST(ExactDerivatives, OfPolynomialsAreExact) {
  std::map<ExactDerivative::Verdict, std::vector<std::string>> names;
  for (const Case &test : listCases())
    names[ExactDerivative(test).judge()].push_back(test.name);
  EXPECT_THAT(names[ExactDerivative::Wrong], ::testing::IsEmpty());
  size_t exact = names[ExactDerivative::Exact].size();
  std::printf("derivatives: %zu cases are polynomials, bit by bit; %zu are not; %zu have none\n",
              exact, names[ExactDerivative::NoPolynomial].size(),
              names[ExactDerivative::NoPullback].size());
  for (const std::string &name : names[ExactDerivative::NoPolynomial])
    std::printf("  no polynomial: %s\n", name.c_str());
  for (const std::string &name : names[ExactDerivative::NoPullback])
    std::printf("  no derivative: %s\n", name.c_str());
  EXPECT_GE(exact, 71U);
}

//===----------------------------------------------------------------------===//
// Batch normalisation
//===----------------------------------------------------------------------===//

/// Ioffe and Szegedy 2015, section 3: of y = x^ * s, x^ = r (x - mean), the cotangent of x is
/// s r (y' - mean(y') - x^ mean(y' x^)), with means over the batch; that of s is the sum of y' x^.
TEST(BatchNormalization, HasItsPublishedDerivative) {
  constexpr int64_t kBatch = 5, kChannels = 3, kSpace = 2, kCount = kBatch * kSpace;
  std::string full = "tensor<5x3x2xf64>", row = "tensor<3xf64>", spread, sums;
  spread = " dims = [1] : (" + row + ") -> " + full + "\n";
  sums = " dims = [0, 2] : (" + full + ") -> " + row + "\n";
  auto argument = [](const std::string &name, const std::string &type) {
    return "%" + name + ": " + type + " {loom.name = \"" + name + "\", loom.dim_names = []}";
  };
  std::string text =
      "func.func @main(" + argument("x", full) + ", " + argument("s", row) + ", " +
      argument("ct", full) + ") -> (" + full +
      " {loom.name = \"out\"}) attributes {loom.entry = \"main\", loom.dims = {}} {\n" +
      "%n = loom.constant dense<10.0> : " + row + "\n%0 = loom.reduce sum %x" + sums +
      "%mean = loom.divide %0, %n : " + row + "\n%1 = loom.broadcast %mean" + spread +
      "%c = loom.subtract %x, %1 : " + full + "\n%2 = loom.multiply %c, %c : " + full +
      "\n%3 = loom.reduce sum %2" + sums + "%var = loom.divide %3, %n : " + row +
      "\n%sd = loom.sqrt %var : " + row + "\n%f = loom.divide %s, %sd : " + row +
      "\n%4 = loom.broadcast %f" + spread + "%y = loom.multiply %c, %4 : " + full +
      "\n%out = loom.multiply %y, %ct : " + full + "\nreturn %out : " + full + "\n}";
  Context context;
  auto module = context.parse(text);
  ASSERT_TRUE(module);
  mlir::PassManager manager(context.get());
  DifferentiateOptions options;
  options.of = "out";
  options.withRespectTo = {"x", "s"};
  manager.addPass(createDifferentiate(options));
  ASSERT_TRUE(succeeded(manager.run(*module))) << context.takeError();
  Numbers numbers;
  NamedTensors inputs;
  inputs["x"] = numbers.make({kBatch, kChannels, kSpace}, -3, 5);
  inputs["s"] = numbers.make({kChannels}, -1, 2);
  inputs["ct"] = numbers.make({kBatch, kChannels, kSpace}, -1, 1);
  auto outputs = run(*module, inputs);
  ASSERT_TRUE(succeeded(outputs)) << context.takeError();
  std::vector<double> x = inputs["x"].toDoubles(), s = inputs["s"].toDoubles(),
                      ct = inputs["ct"].toDoubles(), xGrad = (*outputs)["x.grad"].toDoubles(),
                      sGrad = (*outputs)["s.grad"].toDoubles();
  for (int64_t channel = 0; channel < kChannels; ++channel) {
    std::vector<size_t> places;
    for (size_t i = 0; i < x.size(); ++i)
      if (static_cast<int64_t>(i) / kSpace % kChannels == channel)
        places.push_back(i);
    auto mean = [&](auto function) {
      double sum = 0;
      for (size_t i : places)
        sum += function(i);
      return sum / kCount;
    };
    double centre = mean([&](size_t i) { return x[i]; });
    double r = 1 / std::sqrt(mean([&](size_t i) { return (x[i] - centre) * (x[i] - centre); }));
    auto normal = [&](size_t i) { return r * (x[i] - centre); };
    double shift = mean([&](size_t i) { return ct[i]; });
    double slope = mean([&](size_t i) { return ct[i] * normal(i); });
    EXPECT_NEAR(sGrad[channel], slope * kCount, 1e-12);
    for (size_t i : places)
      EXPECT_NEAR(xGrad[i], s[channel] * r * (ct[i] - shift - normal(i) * slope), 1e-13) << i;
  }
}

//===----------------------------------------------------------------------===//
// Ties: points with several derivatives
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
  // a ^ b at b = 0: the derivative by a is 0, and by b it is log a, or 0 where a is 0.
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
  // x - max x, and a * b with one factor held constant.
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
