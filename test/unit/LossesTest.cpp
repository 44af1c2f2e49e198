//===- LossesTest.cpp - losses against formulas in f64 --------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Each loss is built into a program, differentiated and run. Its value must equal an f64 formula in
// this file, and its gradient the central difference of that formula.
//
//===----------------------------------------------------------------------===//
#include "InterpreterTesting.h"

#include "passes/differentiate/Differentiate.h"
#include "passes/partition/Partition.h"
#include "passes/shard/Shard.h"
#include "passes/train/Losses.h"

#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/StringExtras.h"

#include <cmath>
#include <limits>

using namespace gridloom;
using namespace gridloom::testing;
using namespace gridloom::train;
using loom::ElementKind;
using loom::HostTensor;
using ::testing::HasSubstr;

namespace {

using Doubles = std::vector<double>;
using Shape = std::vector<int64_t>;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

int64_t count(const Shape &shape) { return llvm::product_of(shape); }

struct Outcome {
  double sum = 0, count = 0;
  Doubles gradient; ///< by the prediction; empty if it was not requested
};

/// The text of a tensor type: tensor<2x3xf32>.
std::string typeText(const Shape &shape, llvm::StringRef element) {
  std::string text = "tensor<";
  for (int64_t size : shape)
    text += std::to_string(size) + "x";
  return text + element.str() + ">";
}

class Losses : public ::testing::Test {
protected:
  /// A function of %x and %t without results.
  mlir::OwningOpRef<mlir::ModuleOp> makeModule(const std::string &prediction,
                                               const std::string &target) {
    return context.parse("func.func @main(%x: " + prediction +
                         " {loom.name = \"x\", loom.dim_names = []}, %t: " + target +
                         " {loom.name = \"t\", loom.dim_names = []}) attributes {loom.entry = "
                         "\"main\", loom.dims = {}} {\n return\n}");
  }

  static mlir::func::FuncOp getFunction(mlir::ModuleOp module) {
    return *module.getOps<mlir::func::FuncOp>().begin();
  }

  static Term makeTerm(mlir::OpBuilder &builder, mlir::func::FuncOp function, unsigned argument) {
    return {builder, builder.getUnknownLoc(), function.getArgument(argument)};
  }

  /// Builds the loss or metric and returns its sum and count as outputs.
  template <typename Build> std::string addParts(mlir::ModuleOp module, Build build) {
    mlir::func::FuncOp function = getFunction(module);
    mlir::Operation *end = function.front().getTerminator();
    mlir::OpBuilder builder(end);
    std::string error;
    std::optional<LossParts> parts =
        build(makeTerm(builder, function, 0), makeTerm(builder, function, 1), error);
    if (!parts) {
      EXPECT_EQ(std::distance(function.front().begin(), function.front().end()), 1)
          << "something was built";
      return error;
    }
    EXPECT_EQ(error, "");
    const Term both[] = {parts->sum, parts->count};
    for (auto [i, part] : llvm::enumerate(both)) {
      mlir::Type element = getElementTypeOrSelf(function.getArgument(0).getType());
      EXPECT_EQ(part.getType().getElementType().isF64(), element.isF64());
      EXPECT_TRUE(element.isF64() || part.getType().getElementType().isF32());
      EXPECT_EQ(part.getRank(), 0);
      auto name = builder.getNamedAttr(loom::kName, builder.getStringAttr(i ? "count" : "sum"));
      EXPECT_TRUE(
          succeeded(function.insertResult(i, part.getType(), builder.getDictionaryAttr(name))));
    }
    end->setOperands({parts->sum, parts->count});
    EXPECT_TRUE(succeeded(mlir::verify(module))) << context.takeError();
    return "";
  }

  std::string addLoss(mlir::ModuleOp module, const std::string &text) {
    std::string error;
    std::optional<LossSpec> loss = LossSpec::parse(text, error);
    EXPECT_TRUE(loss) << error;
    if (!loss)
      return error;
    return addParts(
        module, [&](Term x, Term t, std::string &fault) { return buildLoss(*loss, x, t, fault); });
  }

  std::string addMetric(mlir::ModuleOp module, const std::string &text) {
    std::string error;
    std::optional<MetricSpec> metric = MetricSpec::parse(text, error);
    EXPECT_TRUE(metric) << error;
    if (!metric)
      return error;
    return addParts(module, [&](Term x, Term t, std::string &fault) {
      return buildMetric(*metric, x, t, fault);
    });
  }

  bool differentiate(mlir::ModuleOp module, const std::string &by = "x") {
    mlir::PassManager manager(context.get());
    DifferentiateOptions options;
    options.of = "sum";
    options.withRespectTo = {by};
    manager.addPass(createDifferentiate(options));
    bool isDone = succeeded(manager.run(module));
    EXPECT_TRUE(isDone) << context.takeError();
    return isDone;
  }

