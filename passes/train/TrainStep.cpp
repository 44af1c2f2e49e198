//===- TrainStep.cpp - a training step of a function ----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/train/TrainStep.h"

#include "passes/differentiate/Gradients.h"

#include <limits>

using namespace mlir;
using namespace gridloom;
using namespace gridloom::train;

static constexpr StringLiteral kRate = "learning_rate";

namespace {

/// Builds the step of one function, in order.
class StepBuilder {
public:
  StepBuilder(func::FuncOp function, const TrainSettings &settings, Trained &trained)
      : function(function), settings(settings), trained(trained),
        builder(function.front().getTerminator()),
        scalar(RankedTensorType::get({}, builder.getF32Type())) {}

  LogicalResult run();

private:
  LogicalResult findParameters(const Objective &objective);
  LogicalResult buildGradients(const Objective &objective);
  void buildScale(const Objective &objective);
  void buildStep();
  Term addSlot(const Twine &name, const Slot &slot, StringAttr parameter);
  void addNext(Results &results, StringRef name, const Term &next, const Term &former);
  void buildUpdates(Results &results);
  Term term(Value value, const Twine &node) {
    return {builder, NameLoc::get(builder.getStringAttr(node)), value};
  }
  /// `number` [] in every element of `type`.
  static Term fill(const Term &number, RankedTensorType type) {
    return number.broadcast(type.getShape(), {});
  }
  /// Whether a number is neither infinite nor NaN.
  static Term isFinite(const Term &number) {
    return number.apply<loom::AbsOp>().compare(loom::Direction::LT,
                                               std::numeric_limits<double>::infinity());
  }

  func::FuncOp function;
  const TrainSettings &settings;
  Trained &trained;
  OpBuilder builder;
  RankedTensorType scalar;
  Trained weights; ///< of this function
  llvm::MapVector<StringAttr, BlockArgument> parameters;
  llvm::MapVector<StringAttr, Value> gradients;
  std::optional<Term> rate, norm, committed, step; ///< f32 [], f32 [], i1 [], i64 []
};

} // namespace

/// Float weights that the losses depend on, but for frozen ones.
LogicalResult StepBuilder::findParameters(const Objective &objective) {
  llvm::DenseSet<Value> used;
  for (const Objective::Part &part : objective.parts)
    used.insert(part.sum);
  llvm::SmallVector<loom::GetWeightOp> found;
  for (Operation &op : llvm::reverse(function.front().without_terminator())) {
    if (llvm::none_of(op.getResults(), [&](Value each) { return used.contains(each); }) ||
        !carriesDerivative(&op))
      continue;
    if (auto weight = dyn_cast<loom::GetWeightOp>(op)) {
      if (loom::isFloatTensor(weight))
        found.push_back(weight);
      continue;
    }
    used.insert(op.operand_begin(), op.operand_end());
  }
  for (loom::GetWeightOp weight : llvm::reverse(found)) {
    auto type = cast<RankedTensorType>(weight.getType());
    if (settings.rules.lookup({weight.getName(), type.getRank()}).isFrozen ||
        weight->hasAttr(loom::kFrozen))
      continue;
    if (!type.getElementType().isF32() && !type.getElementType().isF64())
      return weight.emitError("weight '")
             << weight.getName() << "' is " << type.getElementType()
             << "; parameters are f32 or f64: save the model so and compile it with --precision, or "
                "freeze the weight with --param";
    weights[StringAttr::get(function.getContext(), weight.getName())] = loom::kParameter;
  }
  if (weights.empty())
    return function.emitError(
        "the losses depend on no float weight that is not frozen; there is nothing to train");
  return success();
}

LogicalResult StepBuilder::buildGradients(const Objective &objective) {
  GradientSources sources;
  for (auto [name, argument] : parameters)
    sources[name] = {argument};
  // One loss is divided at the end, once for each parameter.
  SmallVector<Gradients::Seed> seeds;
  for (const Objective::Part &part : objective.parts) {
    Term one = part.sum.splat(part.factor);
    seeds.push_back({part.sum, objective.parts.size() == 1 ? one : one / part.divisor});
  }
  auto built = Gradients(function, "the loss", sources).build(seeds, [](Operation *) {
    return false;
  });
  if (failed(built))
    return failure();
  gradients = std::move(*built);
  return success();
}

