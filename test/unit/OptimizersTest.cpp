//===- OptimizersTest.cpp - steps against formulas in f64 -----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Update rules of optimizers, run by the interpreter: known answers of PyTorch and optax, a hundred
// steps against recurrences that are reimplemented here, bias corrections in f32 over millions of
// steps, zeros, groups of parameters, clipping, and invalid texts.
//
//===----------------------------------------------------------------------===//
#include "OptimizerTesting.h"

#include "llvm/ADT/StringExtras.h"

#include <array>
#include <cmath>
#include <functional>
#include <map>

using namespace gridloom;
using namespace gridloom::testing;
using namespace gridloom::train;
using ::testing::HasSubstr;

namespace {

using Numbers = std::vector<double>;
using Lists = std::vector<Numbers>;

//===----------------------------------------------------------------------===//
// Known answers
//===----------------------------------------------------------------------===//

struct Answer {
  const char *name;
  const char *text;
  std::array<double, 2> expected;
  double tolerance = 1e-12;
};

std::ostream &operator<<(std::ostream &stream, const Answer &test) { return stream << test.text; }

/// Two parameters after three steps. optax computes Adafactor's decay in f32.
constexpr Answer kAnswers[] = {
    {"sgd", "sgd(momentum=0.9)", {.970700, -.477525}},
    {"nesterov", "sgd(momentum=0.9, nesterov=true)", {.959630, -.4822725}},
    {"adadelta", "adadelta", {.999952186401, -.499994242627}},
    {"adam", "adam", {.977694648693, -.486132658131}},
    {"adamw", "adamw(weight_decay=0.01)", {.977446634732, -.486009454348}},
    {"adagrad", "adagrad", {.986408314953, -.495705511924}},
    {"rmsprop", "rmsprop", {.863980649204, -.457206184636}},
    {"nadam", "nadam", {.984739472690, -.495020168381}},
    {"lamb", "lamb(lr=1, weight_decay=0.01)", {.977941860500, -.489163124653}},
    {"lars", "lars(lr=1, weight_decay=0.01)", {.999967486995, -.499987722733}},
    {"lion", "lion(lr=1, weight_decay=0.01)", {.984752019950, -.504876009950}},
    {"adafactor", "adafactor(lr=1)", {.988162363263, -.498951080635}, 1e-8},
    {"adafactor_momentum",
     "adafactor(lr=1, momentum=0.9, weight_decay=0.01)",
     {.967324649920, -.483842408855},
     1e-8},
};

class KnownAnswer : public ::testing::TestWithParam<Answer> {};

TEST_P(KnownAnswer, AfterThreeSteps) {
  Trainee trainee(GetParam().text, {2});
  trainee.parameter = {1, -.5};
  trainee.advance({1, -2}, .01);
  trainee.advance({.5, .25}, .01);
  trainee.advance({-.2, 4}, .005);
  for (int i = 0; i < 2; ++i)
    EXPECT_NEAR(trainee.parameter[i], GetParam().expected[i], GetParam().tolerance + 5e-13) << i;
}

INSTANTIATE_TEST_SUITE_P(Rules, KnownAnswer, ::testing::ValuesIn(kAnswers),
                         [](const auto &info) { return std::string(info.param.name); });

/// optax with min_dim_size_to_factor=2; the sizes of dimensions decide, not their order.
TEST(Adafactor, FactorsTheTwoLargestDimensions) {
  const Numbers parameter = {1, -.5, .25, 2, 0, -1};
  const Numbers gradients[] = {
      {1, -2, .5, 0, 3, -1}, {.5, .25, -1, 2, 0, .1}, {-.2, 4, 1, .3, -.4, .5}};
  const double rates[] = {.01, .01, .005};
  auto run = [&](const std::string &text, llvm::ArrayRef<int64_t> shape,
                 llvm::ArrayRef<int> order) {
    Trainee trainee(text, shape);
    auto arrange = [&](const Numbers &values) {
      Numbers arranged;
      for (int i : order)
        arranged.push_back(values[i]);
      return arranged;
    };
    trainee.parameter = arrange(parameter);
    for (auto [gradient, rate] : llvm::zip_equal(gradients, rates))
      trainee.advance(arrange(gradient), rate);
    Numbers result(6);
    for (auto [value, i] : llvm::zip_equal(trainee.parameter, order))
      result[i] = value;
    return result;
  };
  const std::string text = "adafactor(lr=1, min_factored=2)";
  const Numbers expected = {.978948289972,  -.500494754512, .254198173698,
                            1.983393632942, -.008859159844, -.994598775091};
  const Numbers plain = {.978596103224,  -.500089628399, .253743693381,
                         1.983714212796, -.009144991255, -.994222668635};
  EXPECT_THAT(run(text, {2, 3}, {0, 1, 2, 3, 4, 5}),
              ::testing::Pointwise(::testing::DoubleNear(1e-8), expected));
  EXPECT_THAT(run(text, {3, 2}, {0, 3, 1, 4, 2, 5}),
              ::testing::Pointwise(::testing::DoubleNear(1e-8), expected));
  EXPECT_THAT(run("adafactor(lr=1, min_factored=2, scale_by_parameter=false, clip=0)", {3, 1, 2},
                  {0, 3, 1, 4, 2, 5}),
              ::testing::Pointwise(::testing::DoubleNear(1e-8), plain));
  // Not factored: with the vector rule all elements have the same first step, |u| = 1.
  Trainee whole("adafactor(lr=1, scale_by_parameter=false)", {2, 3});
  EXPECT_EQ(whole.slots.size(), 1u);
  whole.parameter = parameter;
  whole.advance({1, -2, .5, 4, 3, -1}, .25);
  EXPECT_THAT(whole.parameter, ::testing::Pointwise(::testing::DoubleNear(1e-12),
                                                    Numbers{.75, -.25, 0, 1.75, -.25, -.75}));
}

//===----------------------------------------------------------------------===//
// Recurrences
//===----------------------------------------------------------------------===//

constexpr int64_t kShape[] = {3, 2, 4};
constexpr int kSize = 24;

/// A parameter in the notation of the papers, in f64.
struct Plain {
  Numbers w;
  std::map<std::string, Numbers> s;
  double rate = 0, decay = 0;
  int64_t t = 0;