  Outcome evaluate(mlir::ModuleOp module, const HostTensor &x, const HostTensor &t,
                   const std::string &by = "x") {
    NamedTensors inputs;
    inputs["x"] = x;
    inputs["t"] = t;
    auto outputs = run(module, inputs);
    EXPECT_TRUE(succeeded(outputs)) << context.takeError();
    if (failed(outputs))
      return {};
    Outcome outcome{(*outputs)["sum"].toDoubles()[0], (*outputs)["count"].toDoubles()[0], {}};
    if (outputs->contains(by + ".grad"))
      outcome.gradient = (*outputs)[by + ".grad"].toDoubles();
    return outcome;
  }

  /// The loss of f64 logits by i64 labels, and its gradient.
  Outcome classify(const std::string &text, const Shape &shape, const Doubles &logits,
                   const Shape &labelShape, const std::vector<int64_t> &labels) {
    auto module = makeModule(typeText(shape, "f64"), typeText(labelShape, "i64"));
    if (!addLoss(*module, text).empty() || !differentiate(*module))
      return {};
    return evaluate(*module, HostTensor::fromDoubles(ElementKind::F64, shape, logits),
                    HostTensor::fromInts(ElementKind::I64, labelShape, labels));
  }

  /// The loss of predictions and targets of one type, and its gradient by input `by`.
  Outcome compareFloats(const std::string &text, const Shape &shape, const Doubles &x,
                        const Doubles &t, const std::string &by = "x") {
    auto module = makeModule(typeText(shape, "f64"), typeText(shape, "f64"));
    if (!addLoss(*module, text).empty() || !differentiate(*module, by))
      return {};
    return evaluate(*module, HostTensor::fromDoubles(ElementKind::F64, shape, x),
                    HostTensor::fromDoubles(ElementKind::F64, shape, t), by);
  }

  /// The number of correct rows and of all rows.
  Outcome measure(const std::string &text, const Shape &shape, const Doubles &logits,
                  const Shape &labelShape, const std::vector<int64_t> &labels,
                  const std::string &element = "f32") {
    auto module = makeModule(typeText(shape, element), typeText(labelShape, "i64"));
    if (!addMetric(*module, text).empty())
      return {};
    auto kind = element == "bf16" ? ElementKind::BF16 : ElementKind::F32;
    return evaluate(*module, HostTensor::fromDoubles(kind, shape, logits),
                    HostTensor::fromInts(ElementKind::I64, labelShape, labels));
  }

  Context context;
};

/// Numbers in (low, high) that differ from element to element.
Doubles makeNumbers(int64_t count, double low, double high) {
  Doubles values;
  for (int64_t i = 0; i < count; ++i) {
    double fraction = std::fmod(0.5 + static_cast<double>(i) * 0.6180339887498949, 1.0);
    values.push_back(low + (high - low) * fraction);
  }
  return values;
}

/// The indices of the elements of each row along `axis`; rows are ordered by the other dimensions.
std::vector<std::vector<size_t>> listRows(const Shape &shape, size_t axis) {
  size_t inner = count(Shape(shape.begin() + static_cast<std::ptrdiff_t>(axis) + 1, shape.end()));
  auto classes = static_cast<size_t>(shape[axis]);
  std::vector<std::vector<size_t>> rows;
  for (size_t row = 0; row < static_cast<size_t>(count(shape)) / classes; ++row) {
    rows.emplace_back();
    for (size_t c = 0; c < classes; ++c)
      rows.back().push_back((row / inner * classes + c) * inner + row % inner);
  }
  return rows;
}

Doubles softmax(const Doubles &x, const std::vector<size_t> &row) {
  double largest = -kInfinity, sum = 0;
  for (size_t i : row)
    largest = std::max(largest, x[i]);
  Doubles result;
  for (size_t i : row)
    sum += result.emplace_back(std::exp(x[i] - largest));
  for (double &each : result)
    each /= sum;
  return result;
}

/// Central differences of `formula` at x.
template <typename Formula> Doubles differ(Formula formula, Doubles x) {
  constexpr double kStep = 1e-6;
  Doubles slopes;
  for (double &each : x) {
    double old = std::exchange(each, each + kStep);
    double above = formula(x);
    each = old - kStep;
    slopes.push_back((above - formula(x)) / (2 * kStep));
    each = old;
  }
  return slopes;
}

void expectNear(const Doubles &actual, const Doubles &expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i)
    EXPECT_NEAR(actual[i], expected[i], tolerance) << "element " << i;
}

//===----------------------------------------------------------------------===//
// cross_entropy
//===----------------------------------------------------------------------===//

