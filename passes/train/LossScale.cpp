//===- LossScale.cpp - the scale of a loss --------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/train/LossScale.h"

#include "support/CallText.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::train;

const char *const gridloom::train::kLossScaleGrammar =
    "dynamic(init=65536, growth=2, backoff=0.5, interval=2000, min=1), which is multiplied by "
    "growth after so many steps in a row that were taken and by backoff after one that was not (as "
    "PyTorch's GradScaler), a number, which stays, or off";

/// Bounds on scales that leave room for products and quotients with counts in f32.
static constexpr double kLeast = 0x1p-60, kMost = 0x1p60;

/// Returns the problem, or "".
std::string LossScaleSpec::read(const std::string &key, const std::string &word) {
  auto fail = [&](const char *what) { return "has " + key + "=" + word + ", " + what; };
  if (key == "interval") {
    std::optional<int64_t> steps = parseInteger(word);
    interval = steps.value_or(0);
    return interval >= 1 ? "" : fail("which is not a whole number from 1");
  }
  std::optional<double> number = parseNumber(word);
  if (key == "growth") {
    growth = number.value_or(0);
    return growth >= 1 && growth <= kMost ? "" : fail("which is not a number from 1 to 2^60");
  }
  if (key == "backoff") {
    backoff = number.value_or(0);
    return backoff >= kLeast && backoff < 1 ? ""
                                            : fail("which is not a number from 2^-60 to below 1");
  }
  if (key != "init" && key != "min")
    return "has no setting " + key;
  (key == "init" ? init : min) = number.value_or(0);
  return number && *number >= kLeast && *number <= kMost
             ? ""
             : fail("which is not a number from 2^-60 to 2^60");
}

std::optional<LossScaleSpec> LossScaleSpec::parse(const std::string &text, std::string &error) {
  CallText call;
  std::string fault = call.parse(text);
  LossScaleSpec spec;
  bool isWord = call.arguments.empty() && call.settings.empty();
  if (std::optional<double> number = parseNumber(call.name); number && isWord) {
    spec.kind = Kind::Static;
    spec.init = *number;
    if (*number < kLeast || *number > kMost)
      fault = "is not a number from 2^-60 to 2^60";
  } else if (call.name == "dynamic") {
    spec.kind = Kind::Dynamic;
    if (fault.empty() && !call.arguments.empty())
      fault = "has '" + call.arguments.front() + "' without '=' and a value";
    for (const auto &[key, word] : call.settings)
      fault = fault.empty() ? spec.read(key, word) : fault;
    if (fault.empty() && spec.init < spec.min)
      fault = "begins below its min";
  } else if (fault.empty() && (call.name != "off" || !isWord)) {
    fault = "is neither dynamic, a number nor off";
  }
  if (fault.empty())
    return spec;
  error = "loss scale '" + text + "' " + fault + "; give " + kLossScaleGrammar;
  return std::nullopt;
}

Term LossScaleSpec::begin(const Term &state) const {
  return state.compare(loom::Direction::EQ, 0).select(state.splat(init), state);
}

LossScaleSpec::State LossScaleSpec::update(const State &now, const Term &committed) const {
  if (!isDynamic())
    return now;
  const auto &[scale, good] = now;
  Term more = *good + 1;
  Term isDue = more.compare(loom::Direction::GE, static_cast<double>(interval));
  Term grown = (scale * growth).apply<loom::MinimumOp>(scale.splat(kMost));
  Term less = (scale * backoff).apply<loom::MaximumOp>(scale.splat(min));
  Term none = more.splat(0);
  return {committed.select(isDue.select(grown, scale), less),
          committed.select(isDue.select(none, more), none)};
}