  double power(double beta) const { return std::pow(beta, double(t)); }
};

double norm(const Numbers &x) {
  double sum = 0;
  for (double value : x)
    sum += value * value;
  return std::sqrt(sum);
}

void runSgd(Plain &p, const Numbers &g, double dampening, bool isNesterov) {
  for (int i = 0; i < kSize; ++i) {
    double d = g[i] + p.decay * p.w[i];
    double &b = p.s["momentum"][i];
    b = p.t == 1 ? 0.9 * b + d : 0.9 * b + (1 - dampening) * d;
    p.w[i] -= p.rate * (isNesterov ? d + 0.9 * b : b);
  }
}

/// Update direction of Adam, AdamW and LAMB.
Numbers moveMoments(Plain &p, const Numbers &g, double beta1, double beta2, double eps) {
  Numbers u(kSize);
  for (int i = 0; i < kSize; ++i) {
    double &m = p.s["m"][i], &v = p.s["v"][i];
    m = beta1 * m + (1 - beta1) * g[i];
    v = beta2 * v + (1 - beta2) * g[i] * g[i];
    u[i] = m / (1 - p.power(beta1)) / (std::sqrt(v / (1 - p.power(beta2))) + eps);
  }
  return u;
}

void runAdam(Plain &p, const Numbers &g) {
  Numbers d = g;
  for (int i = 0; i < kSize; ++i)
    d[i] += p.decay * p.w[i];
  Numbers u = moveMoments(p, d, 0.8, 0.95, 1e-3);
  for (int i = 0; i < kSize; ++i)
    p.w[i] -= p.rate * u[i];
}

void runAdamw(Plain &p, const Numbers &g) {
  Numbers u = moveMoments(p, g, 0.9, 0.999, 1e-8);
  for (int i = 0; i < kSize; ++i)
    p.w[i] = p.w[i] * (1 - p.rate * p.decay) - p.rate * u[i];
}

void runNadam(Plain &p, const Numbers &g) {
  double now = 0.9 * (1 - 0.5 * std::pow(0.96, double(p.t) * 0.004));
  double next = 0.9 * (1 - 0.5 * std::pow(0.96, double(p.t + 1) * 0.004));
  double &product = p.s["momentum_product"][0];
  product *= now;
  for (int i = 0; i < kSize; ++i) {
    double d = g[i] + p.decay * p.w[i], &m = p.s["m"][i], &v = p.s["v"][i];
    m = 0.9 * m + 0.1 * d;
    v = 0.999 * v + 0.001 * d * d;
    double root = std::sqrt(v / (1 - p.power(0.999))) + 1e-8;
    p.w[i] -= p.rate * (1 - now) / (1 - product) * d / root;
    p.w[i] -= p.rate * next / (1 - product * next) * m / root;
  }
}

void runAdagrad(Plain &p, const Numbers &g) {
  for (int i = 0; i < kSize; ++i) {
    double d = g[i] + p.decay * p.w[i], &v = p.s["v"][i];
    v += d * d;
    p.w[i] -= p.rate / (1 + double(p.t - 1) * 0.1) * d / (std::sqrt(v) + 0.01);
  }
}

void runRmsprop(Plain &p, const Numbers &g, bool isCentered, double momentum) {
  for (int i = 0; i < kSize; ++i) {
    double d = g[i] + p.decay * p.w[i], &v = p.s["v"][i];
    v = 0.99 * v + 0.01 * d * d;
    double power = v;
    if (isCentered) {
      double &mean = p.s["mean"][i];
      mean = 0.99 * mean + 0.01 * d;
      power -= mean * mean;
    }
    double u = d / (std::sqrt(power) + 0.01);
    if (momentum != 0)
      u = p.s["momentum"][i] = momentum * p.s["momentum"][i] + u;
    p.w[i] -= p.rate * u;
  }
}

void runAdadelta(Plain &p, const Numbers &g) {
  for (int i = 0; i < kSize; ++i) {
    double d = g[i] + p.decay * p.w[i], &v = p.s["v"][i], &a = p.s["change"][i];
    v = 0.3 * v + 0.7 * d * d;
    double u = std::sqrt(a + 1e-3) / std::sqrt(v + 1e-3) * d;
    a = 0.3 * a + 0.7 * u * u;
    p.w[i] -= p.rate * u;
  }
}

void runLamb(Plain &p, const Numbers &g) {
  Numbers u = moveMoments(p, g, 0.9, 0.999, 1e-6);
  for (int i = 0; i < kSize; ++i)
    u[i] += p.decay * p.w[i];
  double ratio = norm(p.w) / norm(u);
  for (int i = 0; i < kSize; ++i)
    p.w[i] -= p.rate * ratio * u[i];
}

void runLars(Plain &p, const Numbers &g, bool isNesterov) {
  Numbers u = g;
  for (int i = 0; i < kSize; ++i)
    u[i] += p.decay * p.w[i];
  double ratio = 0.05 * norm(p.w) / norm(u);
  for (int i = 0; i < kSize; ++i) {
    double change = p.rate * ratio * u[i], &b = p.s["momentum"][i];
    b = 0.9 * b + change;
    p.w[i] -= isNesterov ? change + 0.9 * b : b;
  }
}

void runLion(Plain &p, const Numbers &g) {
  for (int i = 0; i < kSize; ++i) {
    double &m = p.s["m"][i], c = 0.9 * m + 0.1 * g[i];
    m = 0.99 * m + 0.01 * g[i];
    p.w[i] -= p.rate * ((c > 0 ? 1 : c < 0 ? -1 : 0) + p.decay * p.w[i]);
  }
}

/// For shape [3, 2, 4] with dimensions 2 (the largest) and 0 factored.
void runAdafactor(Plain &p, const Numbers &g, bool isFactored) {
  double beta = 1 - std::pow(double(p.t), -0.8);
  auto at = [](int i, int j, int k) { return (i * 2 + j) * 4 + k; };
  Numbers u(kSize);
  if (isFactored) {
    Numbers &row = p.s["v_row"], &column = p.s["v_column"]; // [3, 2], [2, 4]
    for (int j = 0; j < 2; ++j) {
      double mean = 0;
      for (int i = 0; i < 3; ++i) {
        double sum = 0;
        for (int k = 0; k < 4; ++k)
          sum += std::pow(g[at(i, j, k)], 2) + 1e-3;
        row[i * 2 + j] = beta * row[i * 2 + j] + (1 - beta) * sum / 4;
        mean += row[i * 2 + j] / 3;
      }
      for (int k = 0; k < 4; ++k) {
        double sum = 0;
        for (int i = 0; i < 3; ++i)
          sum += std::pow(g[at(i, j, k)], 2) + 1e-3;
        column[j * 4 + k] = beta * column[j * 4 + k] + (1 - beta) * sum / 3;
      }
      for (int i = 0; i < 3; ++i)
        for (int k = 0; k < 4; ++k)
          u[at(i, j, k)] = g[at(i, j, k)] / std::sqrt(row[i * 2 + j] * column[j * 4 + k] / mean);
    }
  } else {
    for (int i = 0; i < kSize; ++i) {
      p.s["v"][i] = beta * p.s["v"][i] + (1 - beta) * (g[i] * g[i] + 1e-30);
      u[i] = g[i] / std::sqrt(p.s["v"][i]);
    }
  }
  double clip = isFactored ? 0.5 : 1, root = std::sqrt(double(kSize));
  double factor = p.rate / std::max(1.0, norm(u) / root / clip);
  factor *= std::max(norm(p.w) / root, 1e-3);
  for (int i = 0; i < kSize; ++i) {
    u[i] *= factor;
    if (isFactored)
      u[i] = p.s["m"][i] = 0.9 * p.s["m"][i] + 0.1 * u[i];
    p.w[i] -= u[i] + p.decay * p.w[i];
  }
}

struct Recurrence {
  const char *name;
  const char *text; ///< weight_decay is 0.01 unless the text sets it
  std::function<void(Plain &, const Numbers &)> run;
};

std::ostream &operator<<(std::ostream &stream, const Recurrence &test) {
  return stream << test.text;
}

const std::vector<Recurrence> &getRecurrences() {
  using P = Plain &;
  using N = const Numbers &;
  static const std::vector<Recurrence> all = {
      {"sgd", "sgd(momentum=0.9)", [](P p, N g) { runSgd(p, g, 0, false); }},
      {"sgd_nesterov", "sgd(momentum=0.9, nesterov=true)", [](P p, N g) { runSgd(p, g, 0, true); }},
      {"sgd_dampened", "sgd(momentum=0.9, dampening=0.3)",
       [](P p, N g) { runSgd(p, g, 0.3, false); }},
      {"sgd_plain", "sgd",
       [](P p, N g) {
         for (int i = 0; i < kSize; ++i)
           p.w[i] -= p.rate * (g[i] + p.decay * p.w[i]);
       }},
      {"adam", "adam(beta1=0.8, beta2=0.95, eps=1e-3)", runAdam},
      {"adamw", "adamw", runAdamw},
      {"nadam", "nadam", runNadam},
      {"adagrad", "adagrad(lr_decay=0.1, eps=0.01)", runAdagrad},
      {"rmsprop", "rmsprop(eps=0.01)", [](P p, N g) { runRmsprop(p, g, false, 0); }},
      {"rmsprop_momentum", "rmsprop(eps=0.01, momentum=0.5)",
       [](P p, N g) { runRmsprop(p, g, false, 0.5); }},
      {"rmsprop_centered", "rmsprop(eps=0.01, momentum=0.5, centered=true)",
       [](P p, N g) { runRmsprop(p, g, true, 0.5); }},
      {"adadelta", "adadelta(rho=0.3, eps=1e-3)", runAdadelta},
      {"lamb", "lamb(lr=1)", runLamb},
      {"lars", "lars(lr=1, trust=0.05)", [](P p, N g) { runLars(p, g, false); }},
      {"lars_nesterov", "lars(lr=1, trust=0.05, nesterov=true)",
       [](P p, N g) { runLars(p, g, true); }},
      {"lion", "lion(lr=1)", runLion},
      {"adafactor", "adafactor(lr=1)", [](P p, N g) { runAdafactor(p, g, false); }},
      {"adafactor_factored", "adafactor(lr=1, min_factored=3, clip=0.5, momentum=0.9, eps=1e-3)",
       [](P p, N g) { runAdafactor(p, g, true); }},
  };
  return all;
}

Numbers makeSigned(uint64_t seed, int64_t size) {
  Numbers values = makeUniform(seed, size);
  for (double &value : values)
    value = 2 * value - 1;
  return values;
}

class Steps : public ::testing::TestWithParam<Recurrence> {
protected:
  static constexpr double kFactor = 0.5, kDecay = 0.01;