struct CrossEntropyCase {
  std::string settings;
  Shape shape;
  size_t axis;
  double smoothing;
  std::optional<int64_t> ignored;
  Doubles weights = {};

  double getWeight(size_t c) const { return weights.empty() ? 1 : weights[c]; }
};

/// Labels that cycle through the classes, every third one ignored.
std::vector<int64_t> makeLabels(const CrossEntropyCase &test) {
  std::vector<int64_t> labels;
  int64_t rows = count(test.shape) / test.shape[test.axis];
  for (int64_t row = 0; row < rows; ++row)
    labels.push_back(test.ignored && row % 3 == 1 ? *test.ignored
                                                  : row * 5 % test.shape[test.axis]);
  return labels;
}

double crossEntropy(const CrossEntropyCase &test, const std::vector<int64_t> &labels,
                    const Doubles &x) {
  double total = 0;
  for (auto [label, row] : llvm::zip_equal(labels, listRows(test.shape, test.axis))) {
    if (test.ignored && label == *test.ignored)
      continue;
    Doubles p = softmax(x, row);
    auto classes = static_cast<double>(p.size());
    for (size_t c = 0; c < p.size(); ++c) {
      double wanted = test.smoothing / classes;
      if (static_cast<int64_t>(c) == label)
        wanted += 1 - test.smoothing;
      total -= test.getWeight(c) * wanted * std::log(p[c]);
    }
  }
  return total;
}

TEST_F(Losses, CrossEntropyIsItsFormula) {
  const CrossEntropyCase cases[] = {
      {"", {6, 5}, 1, 0, std::nullopt},
      {"", {7}, 0, 0, std::nullopt},
      {"", {4, 1}, 1, 0, std::nullopt},
      {"", {2, 3, 5}, 2, 0, std::nullopt},
      {", axis=1", {2, 4, 3}, 1, 0, std::nullopt},
      {", axis=-2", {2, 4, 3}, 1, 0, std::nullopt},
      {", axis=0", {4, 3}, 0, 0, std::nullopt},
      {", label_smoothing=0.1", {6, 5}, 1, 0.1, std::nullopt},
      {", label_smoothing=1", {6, 5}, 1, 1, std::nullopt},
      {", ignore_index=-100", {6, 5}, 1, 0, -100},
      {", ignore_index=2", {6, 5}, 1, 0, 2},
      {", ignore_index=9223372036854775807", {6, 5}, 1, 0, 9223372036854775807},
      {", ignore_index=-9223372036854775808", {6, 5}, 1, 0, std::numeric_limits<int64_t>::min()},
      {", axis=1, label_smoothing=0.25, ignore_index=7", {3, 4, 2, 2}, 1, 0.25, 7},
      {", class_weights=[2, 0, 0.5]", {7, 3}, 1, 0, std::nullopt, {2, 0, 0.5}},
      {", axis=1, class_weights=[1,3], label_smoothing=0.2, ignore_index=0",
       {3, 2, 4},
       1,
       0.2,
       0,
       {1, 3}},
  };
  for (const CrossEntropyCase &test : cases) {
    SCOPED_TRACE(test.settings + " of " + typeText(test.shape, "f64"));
    Shape labelShape = test.shape;
    labelShape.erase(labelShape.begin() + static_cast<std::ptrdiff_t>(test.axis));
    std::vector<int64_t> labels = makeLabels(test);
    Doubles x = makeNumbers(count(test.shape), -3, 3);
    Outcome outcome =
        classify("cross_entropy(x, t" + test.settings + ")", test.shape, x, labelShape, labels);
    auto formula = [&](const Doubles &at) { return crossEntropy(test, labels, at); };
    EXPECT_NEAR(outcome.sum, formula(x), 1e-12);
    double kept = 0;
    for (int64_t label : labels)
      kept += label == test.ignored ? 0 : test.getWeight(static_cast<size_t>(label));
    EXPECT_EQ(outcome.count, kept);
    expectNear(outcome.gradient, differ(formula, x), 1e-7);
  }
}

/// softmax - onehot with smoothing; exactly zero for ignored rows.
TEST_F(Losses, GradientOfCrossEntropyIsSoftmaxLessOneHot) {
  const Shape shape{3, 4};
  Doubles x = makeNumbers(12, -2, 2);
  const std::vector<int64_t> labels{3, -1, 0};
  Outcome outcome =
      classify("cross_entropy(x, t, label_smoothing=0.2, ignore_index=-1)", shape, x, {3}, labels);
  ASSERT_EQ(outcome.gradient.size(), 12U);
  for (auto [label, row] : llvm::zip_equal(labels, listRows(shape, 1))) {
    Doubles p = softmax(x, row);
    for (size_t c = 0; c < 4; ++c) {
      double wanted = static_cast<int64_t>(c) == label ? 0.85 : 0.05;
      if (label == -1)
        EXPECT_EQ(outcome.gradient[row[c]], 0);
      else
        EXPECT_NEAR(outcome.gradient[row[c]], p[c] - wanted, 1e-12);
    }
  }
}