/// The gradients of the mean and their norm, and whether the step is taken.
void StepBuilder::buildScale(const Objective &objective) {
  std::optional<Term> mean;
  if (objective.parts.size() == 1)
    mean = objective.parts.front().divisor.splat(1) / objective.parts.front().divisor;
  for (auto &[name, gradient] : gradients)
    if (mean) {
      Term sum = term(gradient, name.getValue() + ".update");
      gradient = sum * fill(sum.with(mean->convert(sum.getType().getElementType())), sum.getType());
    }
  SmallVector<Term> all;
  for (auto [name, gradient] : gradients)
    all.push_back(term(gradient, "train/gradient_norm"));
  norm = getGlobalNorm(all);
  committed = isFinite(*norm).apply<loom::AndOp>(isFinite(*objective.loss));
  if (!settings.clip)
    return;
  for (auto [entry, clipped] : llvm::zip_equal(gradients, settings.clip->apply(all, *norm)))
    entry.second = clipped;
}

/// The rate of this step and its number.
void StepBuilder::buildStep() {
  rate = term(addSetting(function, kRate, scalar), "train/step");
  auto counter = RankedTensorType::get({}, builder.getI64Type());
  step = term(train::addState(function, "train/step", counter, loom::kCounter, {}), "train/step");
}

/// A state of the optimizer before this step. Memory is zeros at first. What is computed from it is
/// named as the update that it is part of, not as the state: --shard means by that the state alone.
Term StepBuilder::addSlot(const Twine &name, const Slot &slot, StringAttr parameter) {
  bool isScalar = slot.type.getRank() == 0;
  Term state = term(addState(function, name.str(), slot.type,
                             isScalar ? loom::kCounter : loom::kMoment,
                             slot.beginsAsParameter ? parameter : StringAttr()),
                    parameter ? parameter.getValue() + ".update" : Twine("train/step"));
  if (slot.beginsAsParameter || slot.init == 0)
    return state;
  Term isFirst = step->compare(loom::Direction::EQ, 0).broadcast(state.getShape(), {});
  return isFirst.select(state.splat(slot.init), state);
}

/// What the next value of a state is: where the step is not taken it keeps the former one.
void StepBuilder::addNext(Results &results, StringRef name, const Term &next, const Term &former) {
  Term taken = term(*committed, name).broadcast(former.getShape(), {});
  results.addState(name, taken.select(next, former));
}

void StepBuilder::buildUpdates(Results &results) {
  const Optimizer &optimizer = *settings.optimizer;
  Term number = (*step + 1).convert(builder.getF32Type());
  SmallVector<Term> shared;
  SmallVector<Slot> sharedSlots = optimizer.getSharedSlots(builder.getF32Type());
  for (const Slot &slot : sharedSlots)
    shared.push_back(addSlot("train/" + slot.name, slot, {}));
  Optimizer::Step now = {*rate, number, optimizer.updateShared(shared, number)};
  for (auto [slot, next, former] : llvm::zip_equal(sharedSlots, now.shared, shared))
    addNext(results, "train/" + slot.name, next, former);
  for (auto [name, gradient] : gradients) {
    Term parameter = term(parameters[name], name.getValue() + ".update");
    auto type = parameter.getType();
    SmallVector<Term> slots;
    SmallVector<Slot> kept = optimizer.getSlots(type);
    for (const Slot &slot : kept)
      slots.push_back(addSlot(name.getValue() + "/" + slot.name, slot, name));
    Optimizer::Values next =
        optimizer.update(parameter, parameter.with(gradient), slots, now,
                         settings.rules.lookup({name.getValue(), type.getRank()}));
    addNext(results, name, next.parameter, parameter);
    for (auto [slot, value, former] : llvm::zip_equal(kept, next.slots, slots))
      addNext(results, (name.getValue() + "/" + slot.name).str(), value, former);
  }
}

LogicalResult StepBuilder::run() {
  auto objective = buildObjective(function, builder, settings.losses, settings.metrics);
  if (failed(objective) || failed(findParameters(*objective)))
    return failure();
  if (findArgument(function, kRate))
    return function.emitError("the model has an input '")
           << kRate << "', as the training step has; rename it";
  parameters = makeStates(function, weights);
  if (failed(buildGradients(*objective)))
    return failure();
  buildScale(*objective);
  buildStep();
  Results results(function);
  objective->addOutputs(results);
  results.addOutput("gradient_norm", *norm);
  results.addOutput("committed", committed->convert(builder.getF32Type()));
  buildUpdates(results);
  Term next = *step + term(*committed, "train/step").convert(builder.getI64Type());
  results.addState("train/step", next);
  results.commit();
  for (auto [name, role] : weights)
    trained.insert({name, role});
  return success();
}

LogicalResult train::buildTrainStep(func::FuncOp function, const TrainSettings &settings,
                                    Trained &trained) {
  return StepBuilder(function, settings, trained).run();
}
