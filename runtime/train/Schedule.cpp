//===- Schedule.cpp - learning rates by step ------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/train/Schedule.h"

#include "runtime/core/Error.h"
#include "support/CallText.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>

using namespace gridloom;
using namespace gridloom::rt;

const char *const gridloom::rt::kScheduleGrammar =
    "constant, linear(total=STEPS, min=0), cosine(total=STEPS, min=0) or step(every=STEPS, "
    "gamma=0.1); each takes warmup=STEPS";

namespace {

/// Reads a schedule from the text of a call.
class Reader {
public:
  Reader(const std::string &text, int64_t steps) : text(text) {
    static const std::map<std::string, Schedule::Kind> kinds = {{"constant", Schedule::Constant},
                                                                {"linear", Schedule::Linear},
                                                                {"cosine", Schedule::Cosine},
                                                                {"step", Schedule::Step}};
    CallText call;
    if (std::string fault = call.parse(text); !fault.empty())
      fail(fault);
    auto kind = kinds.find(call.name);
    if (kind == kinds.end())
      fail("is unknown");
    if (!call.arguments.empty())
      fail("has '" + call.arguments.front() + "' without '=' and a number");
    schedule.kind = kind->second;
    schedule.total = steps;
    schedule.usesRunLength = descends();
    schedule.gamma = 0.1;
    for (const auto &[key, word] : call.settings)
      readSetting(key, word);
    check();
  }

  const Schedule &getSchedule() const { return schedule; }

private:
  [[noreturn]] void fail(const std::string &what) const {
    throw Error(ErrorCode::InvalidArgument,
                "schedule '" + text + "' " + what + "; give " + kScheduleGrammar);
  }

  bool descends() const {
    return schedule.kind == Schedule::Linear || schedule.kind == Schedule::Cosine;
  }

  int64_t readSteps(const std::string &key, const std::string &word, int64_t least) const {
    std::optional<int64_t> value = parseInteger(word);
    if (!value || *value < least)
      fail("has " + key + "=" + word + ", which is not a whole number from " +
           std::to_string(least));
    return *value;
  }

  /// A factor from 0 to 1.
  double readFactor(const std::string &key, const std::string &word) const {
    std::optional<double> value = parseNumber(word);
    if (!value || *value < 0 || *value > 1)
      fail("has " + key + "=" + word + ", which is not a number from 0 to 1");
    return *value;
  }

  void readSetting(const std::string &key, const std::string &word) {
    if (key == "warmup")
      schedule.warmup = readSteps(key, word, 0);
    else if (key == "total" && descends()) {
      schedule.total = readSteps(key, word, 1);
      schedule.usesRunLength = false;
    } else if (key == "min" && descends())
      schedule.min = readFactor(key, word);
    else if (key == "every" && schedule.kind == Schedule::Step)
      schedule.every = readSteps(key, word, 1);
    else if (key == "gamma" && schedule.kind == Schedule::Step)
      schedule.gamma = readFactor(key, word);
    else
      fail("has no '" + key + "'");
  }

  void check() const {
    if (descends() && schedule.total == 0)
      fail("needs total=STEPS, since the number of steps is not known");
    if (descends() && schedule.total <= schedule.warmup)
      fail("has a warm-up of " + std::to_string(schedule.warmup) + " steps of " +
           std::to_string(schedule.total) + " in all");
    if (schedule.kind == Schedule::Step && schedule.every == 0)
      fail("needs every=STEPS");
  }

  const std::string &text;
  Schedule schedule;
};

} // namespace

Schedule Schedule::parse(const std::string &text, int64_t steps) {
  return Reader(text, steps).getSchedule();
}

double Schedule::getFactor(int64_t step) const {
  if (step < warmup)
    return double(step + 1) / double(warmup);
  int64_t passed = step - warmup;
  if (kind == Step) {
    int64_t falls = passed / every;
    return std::pow(gamma, double(falls));
  }
  if (kind == Constant)
    return 1;
  double share = std::min(double(passed) / double(total - warmup), 1.0);
  double left = kind == Linear ? 1 - share : (1 + std::cos(std::numbers::pi * share)) / 2;
  return min + (1 - min) * left;
}