TEST_F(Losses, CrossEntropyOfLargeLogitsIsFinite) {
  Outcome outcome =
      classify("cross_entropy(x, t)", {3, 2}, {1e4, 0, 1e4, 0, -1e4, -1e4}, {3}, {1, 0, 0});
  EXPECT_NEAR(outcome.sum, 1e4 + std::log(2.0), 1e-3);
  expectNear(outcome.gradient, {1, -1, 0, 0, -0.5, 0.5}, 1e-12);
}

/// As for the padding of a vocabulary.
TEST_F(Losses, CrossEntropyLeavesOutClassesOfMinusInfinity) {
  Outcome outcome = classify("cross_entropy(x, t)", {1, 3}, {1, 1, -kInfinity}, {1}, {0});
  EXPECT_NEAR(outcome.sum, std::log(2.0), 1e-6);
  expectNear(outcome.gradient, {-0.5, 0.5, 0}, 1e-12);
}

TEST_F(Losses, CrossEntropyOfIgnoredLabelsOnlyIsZeroOfNone) {
  Outcome outcome = classify("cross_entropy(x, t, ignore_index=-100, label_smoothing=0.1)", {2, 3},
                             {1, 2, 3, 4, 5, 6}, {2}, {-100, -100});
  EXPECT_EQ(outcome.sum, 0);
  EXPECT_EQ(outcome.count, 0);
  EXPECT_EQ(outcome.gradient, Doubles(6, 0));
}

/// Their gradient is zero, not NaN * 0.
TEST_F(Losses, IgnoredRowsHaveNoPartWhateverTheirLogitsAre) {
  for (double broken : {std::nan(""), kInfinity, -kInfinity})
    for (const char *settings : {"", ", label_smoothing=0.1", ", class_weights=[1, 2]"}) {
      Outcome outcome =
          classify("cross_entropy(x, t, ignore_index=-1" + std::string(settings) + ")", {2, 2},
                   {broken, 3, 1, 1}, {2}, {-1, 1});
      EXPECT_TRUE(std::isfinite(outcome.sum)) << broken << settings;
      ASSERT_EQ(outcome.gradient.size(), 4U);
      EXPECT_EQ(outcome.gradient[0], 0) << broken << settings;
      EXPECT_EQ(outcome.gradient[1], 0) << broken << settings;
      EXPECT_NE(outcome.gradient[2], 0) << broken << settings;
    }
}

TEST_F(Losses, ThereIsAWeightForEachClass) {
  auto module = makeModule("tensor<2x3xf32>", "tensor<2xi64>");
  EXPECT_THAT(addLoss(*module, "cross_entropy(x, t, class_weights=[1, 2])"),
              HasSubstr("class_weights has 2 numbers, 'x' [2, 3] has 3 classes along axis -1"));
}

TEST_F(Losses, CrossEntropyOfNoClassIsNan) {
  for (int64_t label : {int64_t(-1), int64_t(3), int64_t(1) << 40})
    for (const char *settings : {"", ", label_smoothing=0.1", ", ignore_index=-100"})
      EXPECT_TRUE(std::isnan(classify("cross_entropy(x, t" + std::string(settings) + ")", {2, 3},
                                      {1, 2, 3, 4, 5, 6}, {2}, {0, label})
                                 .sum))
          << label << settings;
}

TEST_F(Losses, CrossEntropyOfAnEmptyBatchIsZeroOfNone) {
  Outcome outcome = classify("cross_entropy(x, t)", {0, 3}, {}, {0}, {});
  EXPECT_EQ(outcome.sum, 0);
  EXPECT_EQ(outcome.count, 0);
}

/// Labels, and the ignored one, may be of any integer type.
TEST_F(Losses, LabelsAreIntegersOfAnyWidth) {
  const std::pair<const char *, ElementKind> kinds[] = {{"i8", ElementKind::I8},
                                                        {"ui8", ElementKind::U8},
                                                        {"i32", ElementKind::I32},
                                                        {"i64", ElementKind::I64}};
  for (auto [element, kind] : kinds) {
    auto module = makeModule("tensor<3x2xf32>", typeText({3}, element));
    ASSERT_EQ(addLoss(*module, "cross_entropy(x, t, ignore_index=100)"), "");
    Outcome outcome = evaluate(*module, floats({3, 2}, {0, 0, 0, 0, 0, 0}),
                               HostTensor::fromInts(kind, {3}, {1, 100, 0}));
    EXPECT_NEAR(outcome.sum, 2 * std::log(2.0), 1e-6) << element;
    EXPECT_EQ(outcome.count, 2) << element;
  }
}

