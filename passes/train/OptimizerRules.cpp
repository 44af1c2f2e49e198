//===- OptimizerRules.cpp - update rules of optimizers --------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Sources: the documentation of torch.optim for SGD, Adagrad, RMSprop, Adadelta, Adam, AdamW and
// NAdam; You et al. 2017 (LARS) and 2020 (LAMB), Shazeer and Stern 2018 (Adafactor), Chen et al.
// 2023 (Lion), with the defaults and the order of operations that optax documents.
//
//===----------------------------------------------------------------------===//
#include "passes/train/OptimizerRules.h"

#include "support/CallText.h"

#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

#include <cmath>
#include <numeric>

using namespace mlir;
using namespace gridloom;
using namespace gridloom::train;

//===----------------------------------------------------------------------===//
// Settings
//===----------------------------------------------------------------------===//

std::optional<double> RuleSetting::parse(const std::string &word) const {
  if (range == Flag) {
    if (word != "true" && word != "false")
      return std::nullopt;
    return word == "true";
  }
  if (range == Size) {
    std::optional<int64_t> size = parseInteger(word);
    return size && *size >= 1 ? std::optional<double>(*size) : std::nullopt;
  }
  std::optional<double> value = parseNumber(word);
  double least = range == Positive ? kMinPositive : 0;
  double most = range == Rate ? kMaxRate : 1;
  if (!value || *value < least || *value > most || (range == Share && *value == 1))
    return std::nullopt;
  return value;
}

std::string RuleSetting::describeFault() const {
  switch (range) {
  case Rate:
    return "which is not a number from 0 to 1e6";
  case Share:
    return "which is not a number from 0 to below 1";
  case Positive:
    return "which is not a number from 1e-37 to 1";
  case Size:
    return "which is not a whole number from 1";
  case Flag:
    return "neither true nor false";
  }
  llvm_unreachable("all ranges have been handled");
}

std::string RuleSetting::describe() const {
  std::string text = name.str() + "=";
  llvm::raw_string_ostream out(text);
  if (!fallback)
    out << "NUMBER";
  else if (range == Flag)
    out << (*fallback ? "true" : "false");
  else
    out << llvm::format("%g", *fallback);
  return text;
}

double RuleNumbers::operator[](llvm::StringRef name) const {
  const auto *found =
      llvm::find_if(numbers, [&](const auto &entry) { return entry.first == name; });
  assert(found != numbers.end() && "the rule has no such setting");
  return found->second;
}

void RuleNumbers::set(llvm::StringRef name, double value) {
  auto *found = llvm::find_if(numbers, [&](const auto &entry) { return entry.first == name; });
  if (found == numbers.end())
    numbers.emplace_back(name, value);
  else
    found->second = value;
}

bool RuleNumbers::has(llvm::StringRef name) const {
  return llvm::is_contained(llvm::make_first_range(numbers), name);
}

//===----------------------------------------------------------------------===//
// Formulas
//===----------------------------------------------------------------------===//

Type gridloom::train::getComputeType(Type element) {
  return element.isF64() ? element : Float32Type::get(element.getContext());
}

Term gridloom::train::spread(const Term &scalar, RankedTensorType type) {
  return scalar.convert(type.getElementType()).broadcast(type.getShape(), {});
}

Term gridloom::train::square(const Term &term) { return term * term; }

static SmallVector<int64_t> listDims(const Term &term) {
  SmallVector<int64_t> dims(term.getRank());
  std::iota(dims.begin(), dims.end(), 0);
  return dims;
}

Term gridloom::train::sumAll(const Term &term) { return term.sum(listDims(term)); }

Term gridloom::train::blend(const Term &average, const Term &value, double decay) {
  if (decay == 0)
    return value;
  if (decay < 0.5)
    return value + (average - value) * decay;
  return average + (value - average) * (1 - decay);
}

static Term root(const Term &term) { return term.apply<loom::SqrtOp>(); }
static Term norm(const Term &term) { return root(sumAll(square(term))); }

