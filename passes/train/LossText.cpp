//===- LossText.cpp - parse losses and metrics ----------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/train/Losses.h"
#include "passes/train/OptimizerRules.h"

#include "support/CallText.h"

#include <cmath>

using namespace gridloom;
using namespace gridloom::train;
using Kind = LossSpec::Kind;

const char *const gridloom::train::kLossGrammar =
    "cross_entropy(LOGITS, LABELS, axis=-1, label_smoothing=0, ignore_index=LABEL, "
    "class_weights=[W0, W1, ...]), kl(LOGITS, PROBABILITIES, axis=-1), mse(OUTPUT, TARGET), "
    "bce(LOGITS, TARGET), each with reduction=mean "
    "or sum, output(NAME), or the name of an output; all calls take weight=1";

const char *const gridloom::train::kMetricGrammar =
    "accuracy(LOGITS, LABELS, axis=-1, ignore_index=LABEL)";

/// Of a class in class_weights.
static constexpr double kMaxWeight = 1e6;

namespace {

/// Parses a call; keeps the first problem.
class Reader {
public:
  /// `what` is "loss" or "metric".
  Reader(const char *what, const char *grammar, const std::string &text)
      : what(what), grammar(grammar), text(text) {
    fail(call.parse(text));
  }

  bool failed() const { return !fault.empty(); }
  std::string getError() const {
    return std::string(what) + " '" + text + "' " + fault + "; give " + grammar;
  }
  const CallText &getCall() const { return call; }

  /// Whether the text is only a word, without parentheses.
  bool isWord() const {
    size_t last = text.find_last_not_of(" \t");
    return call.arguments.empty() && call.settings.empty() && last != std::string::npos &&
           text[last] != ')';
  }

  void fail(std::string message) {
    if (fault.empty())
      fault = std::move(message);
  }

  void expectArguments(size_t count, const char *names) {
    if (call.arguments.size() != count)
      fail("has " + std::to_string(call.arguments.size()) + " names in its parentheses where " +
           call.name + " takes " + names);
  }

  int64_t readInteger(const std::string &key, const std::string &word) {
    std::optional<int64_t> value = parseInteger(word);
    if (!value)
      fail("has " + key + "=" + word + ", which is not a whole number of 64 bits");
    return value.value_or(0);
  }

  /// "[1, 0.5]".
  llvm::SmallVector<double, 0> readWeights(const std::string &key, const std::string &word) {
    llvm::StringRef list(word);
    llvm::SmallVector<double, 0> weights;
    bool isList = list.consume_front("[") && list.consume_back("]");
    llvm::SmallVector<llvm::StringRef> parts;
    list.split(parts, ',');
    for (llvm::StringRef part : parts) {
      std::optional<double> weight = parseNumber(part.trim().str());
      if (!isList || !weight || *weight < 0 || *weight > kMaxWeight) {
        fail("has " + key + "=" + word + ", which is not a list [1, 0.5] of numbers from 0 to 1e6");
        return {};
      }
      weights.push_back(*weight);
    }
    if (llvm::all_of(weights, [](double weight) { return weight == 0; }))
      fail("has " + key + "=" + word + ", which leaves nothing of it");
    return weights;
  }

  double readNumber(const std::string &key, const std::string &word) {
    std::optional<double> value = parseNumber(word);
    if (!value)
      fail("has " + key + "=" + word + ", which is not a number");
    return value.value_or(0);
  }

private:
  const char *what, *grammar;
  const std::string &text;
  CallText call;
  std::string fault;
};

struct KindName {
  llvm::StringLiteral name;
  Kind kind;
};
constexpr KindName kKinds[] = {{"cross_entropy", Kind::CrossEntropy},
                               {"kl", Kind::KlDivergence},
                               {"mse", Kind::MeanSquaredError},
                               {"bce", Kind::BinaryCrossEntropy},
                               {"output", Kind::Output}};

} // namespace

static void readSetting(Reader &reader, LossSpec &loss, const std::string &key,
                        const std::string &word) {
  bool isOfLabels = loss.kind == Kind::CrossEntropy;
  if (key == "weight") {
    loss.factor = reader.readNumber(key, word);
    if (loss.factor == 0)
      reader.fail("has weight=" + word + ", which leaves nothing of it");
    if (double size = std::abs(loss.factor); size < kMinPositive || size > kMaxLimit)
      reader.fail("has weight=" + word + ", whose size is not from 1e-37 to 1e30");
  } else if (key == "reduction" && loss.kind != Kind::Output) {
    loss.isMean = word == "mean";
    if (word != "mean" && word != "sum")
      reader.fail("has reduction=" + word + ", neither mean nor sum");
  } else if (key == "axis" && (isOfLabels || loss.kind == Kind::KlDivergence)) {
    loss.axis = reader.readInteger(key, word);
  } else if (key == "ignore_index" && isOfLabels) {
    loss.ignoreIndex = reader.readInteger(key, word);
  } else if (key == "class_weights" && isOfLabels) {
    loss.classWeights = reader.readWeights(key, word);
  } else if (key == "label_smoothing" && isOfLabels) {
    loss.labelSmoothing = reader.readNumber(key, word);
    if (loss.labelSmoothing < 0 || loss.labelSmoothing > 1)
      reader.fail("has label_smoothing=" + word + ", which is not a number from 0 to 1");
  } else {
    reader.fail("has no '" + key + "'");
  }
}

std::optional<LossSpec> LossSpec::parse(const std::string &text, std::string &error) {
  Reader reader("loss", kLossGrammar, text);
  const CallText &call = reader.getCall();
  LossSpec loss;
  loss.text = text;
  if (!reader.failed() && reader.isWord()) {
    loss.prediction = call.name;
    return loss;
  }
  const auto *row =
      llvm::find_if(kKinds, [&](const KindName &each) { return call.name == each.name; });
  if (row == std::end(kKinds)) {
    reader.fail("is not a known loss");
  } else {
    loss.kind = row->kind;
    bool isOutput = loss.kind == Kind::Output;
    reader.expectArguments(isOutput ? 1 : 2, isOutput ? "an output" : "a prediction and a target");
    for (const auto &[key, word] : call.settings)
      readSetting(reader, loss, key, word);
  }
  if (reader.failed()) {
    error = reader.getError();
    return std::nullopt;
  }
  loss.prediction = call.arguments[0];
  if (loss.kind != Kind::Output)
    loss.target = call.arguments[1];
  return loss;
}

std::optional<MetricSpec> MetricSpec::parse(const std::string &text, std::string &error) {
  Reader reader("metric", kMetricGrammar, text);
  const CallText &call = reader.getCall();
  MetricSpec metric;
  metric.text = text;
  metric.name = call.name;
  if (metric.name != "accuracy")
    reader.fail("is not a known metric");
  reader.expectArguments(2, "logits and labels");
  for (const auto &[key, word] : call.settings) {
    if (key == "axis")
      metric.axis = reader.readInteger(key, word);
    else if (key == "ignore_index")
      metric.ignoreIndex = reader.readInteger(key, word);
    else
      reader.fail("has no '" + key + "'");
  }
  if (reader.failed()) {
    error = reader.getError();
    return std::nullopt;
  }
  metric.prediction = call.arguments[0];
  metric.target = call.arguments[1];
  return metric;
}