/// 16-bit logits are summed in f32: 1024 rows of log 3 are no multiple of 8, as a bf16 sum would
/// be.
TEST_F(Losses, SumsOfNarrowLogitsAreWide) {
  const std::pair<const char *, ElementKind> kinds[] = {{"bf16", ElementKind::BF16},
                                                        {"f16", ElementKind::F16}};
  for (auto [element, kind] : kinds) {
    auto module = makeModule(typeText({1024, 3}, element), "tensor<1024xi64>");
    ASSERT_EQ(addLoss(*module, "cross_entropy(x, t)"), "");
    ASSERT_TRUE(differentiate(*module));
    Outcome outcome =
        evaluate(*module, HostTensor::fromDoubles(kind, {1024, 3}, Doubles(3072, 1)),
                 HostTensor::fromInts(ElementKind::I64, {1024}, std::vector<int64_t>(1024, 2)));
    EXPECT_NEAR(outcome.sum, 1024 * std::log(3.0), 1e-2) << element;
    EXPECT_EQ(outcome.count, 1024) << element;
    EXPECT_NEAR(outcome.gradient.at(2), -2.0 / 3, 4e-3) << element;
  }
}

/// The row's maximum has no pullback, and a label's logit is found without gather or scatter.
TEST_F(Losses, PullbackOfCrossEntropyIsElementwiseButForSums) {
  auto module = makeModule("tensor<4x6xf32>", "tensor<4xi64>");
  ASSERT_EQ(addLoss(*module, "cross_entropy(x, t, label_smoothing=0.1, ignore_index=-1)"), "");
  ASSERT_TRUE(differentiate(*module));
  int floatComparisons = 0;
  module->walk([&](loom::CompareOp op) {
    floatComparisons += llvm::isa<mlir::FloatType>(op.getLhs().getType().getElementType());
  });
  EXPECT_EQ(floatComparisons, 0) << "the largest of the row was differentiated";
  module->walk([&](mlir::Operation *op) {
    EXPECT_FALSE((llvm::isa<loom::GatherOp, loom::GatherElementsOp, loom::ScatterOp>(op)));
  });
}

//===----------------------------------------------------------------------===//
// Losses of elements
//===----------------------------------------------------------------------===//

TEST_F(Losses, SquaredErrorIsItsFormula) {
  Outcome outcome = compareFloats("mse(x, t)", {2, 3}, {1, 2, 3, 4, 5, 6}, {1, 0, 5, 4, 4.5, -1});
  EXPECT_EQ(outcome.sum, 0 + 4 + 4 + 0 + 0.25 + 49);
  EXPECT_EQ(outcome.count, 6);
  EXPECT_EQ(outcome.gradient, (Doubles{0, 4, -4, 0, 1, 14}));
}

/// Also if the target is an output of the model.
TEST_F(Losses, TargetsHaveGradients) {
  EXPECT_EQ(compareFloats("mse(x, t)", {2}, {1, 2}, {3, 1}, "t").gradient, (Doubles{4, -2}));
  Doubles x = makeNumbers(4, -1, 1), t{0.1, 0.2, 0.3, 0.4};
  Doubles p = softmax(x, {0, 1, 2, 3}), expected;
  for (size_t i = 0; i < 4; ++i)
    expected.push_back(std::log(t[i]) + 1 - std::log(p[i]));
  expectNear(compareFloats("kl(x, t)", {1, 4}, x, t, "t").gradient, expected, 1e-9);
}

TEST_F(Losses, ASumIsDividedByOne) {
  for (const char *text : {"mse(x, t, reduction=sum)", "bce(x, t, reduction=sum)",
                           "kl(x, t, reduction=sum)", "output(x)", "x"})
    EXPECT_EQ(compareFloats(text, {2, 3}, Doubles(6, 0.5), Doubles(6, 0.5)).count, 1) << text;
  EXPECT_EQ(classify("cross_entropy(x, t, reduction=sum, ignore_index=1)", {3, 2}, Doubles(6, 0),
                     {3}, {1, 1, 0})
                .count,
            1);
}

TEST_F(Losses, BinaryCrossEntropyIsItsFormula) {
  Doubles x = makeNumbers(8, -4, 4), t = makeNumbers(8, 0, 1);
  t[0] = 0;
  t[1] = 1;
  auto formula = [&](const Doubles &at) {
    double total = 0;
    for (auto [logit, target] : llvm::zip_equal(at, t)) {
      double p = 1 / (1 + std::exp(-logit));
      total -= target * std::log(p) + (1 - target) * std::log(1 - p);
    }
    return total;
  };
  Outcome outcome = compareFloats("bce(x, t)", {2, 4}, x, t);
  EXPECT_NEAR(outcome.sum, formula(x), 1e-5);
  EXPECT_EQ(outcome.count, 8);
  expectNear(outcome.gradient, differ(formula, x), 1e-7);
}