  /// The largest difference after 100 steps, relative to the largest number of each tensor. The
  /// optimizer starts as if `steps` were done.
  static double compare(bool isDouble, int64_t steps) {
    ParameterSettings settings;
    settings.rateFactor = kFactor;
    settings.weightDecay = kDecay;
    Trainee trainee(GetParam().text, kShape, isDouble, settings);
    Plain plain;
    trainee.parameter = plain.w = makeSigned(1, kSize);
    for (auto [i, slot] : llvm::enumerate(trainee.slots)) {
      // Second moments must exceed the squares of means.
      bool isPower = slot.name[0] == 'v' || slot.name == "change";
      trainee.state[i] = makeSigned(10 + i, slot.type.getNumElements());
      for (double &value : trainee.state[i])
        value = isPower ? 1 + value * value : slot.name == "momentum_product" ? 0.3 : 0.2 * value;
      plain.s[slot.name] = trainee.state[i];
    }
    plain.t = trainee.step = steps;
    plain.decay = kDecay;
    for (int i = 0; i < 100; ++i) {
      Numbers gradient = makeSigned(100 + i, kSize);
      double rate = 0.01 * (1 + i % 3);
      ++plain.t;
      plain.rate = kFactor * rate;
      GetParam().run(plain, gradient);
      trainee.advance(gradient, rate);
    }
    double worst = getDifference(trainee.parameter, plain.w);
    for (auto [slot, values] : llvm::zip_equal(trainee.slots, trainee.state))
      worst = std::max(worst, getDifference(values, plain.s[slot.name]));
    return worst;
  }

private:
  static double getDifference(const Numbers &actual, const Numbers &expected) {
    double scale = 0, worst = 0;
    for (auto [a, b] : llvm::zip_equal(actual, expected)) {
      scale = std::max(scale, std::abs(b));
      worst = std::isfinite(a) ? std::max(worst, std::abs(a - b)) : INFINITY;
    }
    return worst / scale;
  }
};

TEST_P(Steps, AreThoseOfTheRecurrence) { EXPECT_LT(compare(true, 7), 1e-12); }
TEST_P(Steps, FromTheFirst) { EXPECT_LT(compare(true, 0), 1e-12); }
TEST_P(Steps, InSinglePrecision) { EXPECT_LT(compare(false, 7), 1e-5); }

/// Adam and its like are elementwise, so that a shard needs no other shard.
TEST_P(Steps, OnlyNormsNeedOtherElements) {
  Trainee trainee(GetParam().text, kShape);
  bool hasReduce = false;
  trainee.getModule().walk([&](loom::ReduceOp) { hasReduce = true; });
  llvm::StringRef name = GetParam().name;
  EXPECT_EQ(hasReduce, name.starts_with("la") || name.starts_with("adafactor"));
}

INSTANTIATE_TEST_SUITE_P(Rules, Steps, ::testing::ValuesIn(getRecurrences()),
                         [](const auto &info) { return std::string(info.param.name); });

//===----------------------------------------------------------------------===//
// Corners
//===----------------------------------------------------------------------===//

TEST(BiasCorrection, IsRightInSinglePrecisionForMillionsOfSteps) {
  for (auto [beta1, beta2] : {std::pair(0.9, 0.999), {0.999, 0.9}, {0.99, 0.99999}, {0., 0.5}}) {
    std::string text =
        "adam(eps=1e-37, beta1=" + std::to_string(beta1) + ", beta2=" + std::to_string(beta2) + ")";
    Trainee trainee(text, {1}, false);
    Numbers steps(1000);
    std::iota(steps.begin(), steps.end(), 1.0);
    steps.insert(steps.end(), {1e4, 1e5, 1e6, 1e7});
    for (double t : steps) {
      trainee.parameter = {0};
      trainee.state = {{0.25}, {0.5}};
      trainee.step = int64_t(t) - 1;
      trainee.advance({0.75}, 1);
      double first = -std::expm1(t * std::log(beta1)), second = -std::expm1(t * std::log(beta2));
      double expected =
          trainee.getState("m")[0] / first / std::sqrt(trainee.getState("v")[0] / second);
      ASSERT_NEAR(-trainee.parameter[0] / expected, 1, 1e-6) << text << " step " << t;
    }
  }
}

/// In f32, decay and 1 - decay do not sum to 1: averages of a constant must not drift.
TEST(Averages, OfConstantsStay) {
  for (auto [beta2, gradient] : {std::pair("0.9999", 0.7), {"0.999", 0.3}}) {
    Trainee trainee(std::string("adam(beta2=") + beta2 + ")", {1}, false);
    auto narrow = static_cast<float>(gradient);
    const Lists start = {{narrow}, {narrow * narrow}};
    trainee.parameter = {0};
    trainee.state = start;
    for (int i = 0; i < 3000; ++i)
      trainee.advance({gradient}, 1);
    EXPECT_EQ(trainee.state, start) << beta2;
  }
}

TEST(Averages, HaveNoNegativeVariance) {
  Trainee trainee("rmsprop(centered=true, eps=0.5)", {1}, false);
  trainee.parameter = {0};
  trainee.state = {{0.25}, {0.5000001}}; // rounding left the mean square below the squared mean
  trainee.advance({0.5}, 1);
  EXPECT_EQ(trainee.parameter, (Numbers{-1}));
}

class Zeros : public ::testing::TestWithParam<Recurrence> {};

TEST_P(Zeros, MoveNothing) {
  for (double start : {0., 0.5}) {
    Trainee trainee(GetParam().text, kShape, false, {.weightDecay = 0});
    trainee.parameter = Numbers(kSize, start);
    for (int i = 0; i < 2; ++i)
      trainee.advance(Numbers(kSize, 0), 0.1);
    EXPECT_EQ(trainee.parameter, Numbers(kSize, start));
    trainee.advance(makeSigned(3, kSize), 0.1);
    for (const Numbers &values : trainee.state)
      for (double value : values)
        EXPECT_TRUE(std::isfinite(value)) << value;
    for (double value : trainee.parameter)
      EXPECT_TRUE(std::isfinite(value) && value != start) << value;
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, Zeros, ::testing::ValuesIn(getRecurrences()),
                         [](const auto &info) { return std::string(info.param.name); });

/// The first of two rows, or columns, has large gradients and the other zero ones, like the
/// embedding of an absent word.
TEST(Zeros, OfARowLeaveTheOthers) {
  constexpr int64_t shapes[][2] = {{2, 3}, {3, 2}};
  const Lists gradients = {{1e15, -2e15, 1e12, 0, 0, 0}, {1e15, 0, -2e15, 0, 1e12, 0}};
  for (auto [shape, gradient] : llvm::zip_equal(shapes, gradients)) {
    Trainee trainee("adafactor(lr=1, min_factored=2)", shape, false);
    trainee.parameter = Numbers(6, 1);
    for (int i = 0; i < 3; ++i)
      trainee.advance(gradient, 0.1);
    for (auto [value, change] : llvm::zip_equal(trainee.parameter, gradient))
      EXPECT_TRUE(std::isfinite(value) && (value != 1) == (change != 0)) << value;
  }
}

TEST(Average, OfWeightsFollowsThem) {
  Trainee trainee("sgd(ema=0.75)", {2});
  ASSERT_EQ(trainee.slots.size(), 1u);
  EXPECT_EQ(trainee.slots[0].name, "ema");
  EXPECT_TRUE(trainee.slots[0].beginsAsParameter);
  trainee.parameter = {1, 2};
  trainee.state = {{1, 2}};
  trainee.advance({4, -4}, 0.5);
  EXPECT_EQ(trainee.parameter, (Numbers{-1, 4}));
  EXPECT_EQ(trainee.state[0], (Numbers{0.5, 2.5}));
}

TEST(Slots, AreFloatsOfFullPrecision) {
  Context context;
  mlir::Builder types(context.get());
  std::string error;
  auto optimizer = Optimizer::parse("adagrad(initial=0.1)", error);
  ASSERT_TRUE(optimizer) << error;
  mlir::Type narrow = types.getBF16Type(), single = types.getF32Type(), wide = types.getF64Type();
  auto parameter = mlir::RankedTensorType::get({4}, narrow);
  auto slots = optimizer->getSlots(parameter);
  ASSERT_EQ(slots.size(), 1u);
  EXPECT_EQ(slots[0].name, "v");
  EXPECT_EQ(slots[0].init, 0.1);
  EXPECT_FALSE(slots[0].beginsAsParameter);
  EXPECT_EQ(slots[0].type.getElementType(), single);
  EXPECT_EQ(optimizer->getSlots(mlir::RankedTensorType::get({4}, wide))[0].type.getElementType(),
            wide);
  auto scalar = mlir::RankedTensorType::get({}, single);
  Formula formula(context);
  formula.build({{"w", parameter}, {"g", parameter}, {"v", slots[0].type}, {"scalar", scalar}},
                [&](llvm::ArrayRef<Term> terms) {
                  auto values = optimizer->update(terms[0], terms[1], {terms[2]},
                                                  {terms[3], terms[3], {}}, {});
                  EXPECT_EQ(values.parameter.getType(), parameter);
                  return llvm::SmallVector<Term>{values.parameter, values.slots[0]};
                });
}

//===----------------------------------------------------------------------===//
// Groups
//===----------------------------------------------------------------------===//

TEST(ParameterRules, LaterOnesWinSettingBySetting) {
  std::string error;
  auto rules = ParameterRules::parse({"*: lr*0.5, weight_decay = 0.2", "rank<=1: weight_decay=0",
                                      "encoder.*: frozen", "encoder.head*: trained , lr * 2",
                                      "dense/kernel:0: lr*3", "nothing: frozen"},
                                     error);
  ASSERT_TRUE(rules) << error;
  auto expect = [&](const char *name, int64_t rank, bool isFrozen, double factor, double decay) {
    ParameterSettings settings = rules->lookup({name, rank});
    EXPECT_EQ(settings.isFrozen, isFrozen) << name;
    EXPECT_EQ(settings.rateFactor, factor) << name;
    EXPECT_EQ(settings.weightDecay, decay) << name;
  };
  expect("decoder.weight", 2, false, 0.5, 0.2);
  expect("decoder.bias", 1, false, 0.5, 0);
  expect("encoder.weight", 2, true, 0.5, 0.2);
  expect("encoder.head.weight", 3, false, 2, 0.2);
  expect("dense/kernel:0", 0, false, 3, 0);
  EXPECT_THAT(rules->listUnmatched({{"encoder.head", 2}, {"dense/kernel:0", 2}}),
              ::testing::ElementsAre("rank<=1: weight_decay=0", "nothing: frozen"));
  ParameterSettings plain = ParameterRules::parse({}, error)->lookup({"w", 2});
  EXPECT_FALSE(plain.isFrozen || plain.weightDecay || plain.rateFactor != 1);
}

TEST(ParameterRules, DecayAndFactorsReachTheStep) {
  auto run = [](const ParameterSettings &settings) {
    Trainee trainee("sgd(weight_decay=0.5)", {1}, true, settings);
    trainee.parameter = {2};
    trainee.advance({3}, 0.25);
    return trainee.parameter[0];
  };
  EXPECT_EQ(run({}), 2 - 0.25 * 4);
  EXPECT_EQ(run({.rateFactor = 0.5}), 2 - 0.125 * 4);
  EXPECT_EQ(run({.weightDecay = 0}), 2 - 0.25 * 3);
  EXPECT_EQ(run({.rateFactor = 2, .weightDecay = 1}), 2 - 0.5 * 5);
}

//===----------------------------------------------------------------------===//
// Clipping
//===----------------------------------------------------------------------===//

class Clipping : public ::testing::Test {
protected:
  /// The norm and both clipped gradients.
  std::vector<Numbers> clip(const std::string &text, const Numbers &first, double second) {
    std::string error;
    auto spec = ClipSpec::parse(text, error);
    EXPECT_TRUE(spec) << error;
    mlir::Type element = mlir::Float64Type::get(context.get());
    auto vector = mlir::RankedTensorType::get({int64_t(first.size())}, element);
    auto scalar = mlir::RankedTensorType::get({}, element);
    Formula formula(context);
    formula.build({{"a", vector}, {"b", scalar}}, [&](llvm::ArrayRef<Term> terms) {
      llvm::SmallVector<Term> results = {getGlobalNorm(terms)};
      results.append(spec->apply(terms, results[0]));
      return results;
    });
    NamedTensors inputs;
    inputs["a"] = loom::HostTensor::fromDoubles(loom::ElementKind::F64, vector.getShape(), first);
    inputs["b"] = loom::HostTensor::fromDoubles(loom::ElementKind::F64, {}, second);
    return formula.evaluate(inputs);
  }

  Context context;
};

TEST_F(Clipping, ScalesTheNormOfAll) {
  EXPECT_EQ(clip("norm(5.1)", {3, 0}, -4), (Lists{{5}, {3, 0}, {-4}}));
  // PyTorch's coefficient is below 1 even for a limit up to 1e-6 above the norm.
  for (double limit : {5.0, 4.9, 1e-3}) {
    double factor = limit / (5 + 1e-6);
    Lists clipped = clip("norm(" + std::to_string(limit) + ")", {3, 0}, -4);
    EXPECT_DOUBLE_EQ(clipped[0][0], 5);
    EXPECT_DOUBLE_EQ(clipped[1][0], 3 * factor);
    EXPECT_DOUBLE_EQ(clipped[2][0], -4 * factor);
  }
  EXPECT_EQ(clip("norm(1)", {0, 0}, 0), (Lists{{0}, {0, 0}, {0}}));
}

TEST_F(Clipping, LimitsValues) {
  EXPECT_EQ(clip("value(0.5)", {3, 0.25}, -4), (Lists{{std::sqrt(25.0625)}, {0.5, 0.25}, {-0.5}}));
}

TEST_F(Clipping, KeepsTypes) {
  std::string error;
  mlir::Builder types(context.get());
  auto narrow = mlir::RankedTensorType::get({2}, types.getF16Type());
  auto single = mlir::RankedTensorType::get({3, 1}, types.getF32Type());
  Formula formula(context);
  formula.build({{"a", narrow}, {"b", single}}, [&](llvm::ArrayRef<Term> terms) {
    llvm::SmallVector<Term> results = {getGlobalNorm(terms)};
    EXPECT_EQ(results[0].getType(), mlir::RankedTensorType::get({}, types.getF32Type()));
    results.append(ClipSpec::parse("norm(1)", error)->apply(terms, results[0]));
    EXPECT_EQ(results[1].getType(), narrow);
    EXPECT_EQ(results[2].getType(), single);
    return results;
  });
}

//===----------------------------------------------------------------------===//
// Texts
//===----------------------------------------------------------------------===//

TEST(Texts, GiveLearningRates) {
  std::string error;
  auto rate = [&](const std::string &text) {
    auto optimizer = Optimizer::parse(text, error);
    EXPECT_TRUE(optimizer) << error;
    return optimizer ? optimizer->getLearningRate() : -1;
  };
  EXPECT_EQ(rate("adamw(lr=3e-4, weight_decay=0.1)"), 3e-4);
  EXPECT_EQ(rate("adamw()"), 1e-3);
  EXPECT_EQ(rate("nadam"), 2e-3);
  EXPECT_EQ(rate("adadelta"), 1);
  EXPECT_EQ(rate("lion(lr=0)"), 0);
}

TEST(Texts, OfRulesAreInTheHelp) {
  const std::string &grammar = getOptimizerGrammar();
  EXPECT_THAT(grammar, HasSubstr("adamw(lr=0.001, beta1=0.9, beta2=0.999, eps=1e-08, "
                                 "weight_decay=0.01) as PyTorch"));
  EXPECT_THAT(grammar, HasSubstr("lion(lr=NUMBER, beta1=0.9"));
  EXPECT_THAT(grammar, HasSubstr("nesterov=false"));
  EXPECT_EQ(getRules().size(), 11u);
  for (const Rule &rule : getRules()) {
    EXPECT_THAT(grammar, HasSubstr(rule.name.str() + "(lr="));
    std::string error;
    EXPECT_TRUE(Optimizer::parse(rule.name.str() + "(lr=1)", error)) << error;
  }
}

TEST(Texts, ThatAreNoOptimizerAreRefused) {
  const std::pair<const char *, const char *> faults[] = {
      {"", "optimizer '' has no name at its start; give one of sgd, adam, "},
      {"adamx", "optimizer 'adamx' is not a known rule; give one of sgd, adam, adamw"},
      {"adam(lr=1", "lacks ')'"},
      {"adam(0.1)", "has '0.1' without '=' and a value; give adam(lr=0.001"},
      {"adam(lr=x)", "has lr=x, which is not a number from 0 to 1e6"},
      {"adam(lr=-1)", "has lr=-1, which is not a number from 0 to 1e6"},
      {"adam(lr=nan)", "has lr=nan, which is not a number from 0 to 1e6"},
      {"adam(lr=1e7)", "has lr=1e7, which is not a number"},
      {"adam(lr=1, lr=2)", "has lr twice"},
      {"adam(momentum=0.9)", "has no setting momentum; give adam(lr=0.001, beta1="},
      {"adam(beta2=1)", "has beta2=1, which is not a number from 0 to below 1"},
      {"adam(eps=0)", "has eps=0, which is not a number from 1e-37 to 1"},
      {"adam(eps=1e-38)", "which is not a number from 1e-37 to 1"},
      {"sgd(nesterov=1)", "has nesterov=1, neither true nor false"},
      {"sgd(nesterov=true)", "needs momentum above 0 and dampening=0"},
      {"sgd(nesterov=true, momentum=0.9, dampening=0.1)", "needs momentum above 0"},
      {"lamb", "lacks lr=; give lamb(lr=NUMBER"},
      {"adafactor(lr=1, min_factored=0)", "has min_factored=0, which is not a whole number from 1"},
      {"adafactor(lr=1, min_factored=1.5)", "which is not a whole number from 1"},
      {"sgd(ema=1)", "has ema=1, which is not a number from 0 to below 1"},
  };
  for (auto [text, expected] : faults) {
    std::string error;
    EXPECT_FALSE(Optimizer::parse(text, error)) << text;
    EXPECT_THAT(error, HasSubstr(expected)) << text;
  }
}

TEST(Texts, ThatAreNoParameterSettingsAreRefused) {
  const std::pair<const char *, const char *> faults[] = {
      {"", "parameter setting '' has no ':' behind its pattern; give 'PATTERN: SETTING"},
      {"w frozen", "has no ':' behind its pattern"},
      {": frozen", "has no pattern before its ':'"},
      {"w:", "has '', which is not a setting"},
      {"w: frozen,", "has '', which is not a setting"},
      {"w: cold", "has 'cold', which is not a setting"},
      {"w: lr=0.1", "has 'lr=0.1', which is not a setting"},
      {"w: lr*x", "has 'lr*x', whose number is not from 0 to 1e6"},
      {"w: lr*", "has 'lr*', whose number is not from 0"},
      {"w: weight_decay=-1", "whose number is not from 0 to 1e6"},
      {"w: weight_decay=1e300", "whose number is not from 0 to 1e6"},
      {"rank<=x: frozen", "has rank<=x, which is not a whole number from 0"},
  };
  for (auto [text, expected] : faults) {
    std::string error;
    EXPECT_FALSE(ParameterRules::parse({"v: frozen", text}, error)) << text;
    EXPECT_THAT(error, HasSubstr(expected)) << text;
  }
}

TEST(Texts, ThatAreNoLimitAreRefused) {
  const std::pair<const char *, const char *> faults[] = {
      {"", "clipping '' has no name at its start; give norm(LIMIT)"},
      {"max(1)", "clipping 'max(1)' is neither norm nor value"},
      {"norm", "has not one limit, a number"},
      {"norm(1, 2)", "has not one limit"},
      {"norm(limit=1)", "has not one limit"},
      {"norm(0)", "has limit 0, which is not a number from 1e-37 to 1e30"},
      {"value(-1)", "has limit -1, which is not a number"},
      {"value(1e31)", "has limit 1e31, which is not a number"},
  };
  for (auto [text, expected] : faults) {
    std::string error;
    EXPECT_FALSE(ClipSpec::parse(text, error)) << text;
    EXPECT_THAT(error, HasSubstr(expected)) << text;
  }
}

} // namespace
