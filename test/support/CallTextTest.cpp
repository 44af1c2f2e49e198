//===- CallTextTest.cpp - calls as command lines --------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "support/CallText.h"

#include <gmock/gmock.h>

using namespace gridloom;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

namespace {

CallText parse(const std::string &text) {
  CallText call;
  EXPECT_EQ(call.parse(text), "");
  return call;
}

std::string getFault(const std::string &text) { return CallText().parse(text); }

TEST(CallText, HasANameArgumentsAndSettings) {
  CallText call =
      parse(" cross_entropy( logits ,labels, label_smoothing = 0.1,ignore_index=-100) ");
  EXPECT_EQ(call.name, "cross_entropy");
  EXPECT_THAT(call.arguments, ElementsAre("logits", "labels"));
  EXPECT_THAT(call.settings,
              ElementsAre(Pair("label_smoothing", "0.1"), Pair("ignore_index", "-100")));
}

TEST(CallText, AListIsOneWord) {
  CallText call = parse("f([a, b], weights=[0.2, 1,(3) ] , c=1)");
  EXPECT_THAT(call.arguments, ElementsAre("[a, b]"));
  EXPECT_THAT(call.settings, ElementsAre(Pair("weights", "[0.2, 1,(3) ]"), Pair("c", "1")));
  EXPECT_EQ(getFault("f(a, b=[1, 2)"), "lacks the ] of '[1, 2)'");
}

TEST(CallText, ParenthesesMayBeLeftOut) {
  for (const char *text : {"sgd", "sgd()", " sgd ( ) "}) {
    CallText call = parse(text);
    EXPECT_EQ(call.name, "sgd");
    EXPECT_THAT(call.arguments, IsEmpty());
    EXPECT_THAT(call.settings, IsEmpty());
  }
}

TEST(CallText, QuotesHoldAnyName) {
  CallText call = parse("mse('a (b), c=d', /layer.0/out:0)");
  EXPECT_THAT(call.arguments, ElementsAre("a (b), c=d", "/layer.0/out:0"));
  EXPECT_EQ(parse("'my loss'").name, "my loss");
}

TEST(CallText, SaysWhatIsWrong) {
  EXPECT_EQ(getFault(""), "has no name at its start");
  EXPECT_EQ(getFault("(x)"), "has no name at its start");
  EXPECT_EQ(getFault("f(x"), "lacks ')' or ',' before the end");
  EXPECT_EQ(getFault("f(x y)"), "lacks ')' or ',' before 'y)'");
  EXPECT_EQ(getFault("f(x) y"), "has 'y' behind it");
  EXPECT_EQ(getFault("f(,x)"), "lacks an argument before ',x)'");
  EXPECT_EQ(getFault("f(x,"), "lacks an argument before the end");
  EXPECT_EQ(getFault("f(x,)"), "lacks an argument before ')'");
  EXPECT_EQ(getFault("f(x=)"), "has no value behind x=");
  EXPECT_EQ(getFault("f(x=1, x=2)"), "has x twice");
  EXPECT_EQ(getFault("f(x=1, y)"), "has 'y' without '=' behind a setting");
  EXPECT_EQ(getFault("f('x"), "lacks the second ' of 'x");
}

TEST(CallText, NumbersAreWholeWords) {
  EXPECT_EQ(parseNumber("3e-4"), 3e-4);
  EXPECT_EQ(parseNumber("-2"), -2.0);
  for (const char *word : {"", "1x", " 1", "nan", "inf", "1e999"})
    EXPECT_EQ(parseNumber(word), std::nullopt) << word;
  EXPECT_EQ(parseInteger("-100"), -100);
  for (const char *word : {"", "1.5", "1e3", "99999999999999999999"})
    EXPECT_EQ(parseInteger(word), std::nullopt) << word;
}

} // namespace