TEST_F(Losses, BinaryCrossEntropyHoldsAtZeroAndFarOut) {
  Outcome zero = compareFloats("bce(x, t)", {3}, {0, 0, 0}, {0, 1, 0.25});
  EXPECT_NEAR(zero.sum, 3 * std::log(2.0), 1e-6);
  expectNear(zero.gradient, {0.5, -0.5, 0.25}, 1e-12);
  Outcome far = compareFloats("bce(x, t)", {4}, {100, 100, -100, -100}, {0, 1, 0, 1});
  EXPECT_NEAR(far.sum, 200, 1e-4);
  expectNear(far.gradient, {1, 0, 0, -1}, 1e-12);
}

double divergence(const Shape &shape, size_t axis, const Doubles &t, const Doubles &x) {
  double total = 0;
  for (const std::vector<size_t> &row : listRows(shape, axis)) {
    Doubles p = softmax(x, row);
    for (size_t c = 0; c < row.size(); ++c)
      if (double target = t[row[c]]; target != 0)
        total += target * (std::log(target) - std::log(p[c]));
  }
  return total;
}

/// Also for rows that do not sum to 1, and for zeros.
TEST_F(Losses, DivergenceIsItsFormula) {
  const Shape shape{2, 3, 2};
  Doubles x = makeNumbers(12, -2, 2), t = makeNumbers(12, 0.05, 0.9);
  t[3] = t[4] = t[6] = 0;
  for (size_t axis : {0, 1, 2}) {
    auto formula = [&](const Doubles &at) { return divergence(shape, axis, t, at); };
    Outcome outcome = compareFloats("kl(x, t, axis=" + std::to_string(axis) + ")", shape, x, t);
    EXPECT_NEAR(outcome.sum, formula(x), 1e-5) << axis;
    EXPECT_EQ(outcome.count, static_cast<double>(listRows(shape, axis).size()));
    expectNear(outcome.gradient, differ(formula, x), 1e-7);
  }
}

/// Log-probabilities are valid logits of the same loss; the loss of equal distributions is zero.
TEST_F(Losses, DivergenceTakesLogarithmsOfProbabilities) {
  Doubles t{0.5, 0.5, 0}, logs{std::log(0.25), std::log(0.25), std::log(0.5)};
  EXPECT_NEAR(compareFloats("kl(x, t)", {1, 3}, logs, t).sum, std::log(2.0), 1e-6);
  Doubles p{0.2, 0.3, 0.5}, same{std::log(0.2), std::log(0.3), std::log(0.5)};
  Outcome outcome = compareFloats("kl(x, t)", {1, 3}, same, p);
  EXPECT_NEAR(outcome.sum, 0, 1e-7);
  expectNear(outcome.gradient, {0, 0, 0}, 1e-12);
}

TEST_F(Losses, DivergenceOfZerosIsFinite) {
  Outcome outcome = compareFloats("kl(x, t)", {1, 3}, {-kInfinity, 1e4, 1e4}, {0, 0, 1});
  EXPECT_NEAR(outcome.sum, std::log(2.0), 1e-6);
  expectNear(outcome.gradient, {0, 0.5, -0.5}, 1e-12);
  for (double slope : compareFloats("kl(x, t)", {1, 2}, {0, 1}, {0, 1}, "t").gradient)
    EXPECT_TRUE(std::isfinite(slope));
  EXPECT_TRUE(std::isnan(compareFloats("kl(x, t)", {1, 2}, {0, 0}, {-0.5, 1.5}).sum));
}

TEST_F(Losses, OutputsAreSummed) {
  Outcome outcome = compareFloats("x", {2, 2}, {1, 2, 3, -1}, Doubles(4, 0));
  EXPECT_EQ(outcome.sum, 5);
  EXPECT_EQ(outcome.gradient, Doubles(4, 1));
}

//===----------------------------------------------------------------------===//
// Split over a mesh
//===----------------------------------------------------------------------===//