static Term mean(const Term &term, ArrayRef<int64_t> dims) {
  int64_t count = 1;
  for (int64_t dim : dims)
    count *= term.getShape()[dim];
  return term.sum(dims) * (1 / static_cast<double>(std::max<int64_t>(count, 1)));
}
static Term rootMeanSquare(const Term &term) { return root(mean(square(term), listDims(term))); }

/// For small steps the result is near step * -log(decay). 1 - exp would cancel there, but 1 -
/// exp(-2x) = 2 tanh x / (1 + tanh x) loses nothing.
Term gridloom::train::correctBias(const Term &step, double decay) {
  if (decay == 0)
    return step.splat(1);
  Term half = (step * (-std::log(decay) / 2)).apply<loom::TanhOp>();
  return half * 2 / (half + 1);
}

/// The gradient plus weight decay times the parameter: the gradient of an L2 penalty.
static Term penalize(const RuleStep &step, const Term &gradient) {
  return step.weightDecay ? gradient + step.parameter * step.weightDecay : gradient;
}

static Term descend(const RuleStep &step, const Term &direction) {
  return step.parameter - direction * step.spread(step.rate);
}

//===----------------------------------------------------------------------===//
// Rules
//===----------------------------------------------------------------------===//

static SmallVector<Slot> listMoments(const RuleNumbers &, RankedTensorType type) {
  return {{"m", type}, {"v", type}};
}

static SmallVector<Slot> listSgdSlots(const RuleNumbers &numbers, RankedTensorType type) {
  if (numbers["momentum"] == 0)
    return {};
  return {{"momentum", type}};
}

static Term updateSgd(RuleStep &step) {
  Term gradient = penalize(step, step.gradient);
  double momentum = step["momentum"], dampening = step["dampening"];
  if (momentum == 0)
    return descend(step, gradient);
  Term fresh = gradient;
  if (dampening) {
    // The first gradient is not dampened.
    Term isFirst = step.step.compare(loom::Direction::LE, 1);
    Term share = isFirst.select(step.step.splat(1), step.step.splat(1 - dampening));
    fresh = gradient * step.spread(share);
  }
  step.slots[0] = step.slots[0] * momentum + fresh;
  return descend(step, step["nesterov"] ? gradient + step.slots[0] * momentum : step.slots[0]);
}

static SmallVector<Slot> listAdagradSlots(const RuleNumbers &numbers, RankedTensorType type) {
  return {{"v", type, numbers["initial"]}};
}

static Term updateAdagrad(RuleStep &step) {
  Term gradient = penalize(step, step.gradient);
  step.slots[0] = step.slots[0] + square(gradient);
  if (double decay = step["lr_decay"])
    step.rate = step.rate / ((step.step - 1) * decay + 1);
  return descend(step, gradient / (root(step.slots[0]) + step["eps"]));
}

static SmallVector<Slot> listRmspropSlots(const RuleNumbers &numbers, RankedTensorType type) {
  SmallVector<Slot> slots = {{"v", type}};
  if (numbers["centered"])
    slots.push_back({"mean", type});
  if (numbers["momentum"])
    slots.push_back({"momentum", type});
  return slots;
}

static Term updateRmsprop(RuleStep &step) {
  Term gradient = penalize(step, step.gradient);
  Term power = step.slots[0] = blend(step.slots[0], square(gradient), step["alpha"]);
  if (step["centered"]) {
    step.slots[1] = blend(step.slots[1], gradient, step["alpha"]);
    // A variance; rounding must not make it negative.
    power = (power - square(step.slots[1])).apply<loom::MaximumOp>(power.splat(0));
  }
  Term direction = gradient / (root(power) + step["eps"]);
  if (double momentum = step["momentum"])
    direction = step.slots.back() = step.slots.back() * momentum + direction;
  return descend(step, direction);
}

static SmallVector<Slot> listAdadeltaSlots(const RuleNumbers &, RankedTensorType type) {
  return {{"v", type}, {"change", type}};
}

