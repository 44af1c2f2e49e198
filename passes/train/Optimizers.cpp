//===- Optimizers.cpp - steps of parameters -------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/train/Optimizers.h"

#include "support/CallText.h"

#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::train;

/// A setting of every rule: the decay of a running average of the parameter's values.
static constexpr llvm::StringLiteral kAverage = "ema";

static std::string describe(const Rule &rule) {
  auto settings = llvm::map_range(rule.settings, [](const auto &s) { return s.describe(); });
  return rule.name.str() + "(" + llvm::join(settings, ", ") + ")";
}

const std::string &gridloom::train::getOptimizerGrammar() {
  static const std::string grammar = [] {
    auto rules = llvm::map_range(getRules(), [](const Rule &rule) {
      return describe(rule) + " as " + rule.convention.str();
    });
    return llvm::join(rules, "; ") +
           ". Each takes ema=DECAY, which keeps a running average of the weights as a state";
  }();
  return grammar;
}

std::string Optimizer::readSettings(llvm::ArrayRef<std::pair<std::string, std::string>> settings) {
  std::vector<RuleSetting> known = rule->settings;
  known.push_back({kAverage, RuleSetting::Share, 0});
  for (const RuleSetting &setting : known)
    if (setting.fallback)
      numbers.set(setting.name, *setting.fallback);
  for (const auto &entry : settings) {
    auto setting = llvm::find_if(known, [&](const auto &s) { return s.name == entry.first; });
    if (setting == known.end())
      return "has no setting " + entry.first;
    std::optional<double> value = setting->parse(entry.second);
    if (!value)
      return "has " + entry.first + "=" + entry.second + ", " + setting->describeFault();
    numbers.set(setting->name, *value);
  }
  for (const RuleSetting &setting : known)
    if (!numbers.has(setting.name))
      return "lacks " + setting.name.str() + "=";
  if (rule->name == "sgd" && numbers["nesterov"] && (!numbers["momentum"] || numbers["dampening"]))
    return "has nesterov=true, which needs momentum above 0 and dampening=0";
  return "";
}

std::optional<Optimizer> Optimizer::parse(const std::string &text, std::string &error) {
  auto fail = [&](const std::string &what, const std::string &remedy) {
    error = "optimizer '" + text + "' " + what + "; give " + remedy;
    return std::nullopt;
  };
  CallText call;
  std::string fault = call.parse(text);
  const Rule *rule = llvm::find_if(getRules(), [&](const Rule &r) { return r.name == call.name; });
  if (!fault.empty() || rule == getRules().end()) {
    auto names = llvm::map_range(getRules(), [](const Rule &r) { return r.name.str(); });
    return fail(fault.empty() ? "is not a known rule" : fault, "one of " + llvm::join(names, ", "));
  }
  Optimizer optimizer(*rule);
  if (!call.arguments.empty())
    fault = "has '" + call.arguments.front() + "' without '=' and a value";
  else
    fault = optimizer.readSettings(call.settings);
  if (!fault.empty())
    return fail(fault, describe(*rule));
  return optimizer;
}

SmallVector<Slot> Optimizer::getSlots(RankedTensorType parameter) const {
  RankedTensorType type =
      cast<RankedTensorType>(parameter.clone(getComputeType(parameter.getElementType())));
  SmallVector<Slot> slots = rule->listSlots(numbers, type);
  if (numbers[kAverage])
    slots.push_back({kAverage.str(), type, 0, true});
  return slots;
}

SmallVector<Slot> Optimizer::getSharedSlots(FloatType element) const {
  if (rule->name != "nadam")
    return {};
  return {{"momentum_product", RankedTensorType::get({}, element), 1}};
}

SmallVector<Term> Optimizer::updateShared(ArrayRef<Term> shared, Term step) const {
  return llvm::map_to_vector(shared, [&](const Term &product) {
    return product * getNadamMomentum(numbers, step.convert(product.getType().getElementType()));
  });
}

Optimizer::Values Optimizer::update(Term parameter, Term gradient, ArrayRef<Term> slots,
                                    const Step &step, const ParameterSettings &settings) const {
  Type stored = parameter.getType().getElementType(), element = getComputeType(stored);
  auto convert = [&](const Term &term) { return term.convert(element); };
  Term rate = convert(step.rate);
  if (settings.rateFactor != 1)
    rate = rate * settings.rateFactor;
  size_t numRuleSlots = slots.size() - (numbers[kAverage] ? 1 : 0);
  RuleStep one{.numbers = numbers,
               .weightDecay = settings.weightDecay.value_or(numbers["weight_decay"]),
               .parameter = convert(parameter),
               .gradient = convert(gradient),
               .slots = llvm::map_to_vector(slots.take_front(numRuleSlots), convert),
               .rate = rate,
               .step = convert(step.number),
               .shared = llvm::map_to_vector(step.shared, convert)};
  Term next = rule->update(one);
  if (numbers[kAverage])
    one.slots.push_back(blend(slots.back(), next, numbers[kAverage]));
  return {next.convert(stored), one.slots};
}