/// A loss with rows split over `data` and classes over `model`, in uneven parts, with its gradient.
class SplitLosses : public Losses {
protected:
  void expectEqualParts(mlir::ModuleOp module, const HostTensor &x, const HostTensor &t) {
    Outcome whole = evaluate(module, x, t);
    mlir::PassManager manager(context.get());
    ShardOptions options;
    options.mesh = "data=2,model=3";
    options.shard = {x.getShape().size() == 2 ? "x=[{data},{model}]" : "x=[{data},{model},{}]"};
    addShardPasses(manager, options);
    addPartitionPasses(manager);
    ASSERT_TRUE(succeeded(manager.run(module))) << context.takeError();
    Outcome split = evaluate(module, x, t);
    EXPECT_NEAR(split.sum, whole.sum, 1e-4 * std::abs(whole.sum));
    EXPECT_EQ(split.count, whole.count);
    expectNear(split.gradient, whole.gradient, 1e-5);
  }

  /// The collectives, with their number of elements on a device.
  static std::vector<std::string> listCollectives(mlir::ModuleOp module) {
    std::vector<std::string> list;
    module.walk([&](mlir::Operation *op) {
      if (!llvm::isa<dist::AllReduceOp, dist::AllGatherOp, dist::ReduceScatterOp, dist::AllToAllOp,
                     dist::PermuteOp, dist::ReshardOp>(op))
        return;
      auto type = llvm::cast<mlir::RankedTensorType>(op->getResult(0).getType());
      list.push_back(op->getName().stripDialect().str() + " of " +
                     std::to_string(type.getNumElements()));
    });
    return list;
  }
};

TEST_F(SplitLosses, CrossEntropyReducesRowsOnlyAndItsPullbackNothing) {
  auto module = makeModule("tensor<6x7xf32>", "tensor<6xi64>");
  ASSERT_EQ(addLoss(*module, "cross_entropy(x, t, label_smoothing=0.1, ignore_index=-100)"), "");
  ASSERT_TRUE(differentiate(*module));
  expectEqualParts(*module, floats({6, 7}, makeNumbers(42, -3, 3)),
                   ints({6}, {0, 6, -100, 3, 2, 5}));
  // Each row's maximum, sum and label logit; then the sums over rows.
  EXPECT_EQ(listCollectives(*module),
            (std::vector<std::string>{"all_reduce of 3", "all_reduce of 3", "all_reduce of 3",
                                      "all_reduce of 1", "all_reduce of 1"}));
}

TEST_F(SplitLosses, AllAreThoseOfTheWhole) {
  const std::string targets[] = {"cross_entropy(x, t, axis=1)", "kl(x, t, axis=1)", "mse(x, t)",
                                 "bce(x, t)", "x"};
  for (const std::string &text : targets) {
    SCOPED_TRACE(text);
    bool takesLabels = llvm::StringRef(text).starts_with("cross");
    auto module =
        makeModule("tensor<4x5x3xf32>", takesLabels ? "tensor<4x3xi64>" : "tensor<4x5x3xf32>");
    ASSERT_EQ(addLoss(*module, text), "");
    ASSERT_TRUE(differentiate(*module));
    expectEqualParts(*module, floats({4, 5, 3}, makeNumbers(60, -3, 3)),
                     takesLabels ? ints({4, 3}, {0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1})
                                 : floats({4, 5, 3}, makeNumbers(60, 0, 0.9)));
  }
}

//===----------------------------------------------------------------------===//
// Metrics
//===----------------------------------------------------------------------===//

TEST_F(Losses, AccuracyCountsRightRows) {
  // Among equal logits the first wins.
  const Doubles logits{1, 3, 2, 5, 5, 0, 7, 7, 7, 0, 0, 1};
  Outcome all = measure("accuracy(x, t)", {4, 3}, logits, {4}, {1, 1, 0, 2});
  EXPECT_EQ(all.sum, 3);
  EXPECT_EQ(all.count, 4);
  Outcome some =
      measure("accuracy(x, t, ignore_index=-100)", {4, 3}, logits, {4}, {1, -100, 2, 2}, "bf16");
  EXPECT_EQ(some.sum, 2);
  EXPECT_EQ(some.count, 3);
  Outcome columns = measure("accuracy(x, t, axis=0)", {4, 3}, logits, {3}, {2, 2, 9});
  EXPECT_EQ(columns.sum, 2);
  EXPECT_EQ(columns.count, 3);
  Outcome none = measure("accuracy(x, t, ignore_index=0)", {1, 2}, {1, 0}, {1}, {0});
  EXPECT_EQ(none.sum, 0);
  EXPECT_EQ(none.count, 0);
}

//===----------------------------------------------------------------------===//
// Errors of shapes and types
//===----------------------------------------------------------------------===//

struct Misfit {
  std::string loss, prediction, target, error;
};