static Term updateAdadelta(RuleStep &step) {
  Term gradient = penalize(step, step.gradient);
  double decay = step["rho"], eps = step["eps"];
  step.slots[0] = blend(step.slots[0], square(gradient), decay);
  Term change = root(step.slots[1] + eps) / root(step.slots[0] + eps) * gradient;
  step.slots[1] = blend(step.slots[1], square(change), decay);
  return descend(step, change);
}

/// Updates v, and returns sqrt(v / correction) + eps.
static Term updateDenominator(RuleStep &step, const Term &gradient) {
  step.slots[1] = blend(step.slots[1], square(gradient), step["beta2"]);
  Term correction = correctBias(step.step, step["beta2"]).apply<loom::RsqrtOp>();
  return root(step.slots[1]) * step.spread(correction) + step["eps"];
}

/// Adam's direction: the average gradient divided by the root of the average of its square, both
/// corrected for having begun with zeros.
static Term updateMoments(RuleStep &step, const Term &gradient) {
  step.slots[0] = blend(step.slots[0], gradient, step["beta1"]);
  Term average = step.slots[0] / step.spread(correctBias(step.step, step["beta1"]));
  return average / updateDenominator(step, gradient);
}

static Term updateAdam(RuleStep &step) {
  return descend(step, updateMoments(step, penalize(step, step.gradient)));
}

static Term updateAdamw(RuleStep &step) {
  Term direction = updateMoments(step, step.gradient);
  if (step.weightDecay)
    step.parameter = step.parameter * step.spread(1 - step.rate * step.weightDecay);
  return descend(step, direction);
}

Term gridloom::train::getNadamMomentum(const RuleNumbers &numbers, const Term &step) {
  double exponent = std::log(0.96) * numbers["momentum_decay"];
  return (1 - (step * exponent).apply<loom::ExpOp>() * 0.5) * numbers["beta1"];
}

static Term updateNadam(RuleStep &step) {
  Term gradient = penalize(step, step.gradient);
  step.slots[0] = blend(step.slots[0], gradient, step["beta1"]);
  Term now = getNadamMomentum(step.numbers, step.step);
  Term next = getNadamMomentum(step.numbers, step.step + 1);
  Term product = step.shared.front();
  Term ofGradient = (1 - now) / (1 - product), ofAverage = next / (1 - product * next);
  Term sum = gradient * step.spread(ofGradient) + step.slots[0] * step.spread(ofAverage);
  return descend(step, sum / updateDenominator(step, gradient));
}

/// `coefficient` * |parameter| / |direction|, rank 0; 1 if either norm is 0.
static Term getTrustRatio(const RuleStep &step, const Term &direction, double coefficient) {
  Term of = norm(step.parameter), by = norm(direction);
  Term isUsable =
      of.compare(loom::Direction::GT, 0).apply<loom::AndOp>(by.compare(loom::Direction::GT, 0));
  Term divisor = isUsable.select(by, by.splat(1));
  return isUsable.select(of * coefficient / divisor, of.splat(1));
}

static Term updateLamb(RuleStep &step) {
  Term direction = penalize(step, updateMoments(step, step.gradient));
  step.rate = step.rate * getTrustRatio(step, direction, 1);
  return descend(step, direction);
}

static Term updateLars(RuleStep &step) {
  Term direction = penalize(step, step.gradient);
  Term ratio = getTrustRatio(step, direction, step["trust"]);
  double momentum = step["momentum"];
  // Momentum includes the learning rate, so each gradient keeps the rate of its own step.
  Term change = direction * step.spread(ratio * step.rate);
  if (momentum == 0)
    return step.parameter - change;
  step.slots[0] = step.slots[0] * momentum + change;
  return step.parameter - (step["nesterov"] ? change + step.slots[0] * momentum : step.slots[0]);
}

static SmallVector<Slot> listLionSlots(const RuleNumbers &, RankedTensorType type) {
  return {{"m", type}};
}

