//===- Parameters.cpp - settings of single parameters ---------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/train/Parameters.h"

#include "dialects/loom/NamePattern.h"
#include "passes/train/OptimizerRules.h"
#include "support/CallText.h"

using namespace llvm;
using namespace gridloom;
using namespace gridloom::train;

const char *const gridloom::train::kParameterGrammar =
    "'PATTERN: SETTING, ...', where PATTERN is a parameter's name, with * for any text, or "
    "rank<=N, "
    "and a SETTING is frozen, trained, lr*FACTOR or weight_decay=NUMBER; later ones win. Weight "
    "decay applies to every parameter, as in PyTorch: 'rank<=1: weight_decay=0' exempts biases and "
    "the scales of norms";

std::string ParameterPattern::parse(StringRef text) {
  name = text.trim().str();
  if (name.empty())
    return "has no pattern before its ':'";
  StringRef limit = name;
  if (limit.consume_front("rank<=")) {
    maxRank = parseInteger(limit.trim().str());
    if (!maxRank || *maxRank < 0)
      return "has rank<=" + limit.str() + ", which is not a whole number from 0";
  }
  return "";
}

std::string ParameterPattern::parseRule(StringRef rule, StringRef &rest) {
  // Names may contain colons; settings and distributions do not.
  auto [before, after] = rule.rsplit(':');
  rest = after;
  return before.size() == rule.size() ? "has no ':' behind its pattern" : parse(before);
}

bool ParameterPattern::matches(ParameterName parameter) const {
  return maxRank ? parameter.rank <= *maxRank : matchesPattern(name, parameter.name);
}

std::string ParameterRules::Rule::read(StringRef setting) {
  if (setting == "frozen" || setting == "trained") {
    isFrozen = setting == "frozen";
    return "";
  }
  StringRef number = setting;
  std::optional<double> *place = nullptr;
  if (number.consume_front("weight_decay")) {
    number = number.ltrim();
    if (number.consume_front("="))
      place = &weightDecay;
  } else if (number.consume_front("lr")) {
    number = number.ltrim();
    if (number.consume_front("*"))
      place = &rateFactor;
  }
  if (!place)
    return "has '" + setting.str() + "', which is not a setting";
  std::optional<double> value = parseNumber(number.trim().str());
  if (!value || *value < 0 || *value > kMaxRate)
    return "has '" + setting.str() + "', whose number is not from 0 to 1e6";
  *place = value;
  return "";
}

std::string ParameterRules::Rule::parse(StringRef whole) {
  text = whole.str();
  StringRef rest;
  if (std::string fault = pattern.parseRule(whole, rest); !fault.empty())
    return fault;
  SmallVector<StringRef> settings;
  rest.split(settings, ',');
  for (StringRef setting : settings)
    if (std::string fault = read(setting.trim()); !fault.empty())
      return fault;
  return "";
}

std::optional<ParameterRules> ParameterRules::parse(ArrayRef<std::string> texts,
                                                    std::string &error) {
  ParameterRules parsed;
  for (const std::string &text : texts)
    if (std::string fault = parsed.rules.emplace_back().parse(text); !fault.empty()) {
      error = "parameter setting '" + text + "' " + fault + "; give " + kParameterGrammar;
      return std::nullopt;
    }
  return parsed;
}

ParameterSettings ParameterRules::lookup(ParameterName parameter) const {
  ParameterSettings settings;
  for (const Rule &rule : rules)
    if (rule.pattern.matches(parameter)) {
      settings.isFrozen = rule.isFrozen.value_or(settings.isFrozen);
      settings.rateFactor = rule.rateFactor.value_or(settings.rateFactor);
      if (rule.weightDecay)
        settings.weightDecay = rule.weightDecay;
    }
  return settings;
}