TEST_F(Losses, RefuseWhatDoesNotFit) {
  const Misfit misfits[] = {
      {"cross_entropy(x, t)", "tensor<4x3xf32>", "tensor<4x3xi64>",
       "loss 'cross_entropy(x, t)': target 't' is [4, 3], expected [4] for 'x' of [4, 3]"},
      {"cross_entropy(x, t)", "tensor<4x3xf32>", "tensor<4xf32>",
       "target 't' is f32; labels are integers"},
      {"cross_entropy(x, t)", "tensor<4x3xf32>", "tensor<4xi1>", "target 't' is i1"},
      {"cross_entropy(x, t)", "tensor<4x3xi64>", "tensor<4xi64>",
       "'x' is i64; name an output of floats"},
      {"cross_entropy(x, t)", "tensor<f32>", "tensor<i64>",
       "'x' is [], so axis -1 is none of its 0 dimensions"},
      {"cross_entropy(x, t, axis=2)", "tensor<4x3xf32>", "tensor<4xi64>",
       "'x' is [4, 3], so axis 2 is none of its 2 dimensions; give axis=N"},
      {"cross_entropy(x, t, axis=-9223372036854775808)", "tensor<4x3xf32>", "tensor<4xi64>",
       "axis -9223372036854775808 is none"},
      {"cross_entropy(x, t)", "tensor<4x0xf32>", "tensor<4xi64>", "without classes along axis -1"},
      {"kl(x, t, axis=2)", "tensor<4x3xf32>", "tensor<4x3xf32>", "axis 2 is none"},
      {"kl(x, t)", "tensor<4x3xf32>", "tensor<4xi64>", "target 't' is [4], expected [4, 3]"},
      {"mse(x, t)", "tensor<4x3xf32>", "tensor<4x1xf32>", "target 't' is [4, 1], expected [4, 3]"},
      {"mse(x, t)", "tensor<4x3xf32>", "tensor<4x3xi32>", "target 't' is i32; give floats"},
      {"bce(x, t)", "tensor<4xi32>", "tensor<4xf32>", "'x' is i32"},
      {"output(x)", "tensor<4xi32>", "tensor<4xf32>", "loss 'output(x)': 'x' is i32"},
  };
  for (const Misfit &misfit : misfits)
    EXPECT_THAT(addLoss(*makeModule(misfit.prediction, misfit.target), misfit.loss),
                HasSubstr(misfit.error))
        << misfit.loss << " of " << misfit.prediction << " and " << misfit.target;
  EXPECT_THAT(addMetric(*makeModule("tensor<4x3xf32>", "tensor<3xi64>"), "accuracy(x, t)"),
              HasSubstr("metric 'accuracy(x, t)': target 't' is [3], expected [4] for 'x'"));
}

TEST_F(Losses, NeedTheirTarget) {
  auto module = makeModule("tensor<4x3xf32>", "tensor<4xi64>");
  mlir::OpBuilder builder(getFunction(*module).front().getTerminator());
  std::string error;
  EXPECT_FALSE(buildLoss(*LossSpec::parse("mse(x, t)", error),
                         makeTerm(builder, getFunction(*module), 0), std::nullopt, error));
  EXPECT_EQ(error, "loss 'mse(x, t)': target 't' is missing");
}

TEST_F(Losses, SayWhatTheirTargetsAre) {
  auto prediction = [&](mlir::Type element) {
    return mlir::RankedTensorType::get({8, 5, 7}, element);
  };
  mlir::Builder builder(context.get());
  auto getType = [&](const std::string &text, mlir::Type element) {
    std::string error;
    std::string type;
    llvm::raw_string_ostream stream(type);
    if (mlir::Type found = getTargetType(*LossSpec::parse(text, error), prediction(element), error))
      stream << found;
    return type + error;
  };
  EXPECT_EQ(getType("cross_entropy(x, t)", builder.getF32Type()), "tensor<8x5xi64>");
  EXPECT_EQ(getType("cross_entropy(x, t, axis=1)", builder.getBF16Type()), "tensor<8x7xi64>");
  EXPECT_EQ(getType("mse(x, t)", builder.getF32Type()), "tensor<8x5x7xf32>");
  EXPECT_EQ(getType("kl(x, t)", builder.getF16Type()), "tensor<8x5x7xf16>");
  EXPECT_EQ(getType("x", builder.getF32Type()), "");
  EXPECT_THAT(getType("cross_entropy(x, t, axis=3)", builder.getF32Type()),
              HasSubstr("axis 3 is none of its 3 dimensions"));
  std::string error;
  auto metric = MetricSpec::parse("accuracy(x, t, axis=0)", error);
  EXPECT_EQ(getTargetType(*metric, prediction(builder.getF32Type()), error),
            mlir::RankedTensorType::get({5, 7}, builder.getI64Type()));
  EXPECT_FALSE(getTargetType(*metric, prediction(builder.getI64Type()), error));
  EXPECT_THAT(error, HasSubstr("metric 'accuracy(x, t, axis=0)': 'x' is i64"));
}

} // namespace
