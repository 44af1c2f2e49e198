//===- Initializers.cpp - initial values of parameters --------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/train/Initializers.h"

#include "dialects/loom/WeightUse.h"
#include "support/CallText.h"

#include <cmath>

using namespace mlir;
using namespace gridloom;
using namespace gridloom::train;

const char *const gridloom::train::kInitGrammar =
    "'PATTERN: DISTRIBUTION', where PATTERN is a parameter's name, with * for any text, or "
    "rank<=N, and DISTRIBUTION is normal(MEAN, DEVIATION), uniform(LOW, HIGH), constant(NUMBER), "
    "zeros, ones, xavier_uniform(gain=1), xavier_normal(gain=1), kaiming_uniform(a=0, mode=fan_in) "
    "or kaiming_normal(a=0, mode=fan_in), as torch.nn.init has them; later ones win";

//===----------------------------------------------------------------------===//
// Fans
//===----------------------------------------------------------------------===//

/// Follows a weight through transposes and conversions to a product; sets which of its dimensions
/// the product sums over and which are its batch. False if there is no product.
static bool findProduct(Value value, SmallVector<int64_t> dims, llvm::SmallBitVector &summed,
                        llvm::SmallBitVector &batch) {
  for (OpOperand &use : value.getUses()) {
    Operation *op = use.getOwner();
    if (isa<loom::ConvertOp>(op) && findProduct(op->getResult(0), dims, summed, batch))
      return true;
    if (auto transpose = dyn_cast<loom::TransposeOp>(op)) {
      SmallVector<int64_t> order;
      for (int64_t dim : transpose.getPermutation())
        order.push_back(dims[dim]);
      if (findProduct(transpose.getOutput(), order, summed, batch))
        return true;
    }
    auto product = dyn_cast<loom::DotGeneralOp>(op);
    if (!product)
      continue;
    bool isLhs = use.getOperandNumber() == 0;
    for (int64_t dim : isLhs ? product.getLhsContract() : product.getRhsContract())
      summed.set(dims[dim]);
    for (int64_t dim : isLhs ? product.getLhsBatch() : product.getRhsBatch())
      batch.set(dims[dim]);
    return true;
  }
  return false;
}

std::optional<Fans> train::findFans(loom::GetWeightOp read) {
  ArrayRef<int64_t> shape = cast<RankedTensorType>(read.getType()).getShape();
  if (shape.size() < 2)
    return std::nullopt;
  auto use = read->getAttrOfType<StringAttr>(loom::kUse);
  if (use && use.getValue() == loom::kRecurrentWeight && shape.size() == 3)
    return Fans{shape[2], shape[1]};
  llvm::SmallBitVector summed(shape.size()), batch(shape.size());
  SmallVector<int64_t> dims = llvm::to_vector(llvm::seq<int64_t>(0, shape.size()));
  Fans fans{1, 1};
  if (findProduct(read.getOutput(), dims, summed, batch)) {
    for (auto [i, size] : llvm::enumerate(shape))
      if (!batch.test(i))
        (summed.test(i) ? fans.in : fans.out) *= size;
    return fans;
  }
  int64_t window = loom::countElements(shape.drop_front(2));
  return Fans{shape[1] * window, shape[0] * window};
}

//===----------------------------------------------------------------------===//
// Distributions
//===----------------------------------------------------------------------===//

namespace gridloom::train {
/// Parses a call into a specification; keeps the first problem.
struct InitReader {
  CallText call;
  InitSpec spec;
  std::string fault;

  void fail(const std::string &message) {
    if (fault.empty())
      fault = message;
  }
  double number(const std::string &word) {
    std::optional<double> value = parseNumber(word);
    if (!value)
      fail("has '" + word + "', which is not a number");
    return value.value_or(0);
  }
  void expect(size_t count, const char *names) {
    if (call.arguments.size() != count)
      fail("has " + std::to_string(call.arguments.size()) + " numbers in its parentheses where " +
           call.name + " takes " + names);
    call.arguments.resize(count, "0");
  }