static Term updateLion(RuleStep &step) {
  Term direction = blend(step.slots[0], step.gradient, step["beta1"]).apply<loom::SignOp>();
  step.slots[0] = blend(step.slots[0], step.gradient, step["beta2"]);
  return descend(step, penalize(step, direction));
}

//===----------------------------------------------------------------------===//
// Adafactor
//===----------------------------------------------------------------------===//

/// The two largest dimensions, the last of equal ones, if both are long enough to be factored.
struct FactoredDims {
  int64_t second, largest;
};
static std::optional<FactoredDims> findFactoredDims(const RuleNumbers &numbers,
                                                    ArrayRef<int64_t> shape) {
  SmallVector<int64_t> dims(shape.size());
  std::iota(dims.begin(), dims.end(), 0);
  llvm::stable_sort(dims, [&](int64_t a, int64_t b) { return shape[a] < shape[b]; });
  if (dims.size() < 2 || static_cast<double>(shape[dims.end()[-2]]) < numbers["min_factored"])
    return std::nullopt;
  return FactoredDims{dims.end()[-2], dims.end()[-1]};
}

static SmallVector<Slot> listAdafactorSlots(const RuleNumbers &numbers, RankedTensorType type) {
  SmallVector<Slot> slots;
  if (auto dims = findFactoredDims(numbers, type.getShape())) {
    RankedTensorType row = RankedTensorType::Builder(type).dropDim(dims->largest);
    RankedTensorType column = RankedTensorType::Builder(type).dropDim(dims->second);
    slots = {{"v_row", row}, {"v_column", column}};
  } else {
    slots = {{"v", type}};
  }
  if (numbers["momentum"])
    slots.push_back({"m", type});
  return slots;
}

/// The gradient divided by the root of the average of its square: of the average itself, or of the
/// product of averages along two dimensions.
static Term normalize(RuleStep &step) {
  // New values get the weight step ^ -decay_rate: 1 in the first step.
  Term share = (step.step.apply<loom::LogOp>() * -step["decay_rate"]).apply<loom::ExpOp>();
  auto update = [&](Term &average, const Term &value) {
    average = average + (value - average) * spread(share, value.getType());
  };
  Term power = square(step.gradient) + step["eps"];
  auto dims = findFactoredDims(step.numbers, power.getShape());
  if (!dims) {
    update(step.slots[0], power);
    return step.gradient * step.slots[0].apply<loom::RsqrtOp>();
  }
  Term &row = step.slots[0], &column = step.slots[1];
  update(row, mean(power, {dims->largest}));
  update(column, mean(power, {dims->second}));
  int64_t dim = dims->second - (dims->second > dims->largest ? 1 : 0);
  Term whole = root(mean(row, {dim})).repeat(row.getShape(), {dim});
  Term ofRow = (whole * row.apply<loom::RsqrtOp>()).repeat(power.getShape(), {dims->largest});
  Term ofColumn = column.apply<loom::RsqrtOp>().repeat(power.getShape(), {dims->second});
  return step.gradient * ofRow * ofColumn;
}

static Term updateAdafactor(RuleStep &step) {
  Term direction = normalize(step);
  Term factor = step.rate;
  if (double limit = step["clip"]) {
    Term excess = rootMeanSquare(direction) * (1 / limit);
    factor = factor / excess.apply<loom::MaximumOp>(excess.splat(1));
  }
  if (step["scale_by_parameter"]) {
    constexpr double kSmallest = 1e-3; // so that zeros can change
    Term size = rootMeanSquare(step.parameter);
    factor = factor * size.apply<loom::MaximumOp>(size.splat(kSmallest));
  }
  Term change = direction * step.spread(factor);
  if (double momentum = step["momentum"])
    change = step.slots.back() = blend(step.slots.back(), change, momentum);
  return step.parameter - penalize(step, change);
}

//===----------------------------------------------------------------------===//
// The table
//===----------------------------------------------------------------------===//

