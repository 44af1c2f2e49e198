//===- Schedule.cpp - learning rates by step ------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/train/Schedule.h"

#include "runtime/core/Error.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <numbers>
#include <set>
#include <string_view>

using namespace gridloom::rt;

const char *const gridloom::rt::kScheduleGrammar =
    "constant, linear(total=STEPS, min=0), cosine(total=STEPS, min=0) or step(every=STEPS, "
    "gamma=0.1); each takes warmup=STEPS";

namespace {

/// Reads "NAME" or "NAME(KEY=NUMBER, ...)".
class Parser {
public:
  explicit Parser(const std::string &text) : text(text), rest(text) {}

  Schedule parse(int64_t steps) {
    static const std::map<std::string_view, Schedule::Kind> kinds = {
        {"constant", Schedule::Constant},
        {"linear", Schedule::Linear},
        {"cosine", Schedule::Cosine},
        {"step", Schedule::Step}};
    std::string_view name = readWord();
    auto kind = kinds.find(name);
    if (kind == kinds.end())
      fail("is no schedule");
    schedule.kind = kind->second;
    schedule.total = steps;
    schedule.gamma = 0.1;
    if (accept('(') && !accept(')')) {
      do
        readSetting();
      while (accept(','));
      if (!accept(')'))
        fail("lacks ')' or ',' before '" + std::string(rest) + "'");
    }
    skipSpace();
    if (!rest.empty())
      fail("has '" + std::string(rest) + "' behind it");
    check();
    return schedule;
  }

private:
  [[noreturn]] void fail(const std::string &what) const {
    throw Error(ErrorCode::InvalidArgument,
                "schedule '" + text + "' " + what + "; give " + kScheduleGrammar);
  }

  void skipSpace() { rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size())); }

  bool accept(char c) {
    skipSpace();
    if (!rest.starts_with(c))
      return false;
    rest.remove_prefix(1);
    return true;
  }

  std::string_view readWord() {
    skipSpace();
    size_t end = std::min(rest.find_first_of(" \t(),="), rest.size());
    std::string_view word = rest.substr(0, end);
    rest.remove_prefix(end);
    return word;
  }

  /// A whole number of steps, at least `least`.
  int64_t readSteps(std::string_view key, std::string_view word, int64_t least) const {
    int64_t value = 0;
    auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || end != word.data() + word.size() || value < least)
      fail("has " + std::string(key) + "=" + std::string(word) + ", no whole number from " +
           std::to_string(least));
    return value;
  }

  /// A factor from 0 to 1.
  double readFactor(std::string_view key, std::string_view word) const {
    double value = 0;
    auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || end != word.data() + word.size() || !(value >= 0 && value <= 1))
      fail("has " + std::string(key) + "=" + std::string(word) + ", no number from 0 to 1");
    return value;
  }

  void readSetting() {
    std::string_view key = readWord();
    if (!accept('='))
      fail("has '" + std::string(key) + "' without '=' and a number");
    std::string_view word = readWord();
    if (!seen.insert(key).second)
      fail("has " + std::string(key) + " twice");
    bool descends = schedule.kind == Schedule::Linear || schedule.kind == Schedule::Cosine;
    if (key == "warmup")
      schedule.warmup = readSteps(key, word, 0);
    else if (key == "total" && descends)
      schedule.total = readSteps(key, word, 1);
    else if (key == "min" && descends)
      schedule.min = readFactor(key, word);
    else if (key == "every" && schedule.kind == Schedule::Step)
      schedule.every = readSteps(key, word, 1);
    else if (key == "gamma" && schedule.kind == Schedule::Step)
      schedule.gamma = readFactor(key, word);
    else
      fail("has no '" + std::string(key) + "'");
  }

  void check() const {
    bool descends = schedule.kind == Schedule::Linear || schedule.kind == Schedule::Cosine;
    if (descends && schedule.total == 0)
      fail("needs total=STEPS, since the number of steps is not known");
    if (descends && schedule.total <= schedule.warmup)
      fail("has a warm-up of " + std::to_string(schedule.warmup) + " steps of " +
           std::to_string(schedule.total) + " in all");
    if (schedule.kind == Schedule::Step && schedule.every == 0)
      fail("needs every=STEPS");
  }

  const std::string &text;
  std::string_view rest;
  std::set<std::string_view> seen;
  Schedule schedule;
};

} // namespace

Schedule Schedule::parse(const std::string &text, int64_t steps) {
  return Parser(text).parse(steps);
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