  void readNumbers() {
    using Kind = InitSpec::Kind;
    if (call.name == "zeros" || call.name == "ones") {
      expect(0, "none");
      spec.first = call.name == "ones";
    } else if (call.name == "constant") {
      expect(1, "one");
      spec.first = number(call.arguments[0]);
    } else {
      bool isNormal = call.name == "normal";
      spec.kind = isNormal ? Kind::Normal : Kind::Uniform;
      expect(2, isNormal ? "a mean and a deviation" : "a least and a largest number");
      spec.first = number(call.arguments[0]);
      spec.second = number(call.arguments[1]);
      if (isNormal ? spec.second < 0 : spec.second < spec.first)
        fail(isNormal ? "has deviation " + call.arguments[1] + ", which is below 0"
                      : "has the larger number first");
    }
    for (const auto &[key, word] : call.settings)
      fail("has no '" + key + "'");
  }

  void readXavier() {
    spec.kind = InitSpec::Kind::Xavier;
    for (const auto &[key, word] : call.settings) {
      if (key != "gain")
        fail("has no '" + key + "'");
      else if (spec.gain = number(word); spec.gain < 0)
        fail("has gain=" + word + ", which is below 0");
    }
  }

  /// The gain is that of leaky_relu with slope a, the default of torch.nn.init.
  void readKaiming() {
    spec.kind = InitSpec::Kind::Kaiming;
    double slope = 0;
    for (const auto &[key, word] : call.settings) {
      if (key == "a")
        slope = number(word);
      else if (key != "mode")
        fail("has no '" + key + "'");
      else if (word != "fan_in" && word != "fan_out")
        fail("has mode=" + word + ", neither fan_in nor fan_out");
      else
        spec.usesFanOut = word == "fan_out";
    }
    spec.gain = std::sqrt(2 / (1 + slope * slope));
  }

  void read(const std::string &text) {
    fail(call.parse(text));
    StringRef name = call.name;
    static constexpr StringLiteral plain[] = {"zeros", "ones", "constant", "normal", "uniform"};
    if (llvm::is_contained(plain, name))
      return readNumbers();
    bool isXavier = name.consume_front("xavier_");
    if ((!isXavier && !name.consume_front("kaiming_")) || (name != "normal" && name != "uniform"))
      return fail("is not a known distribution");
    expect(0, "none");
    spec.isNormal = name == "normal";
    isXavier ? readXavier() : readKaiming();
  }
};
} // namespace gridloom::train

std::optional<InitSpec> InitSpec::parse(const std::string &text, std::string &error) {
  InitReader reader;
  reader.read(text);
  error = reader.fault;
  return error.empty() ? std::optional(reader.spec) : std::nullopt;
}

bool InitSpec::needsFans() const { return kind == Kind::Xavier || kind == Kind::Kaiming; }
bool InitSpec::isConstant() const { return kind == Kind::Constant; }

Draw InitSpec::resolve(Fans fans) const {
  Draw draw;
  draw.first = first;
  draw.second = second;
  draw.distribution = kind == Kind::Constant  ? Draw::Distribution::Constant
                      : kind == Kind::Uniform ? Draw::Distribution::Uniform
                                              : Draw::Distribution::Normal;
  if (!needsFans())
    return draw;
  double deviation = kind == Kind::Xavier
                         ? gain * std::sqrt(2.0 / static_cast<double>(fans.in + fans.out))
                         : gain / std::sqrt(static_cast<double>(usesFanOut ? fans.out : fans.in));
  double bound = std::sqrt(3.0) * deviation;
  if (isNormal)
    return {Draw::Distribution::Normal, 0, deviation};
  return {Draw::Distribution::Uniform, -bound, bound};
}

//===----------------------------------------------------------------------===//
// Rules
//===----------------------------------------------------------------------===//

std::optional<InitRules> InitRules::parse(ArrayRef<std::string> texts, std::string &error) {
  InitRules parsed;
  for (const std::string &text : texts) {
    Rule rule;
    rule.text = text;
    StringRef rest;
    std::string fault = rule.pattern.parseRule(text, rest);
    if (fault.empty())
      if (std::optional<InitSpec> spec = InitSpec::parse(rest.trim().str(), fault))
        rule.spec = *spec;
    if (!fault.empty()) {
      error = "--init '" + text + "' " + fault + "; give " + kInitGrammar;
      return std::nullopt;
    }
    parsed.rules.push_back(std::move(rule));
  }
  return parsed;
}

const InitRules::Rule *InitRules::lookup(ParameterName parameter) const {
  const Rule *last = nullptr;
  for (const Rule &rule : rules)
    if (rule.pattern.matches(parameter))
      last = &rule;
  return last;
}