static std::vector<RuleSetting> listAdamSettings(std::optional<double> rate, double eps,
                                                 double weightDecay) {
  return {{"lr", RuleSetting::Rate, rate},
          {"beta1", RuleSetting::Share, 0.9},
          {"beta2", RuleSetting::Share, 0.999},
          {"eps", RuleSetting::Positive, eps},
          {"weight_decay", RuleSetting::Rate, weightDecay}};
}

static std::vector<RuleSetting> listNadamSettings() {
  std::vector<RuleSetting> settings = listAdamSettings(2e-3, 1e-8, 0);
  settings.push_back({"momentum_decay", RuleSetting::Rate, 4e-3});
  return settings;
}

static std::vector<Rule> listTorchRules() {
  using S = RuleSetting;
  return {{"sgd",
           "PyTorch",
           {{"lr", S::Rate, 1e-3},
            {"momentum", S::Share, 0},
            {"dampening", S::Share, 0},
            {"nesterov", S::Flag, false},
            {"weight_decay", S::Rate, 0}},
           listSgdSlots,
           updateSgd},
          {"adam", "PyTorch", listAdamSettings(1e-3, 1e-8, 0), listMoments, updateAdam},
          {"adamw", "PyTorch", listAdamSettings(1e-3, 1e-8, 1e-2), listMoments, updateAdamw},
          {"nadam", "PyTorch", listNadamSettings(), listMoments, updateNadam},
          {"adagrad",
           "PyTorch",
           {{"lr", S::Rate, 1e-2},
            {"lr_decay", S::Rate, 0},
            {"initial", S::Rate, 0},
            {"eps", S::Positive, 1e-10},
            {"weight_decay", S::Rate, 0}},
           listAdagradSlots,
           updateAdagrad},
          {"rmsprop",
           "PyTorch",
           {{"lr", S::Rate, 1e-2},
            {"alpha", S::Share, 0.99},
            {"eps", S::Positive, 1e-8},
            {"momentum", S::Share, 0},
            {"centered", S::Flag, false},
            {"weight_decay", S::Rate, 0}},
           listRmspropSlots,
           updateRmsprop},
          {"adadelta",
           "PyTorch",
           {{"lr", S::Rate, 1},
            {"rho", S::Share, 0.9},
            {"eps", S::Positive, 1e-6},
            {"weight_decay", S::Rate, 0}},
           listAdadeltaSlots,
           updateAdadelta}};
}

static std::vector<Rule> listOptaxRules() {
  using S = RuleSetting;
  return {{"lamb", "optax", listAdamSettings(std::nullopt, 1e-6, 0), listMoments, updateLamb},
          {"lars",
           "optax",
           {{"lr", S::Rate, std::nullopt},
            {"momentum", S::Share, 0.9},
            {"nesterov", S::Flag, false},
            {"trust", S::Rate, 1e-3},
            {"weight_decay", S::Rate, 0}},
           listSgdSlots,
           updateLars},
          {"adafactor",
           "optax",
           {{"lr", S::Rate, std::nullopt},
            {"decay_rate", S::Share, 0.8},
            {"clip", S::Rate, 1},
            {"scale_by_parameter", S::Flag, true},
            {"min_factored", S::Size, 128},
            {"eps", S::Positive, 1e-30},
            {"momentum", S::Share, 0},
            {"weight_decay", S::Rate, 0}},
           listAdafactorSlots,
           updateAdafactor},
          {"lion",
           "optax",
           {{"lr", S::Rate, std::nullopt},
            {"beta1", S::Share, 0.9},
            {"beta2", S::Share, 0.99},
            {"weight_decay", S::Rate, 1e-3}},
           listLionSlots,
           updateLion}};
}

ArrayRef<Rule> gridloom::train::getRules() {
  static const std::vector<Rule> rules = [] {
    std::vector<Rule> all = listTorchRules();
    llvm::append_range(all, listOptaxRules());
    return all;
  }();
  return rules;
}
