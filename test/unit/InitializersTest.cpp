//===- InitializersTest.cpp - initial values of parameters ----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "InterpreterTesting.h"

#include "passes/train/Initializers.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <cmath>

using namespace gridloom;
using namespace gridloom::testing;
using namespace gridloom::train;
using ::testing::HasSubstr;
using Distribution = Draw::Distribution;

namespace {

Draw resolve(const std::string &text, Fans fans = {}) {
  std::string error;
  std::optional<InitSpec> spec = InitSpec::parse(text, error);
  EXPECT_TRUE(spec) << text << " " << error;
  return spec ? spec->resolve(fans) : Draw();
}

void expectDraw(const Draw &draw, Distribution distribution, double first, double second) {
  EXPECT_EQ(draw.distribution, distribution);
  EXPECT_DOUBLE_EQ(draw.first, first);
  EXPECT_DOUBLE_EQ(draw.second, second);
}

TEST(Initializers, Distributions) {
  expectDraw(resolve("zeros"), Distribution::Constant, 0, 0);
  expectDraw(resolve("ones"), Distribution::Constant, 1, 0);
  expectDraw(resolve("constant(-2.5)"), Distribution::Constant, -2.5, 0);
  expectDraw(resolve("normal(0.5, 0.02)"), Distribution::Normal, 0.5, 0.02);
  expectDraw(resolve("uniform(-1, 3)"), Distribution::Uniform, -1, 3);
}

// Bounds and standard deviations of torch.nn.init for a weight of fans 12 and 20.
TEST(Initializers, Gains) {
  Fans fans{12, 20};
  double xavier = std::sqrt(6.0 / 32);
  expectDraw(resolve("xavier_uniform", fans), Distribution::Uniform, -xavier, xavier);
  expectDraw(resolve("xavier_uniform(gain=2)", fans), Distribution::Uniform, -2 * xavier,
             2 * xavier);
  expectDraw(resolve("xavier_normal", fans), Distribution::Normal, 0, 0.25);
  double kaiming = std::sqrt(6.0 / 12), leaky = std::sqrt(3.0) * std::sqrt(2 / 1.25 / 20);
  expectDraw(resolve("kaiming_uniform", fans), Distribution::Uniform, -kaiming, kaiming);
  expectDraw(resolve("kaiming_uniform(a=0.5, mode=fan_out)", fans), Distribution::Uniform, -leaky,
             leaky);
  expectDraw(resolve("kaiming_normal", fans), Distribution::Normal, 0, std::sqrt(2.0 / 12));
  expectDraw(resolve("kaiming_normal(mode=fan_out)", fans), Distribution::Normal, 0,
             std::sqrt(2.0 / 20));
}

TEST(Initializers, RefusesWhatIsNoDistribution) {
  std::pair<const char *, const char *> cases[] = {
      {"gauss(0, 1)", "is not a known distribution"},
      {"xavier", "is not a known distribution"},
      {"normal(0)", "has 1 numbers in its parentheses where normal takes a mean and a deviation"},
      {"normal(0, -1)", "has deviation -1, which is below 0"},
      {"normal(0, x)", "has 'x', which is not a number"},
      {"uniform(2, 1)", "has the larger number first"},
      {"ones(3)", "has 1 numbers in its parentheses where ones takes none"},
      {"zeros(a=1)", "has no 'a'"},
      {"xavier_normal(a=1)", "has no 'a'"},
      {"xavier_normal(gain=-1)", "has gain=-1, which is below 0"},
      {"kaiming_normal(mode=fan)", "has mode=fan, neither fan_in nor fan_out"},
      {"kaiming_normal(3)", "has 1 numbers in its parentheses where kaiming_normal takes none"},
  };
  for (auto [text, fault] : cases) {
    std::string error;
    EXPECT_FALSE(InitSpec::parse(text, error)) << text;
    EXPECT_EQ(error, fault) << text;
  }
}

TEST(Initializers, LaterRulesWin) {
  std::string error;
  auto rules = InitRules::parse({"*: normal(0, 0.02)", "rank<=1: zeros", "a:norm*: ones"}, error);
  ASSERT_TRUE(rules) << error;
  EXPECT_EQ(rules->lookup({"w", 2})->text, "*: normal(0, 0.02)");
  EXPECT_EQ(rules->lookup({"b", 1})->text, "rank<=1: zeros");
  EXPECT_EQ(rules->lookup({"a:norm.w", 1})->text, "a:norm*: ones");
  EXPECT_THAT(rules->listUnmatched({{"w", 2}, {"b", 1}}), ::testing::ElementsAre("a:norm*: ones"));
  for (const char *text : {"normal(0, 1)", " : zeros", "rank<=x: zeros", "*: none"}) {
    EXPECT_FALSE(InitRules::parse({text}, error));
    EXPECT_THAT(error, HasSubstr(std::string("--init '") + text + "' ")) << text;
  }
}

// Weights as MatMul and Gemm with transB use them, a transposed one, a batch of matrices, a table,
// a window, an LSTM's weight, and a vector.
TEST(Initializers, FansAreByUse) {
  Context context;
  auto module = context.parse(R"(
    loom.weight @matmul : tensor<3x5xf32> from <"", offset = 0, bytes = 60>
    loom.weight @gemm : tensor<7x5xf32> from <"", offset = 0, bytes = 140>
    loom.weight @turned : tensor<9x7xf32> from <"", offset = 0, bytes = 252>
    loom.weight @experts : tensor<2x9x4xf32> from <"", offset = 0, bytes = 288>
    loom.weight @table : tensor<6x8xf32> from <"", offset = 0, bytes = 192>
    loom.weight @window : tensor<4x2x3x5xf32> from <"", offset = 0, bytes = 480>
    loom.weight @lstm : tensor<1x12x5xf32> from <"", offset = 0, bytes = 240>
    loom.weight @vector : tensor<5xf32> from <"", offset = 0, bytes = 20>
    func.func @main(%x: tensor<2x3xf32>) {
      %a = loom.get_weight @matmul : tensor<3x5xf32>
      %b = loom.get_weight @gemm : tensor<7x5xf32>
      %c = loom.get_weight @turned : tensor<9x7xf32>
      %d = loom.get_weight @experts : tensor<2x9x4xf32>
      %e = loom.get_weight @table : tensor<6x8xf32>
      %f = loom.get_weight @window : tensor<4x2x3x5xf32>
      %g = loom.get_weight @lstm {loom.use = "recurrent weight"} : tensor<1x12x5xf32>
      %h = loom.get_weight @vector : tensor<5xf32>
      %y = loom.dot_general %x, %a batch = [] x [] contract = [1] x [0] : (tensor<2x3xf32>, tensor<3x5xf32>) -> tensor<2x5xf32>
      %z = loom.dot_general %y, %b batch = [] x [] contract = [1] x [1] : (tensor<2x5xf32>, tensor<7x5xf32>) -> tensor<2x7xf32>
      %ct = loom.transpose %c [1, 0] : (tensor<9x7xf32>) -> tensor<7x9xf32>
      %u = loom.dot_general %z, %ct batch = [] x [] contract = [1] x [0] : (tensor<2x7xf32>, tensor<7x9xf32>) -> tensor<2x9xf32>
      %v = loom.dot_general %u, %d batch = [0] x [0] contract = [1] x [1] : (tensor<2x9xf32>, tensor<2x9x4xf32>) -> tensor<2x4xf32>
      return
    })");
  ASSERT_TRUE(module);
  std::map<std::string, std::optional<Fans>> fans;
  module->walk([&](loom::GetWeightOp read) { fans[read.getName().str()] = findFans(read); });
  auto expectFans = [&](const char *name, int64_t in, int64_t out) {
    ASSERT_TRUE(fans[name]) << name;
    EXPECT_EQ(fans[name]->in, in) << name;
    EXPECT_EQ(fans[name]->out, out) << name;
  };
  expectFans("matmul", 3, 5);
  expectFans("gemm", 5, 7);
  expectFans("turned", 7, 9);
  expectFans("experts", 9, 4);
  expectFans("table", 8, 6);
  expectFans("window", 30, 60);
  expectFans("lstm", 5, 12);
  EXPECT_FALSE(fans["vector"]);
}

} // namespace
