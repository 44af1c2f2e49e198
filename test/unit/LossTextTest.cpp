//===- LossTextTest.cpp - parsing of losses and metrics in options --------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/train/Losses.h"

#include "gmock/gmock.h"

using namespace gridloom::train;
using ::testing::HasSubstr;

namespace {

TEST(LossText, IsRead) {
  std::string error;
  auto full = LossSpec::parse("cross_entropy(logits, labels, label_smoothing=0.1, "
                              "ignore_index=-100, axis=1, weight=0.5, reduction=sum)",
                              error);
  ASSERT_TRUE(full) << error;
  EXPECT_EQ(full->kind, LossSpec::Kind::CrossEntropy);
  EXPECT_EQ(full->prediction, "logits");
  EXPECT_EQ(full->target, "labels");
  EXPECT_EQ(full->labelSmoothing, 0.1);
  EXPECT_EQ(full->ignoreIndex, -100);
  EXPECT_EQ(full->axis, 1);
  EXPECT_EQ(full->factor, 0.5);
  EXPECT_FALSE(full->isMean);
  EXPECT_TRUE(full->classWeights.empty());
  auto weighted =
      LossSpec::parse("cross_entropy(a, b, class_weights=[0.2, 1,3 ], weight=2)", error);
  ASSERT_TRUE(weighted) << error;
  EXPECT_THAT(weighted->classWeights, ::testing::ElementsAre(0.2, 1, 3));
  EXPECT_EQ(weighted->factor, 2);
  auto plain = LossSpec::parse(" kl('a b', c)", error);
  ASSERT_TRUE(plain) << error;
  EXPECT_EQ(plain->kind, LossSpec::Kind::KlDivergence);
  EXPECT_EQ(plain->prediction, "a b");
  EXPECT_EQ(plain->axis, -1);
  EXPECT_EQ(plain->factor, 1);
  EXPECT_TRUE(plain->isMean);
  EXPECT_EQ(plain->ignoreIndex, std::nullopt);
  EXPECT_EQ(LossSpec::parse("bce(a, b)", error)->kind, LossSpec::Kind::BinaryCrossEntropy);
  EXPECT_EQ(LossSpec::parse("mse(a, b)", error)->kind, LossSpec::Kind::MeanSquaredError);
  auto bonus = LossSpec::parse("output(entropy, weight=-0.01)", error);
  ASSERT_TRUE(bonus) << error;
  EXPECT_EQ(bonus->prediction, "entropy");
  EXPECT_EQ(bonus->factor, -0.01);
}

TEST(LossText, AWordAloneIsAnOutput) {
  std::string error;
  for (const char *text : {"loss", "mse", "'f(x)'", "loss "}) {
    auto loss = LossSpec::parse(text, error);
    ASSERT_TRUE(loss) << error;
    EXPECT_EQ(loss->kind, LossSpec::Kind::Output);
    EXPECT_EQ(loss->text, text);
    EXPECT_EQ(loss->prediction, llvm::StringRef(text).trim().trim('\''));
    EXPECT_EQ(loss->target, "");
  }
}

struct Wrong {
  const char *text, *error;
};

TEST(LossText, IsRefusedWhereItIsNoLoss) {
  const Wrong texts[] = {
      {"", "loss '' has no name at its start; give cross_entropy(LOGITS"},
      {"mse(a", "lacks ')'"},
      {"hinge(a, b)", "loss 'hinge(a, b)' is not a known loss; give "},
      {"hinge()", "is not a known loss"},
      {"mse()", "has 0 names in its parentheses where mse takes a prediction and a target; give "},
      {"mse(a)", "has 1 names"},
      {"mse(a, b, c)", "has 3 names"},
      {"mse(a, '')", "lacks an argument"},
      {"output(a, b)", "has 2 names in its parentheses where output takes an output"},
      {"output(weight=1)", "has 0 names"},
      {"output(a, reduction=sum)", "has no 'reduction'"},
      {"mse(a, b, axis=1)", "has no 'axis'"},
      {"mse(a, b, label_smoothing=0.1)", "has no 'label_smoothing'"},
      {"bce(a, b, ignore_index=1)", "has no 'ignore_index'"},
      {"kl(a, b, ignore_index=1)", "has no 'ignore_index'"},
      {"cross_entropy(a, b, smoothing=0.1)", "has no 'smoothing'"},
      {"cross_entropy(a, b, label_smoothing=1.5)",
       "has label_smoothing=1.5, which is not a number from 0 to 1"},
      {"cross_entropy(a, b, label_smoothing=-0.1)", "which is not a number from 0 to 1"},
      {"cross_entropy(a, b, label_smoothing=much)",
       "has label_smoothing=much, which is not a number"},
      {"cross_entropy(a, b, class_weights=2)",
       "has class_weights=2, which is not a list [1, 0.5] of numbers from 0 to 1e6"},
      {"cross_entropy(a, b, class_weights=[1, -1])",
       "has class_weights=[1, -1], which is not a list"},
      {"cross_entropy(a, b, class_weights=[])", "has class_weights=[], which is not a list"},
      {"cross_entropy(a, b, class_weights=[0, 0])", "which leaves nothing of it"},
      {"cross_entropy(a, b, class_weights=[1, 2)", "lacks the ] of '[1, 2)'"},
      {"mse(a, b, class_weights=[1])", "has no 'class_weights'"},
      {"cross_entropy(a, b, ignore_index=1.5)",
       "has ignore_index=1.5, which is not a whole number"},
      {"cross_entropy(a, b, ignore_index=9223372036854775808)",
       "which is not a whole number of 64 bits"},
      {"cross_entropy(a, b, axis=last)", "has axis=last, which is not a whole number"},
      {"mse(a, b, weight=0)", "has weight=0, which leaves nothing of it"},
      {"mse(a, b, weight=1e-60)", "has weight=1e-60, whose size is not from 1e-37 to 1e30"},
      {"mse(a, b, weight=-1e60)", "has weight=-1e60, whose size is not from 1e-37 to 1e30"},
      {"mse(a, b, weight=nan)", "has weight=nan, which is not a number"},
      {"mse(a, b, weight=inf)", "has weight=inf, which is not a number"},
      {"mse(a, b, weight=1, weight=2)", "has weight twice"},
      {"mse(a, b, reduction=none)", "has reduction=none, neither mean nor sum"},
      {"mse(a, b) c", "has 'c' behind it"},
  };
  for (auto [text, expected] : texts) {
    std::string error;
    EXPECT_FALSE(LossSpec::parse(text, error)) << text;
    EXPECT_THAT(error, HasSubstr(expected)) << text;
    EXPECT_THAT(error, ::testing::EndsWith(kLossGrammar)) << text;
  }
}

TEST(LossText, MetricsAreReadOrRefused) {
  std::string error;
  auto metric = MetricSpec::parse("accuracy(logits, labels, axis=1, ignore_index=-100)", error);
  ASSERT_TRUE(metric) << error;
  EXPECT_EQ(metric->name, "accuracy");
  EXPECT_EQ(metric->prediction, "logits");
  EXPECT_EQ(metric->target, "labels");
  EXPECT_EQ(metric->axis, 1);
  EXPECT_EQ(metric->ignoreIndex, -100);
  const Wrong texts[] = {
      {"accuracy", "metric 'accuracy' has 0 names in its parentheses where accuracy takes logits"},
      {"accuracy(a)", "has 1 names"},
      {"f1(a, b)", "is not a known metric; give accuracy(LOGITS"},
      {"accuracy(a, b, weight=1)", "has no 'weight'"},
      {"accuracy(a, b, axis=x)", "has axis=x, which is not a whole number"},
      {"accuracy(a, b, ignore_index=)", "has no value behind ignore_index="},
  };
  for (auto [text, expected] : texts) {
    EXPECT_FALSE(MetricSpec::parse(text, error)) << text;
    EXPECT_THAT(error, HasSubstr(expected)) << text;
    EXPECT_THAT(error, ::testing::EndsWith(kMetricGrammar)) << text;
  }
}

} // namespace
