//===- TrainStep.cpp - a training step of a function ----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/train/TrainStep.h"

#include "dialects/loom/FullPrecision.h"
#include "dialects/loom/Parts.h"
#include "dialects/loom/Random.h"
#include "dialects/loom/Training.h"
#include "passes/differentiate/Gradients.h"
#include "passes/train/Pieces.h"
#include "passes/train/Selection.h"

#include "llvm/ADT/StringSet.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace gridloom;
using namespace gridloom::train;

static constexpr StringLiteral kRate = "learning_rate";
static constexpr StringLiteral kLossScale = "train/loss_scale", kGoodSteps = "train/good_steps";
static constexpr StringLiteral kLossScaleOutput = "loss_scale";

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
  void findStatistics();
  bool isFrozen(StringAttr statistic);
  LogicalResult findParameters(const Objective &objective);
  LogicalResult checkPieces(Pieces &pieces);
  LogicalResult checkNames();
  void beginLossScale(const Objective &objective, int64_t numPieces);
  Term getSeed(const Objective &objective, const Objective::Loss &loss) const;
  std::optional<Term> getUnscaling(const Objective &objective) const;
  LogicalResult addGradients(const Objective &objective);
  void buildScale(const Objective &objective);
  void updateLossScale(Results &results);
  void buildStep();
  Term addSlot(const Twine &name, const Slot &slot, StringAttr parameter);
  void addNext(Results &results, StringRef name, const Term &next, const Term &former);
  void buildUpdates(Results &results);
  void numberAttempts(Results &results);
  Term term(Value value, const Twine &node) {
    return {builder, NameLoc::get(builder.getStringAttr(node)), value};
  }
  static bool isOnlyLoss(const Objective &objective) { return objective.getLosses().size() == 1; }
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
  /// The next values of running statistics, by weight.
  llvm::MapVector<StringAttr, Value> statistics;
  llvm::MapVector<StringAttr, BlockArgument> parameters;
  llvm::MapVector<StringAttr, Value> gradients;
  std::optional<Term> rate, loss, norm; ///< floats []
  std::optional<Term> committed, step;  ///< i1 [], i64 []
  std::optional<LossScaleSpec::State> lossScale;
  double rowShare = 1; ///< a power of two: the share of the scale that the derivative of a sum gets
};

} // namespace

/// Running statistics are states that no gradient changes.
void StepBuilder::findStatistics() {
  statistics = train::findStatistics(function);
  for (const auto &[weight, next] : statistics)
    if (!isFrozen(weight))
      weights[weight] = loom::kStatistic;
}

bool StepBuilder::isFrozen(StringAttr statistic) {
  int64_t rank = cast<RankedTensorType>(statistics.lookup(statistic).getType()).getRank();
  return settings.rules.lookup({statistic.getValue(), rank}).isFrozen;
}

/// Finds the float weights that the losses depend on, without frozen ones.
LogicalResult StepBuilder::findParameters(const Objective &objective) {
  for (auto &[name, each] : groupReads(function, objective.getSums())) {
    loom::GetWeightOp weight = each.front();
    switch (decideFate(each, settings.rules, statistics)) {
    case Fate::Frozen:
    case Fate::Constant:
    case Fate::Statistic:
      continue;
    case Fate::Mixed:
      // A file may store a running statistic and a parameter of equal value once.
      return weight.emitError("weight '")
             << weight.getName()
             << "' is a running statistic of one node and a parameter of another: the file stores "
                "equal values once; export the model with training=TrainingMode.TRAINING, "
                "do_constant_folding=False, or with other initial values";
    case Fate::Narrow:
      return weight.emitError("weight '")
             << weight.getName() << "' is "
             << cast<RankedTensorType>(weight.getType()).getElementType()
             << "; parameters are f32 or f64: save the model so and compile it with --precision, "
                "or freeze the weight with --param";
    case Fate::Trained:
      weights[name] = loom::kParameter;
    }
  }
  if (llvm::none_of(weights, [](auto &each) { return each.second == loom::kParameter; }))
    return function.emitError(
        "the losses depend on no float weight that is not frozen; there is nothing to train");
  return success();
}

/// Adds the states of the loss scale. The derivative of a loss's sum is that of the mean times a
/// count, so it gets the scale divided by about the largest count, which makes it the mean's. A
/// power of two changes no digit.
void StepBuilder::beginLossScale(const Objective &objective, int64_t numPieces) {
  if (!settings.lossScale)
    return;
  auto add = [&](StringRef name, Type element) {
    auto type = RankedTensorType::get({}, element);
    return term(train::addState(function, name, type, loom::kCounter, {}), name);
  };
  Operation *before = builder.getInsertionPoint()->getPrevNode();
  lossScale = {settings.lossScale->begin(add(kLossScale, builder.getF32Type())), std::nullopt};
  loom::markFullPrecision(function.front(), before);
  if (settings.lossScale->isDynamic())
    lossScale->good = add(kGoodSteps, builder.getI64Type());
  const LossParts &first = objective.getLosses().front().parts;
  if (isOnlyLoss(objective))
    rowShare = std::exp2(-std::floor(
        std::log2(std::max(first.numRows, 1.0) *
                  static_cast<double>(objective.getLosses().front().isMean ? numPieces : 1))));
}

/// The cotangent of a loss's sum.
Term StepBuilder::getSeed(const Objective &objective, const Objective::Loss &loss) const {
  bool isOnly = isOnlyLoss(objective);
  Term seed = loss.parts.sum.splat(loss.factor * (isOnly ? rowShare : 1));
  if (lossScale)
    seed = seed * lossScale->scale.convert(seed.getType().getElementType());
  return isOnly ? seed : seed / Objective::getDivisor(loss.parts);
}

/// The factor that turns gradients into those of the mean without the scale; nullopt if they are
/// already.
std::optional<Term> StepBuilder::getUnscaling(const Objective &objective) const {
  if (!isOnlyLoss(objective))
    return lossScale ? std::optional(lossScale->scale.splat(1) / lossScale->scale) : std::nullopt;
  Term divisor = Objective::getDivisor(objective.getLosses().front().parts);
  if (lossScale)
    divisor = divisor * lossScale->scale.convert(divisor.getType().getElementType());
  return divisor.splat(1 / rowShare) / divisor;
}

/// Adds the gradients of a part of the batch to those of earlier parts. With one loss, gradients
/// are divided at the end, once per parameter; with several, where their derivatives begin.
LogicalResult StepBuilder::addGradients(const Objective &objective) {
  GradientSources sources;
  for (auto [name, argument] : parameters)
    if (!statistics.contains(name))
      sources[name] = {argument};
  SmallVector<Gradients::Seed> seeds;
  Operation *before = builder.getInsertionPoint()->getPrevNode();
  for (const Objective::Loss &loss : objective.getLosses())
    seeds.push_back({loss.parts.sum, getSeed(objective, loss)});
  loom::markFullPrecision(function.front(), before);
  auto built =
      Gradients(function, "the loss", sources).build(seeds, [](Operation *) { return false; });
  if (failed(built))
    return failure();
  for (auto [name, gradient] : *built) {
    Value &sum = gradients[name];
    Term more = term(gradient, name.getValue() + ".grad");
    bool isFirst = !sum;
    sum = isFirst ? gradient : Value(more.with(sum) + more);
    if (!isFirst)
      sum.getDefiningOp()->setAttr(loom::kAccumulates, name);
  }
  return success();
}

/// Builds the gradients of the mean, their norm, and whether the step is committed.
void StepBuilder::buildScale(const Objective &objective) {
  if (std::optional<Term> factor = getUnscaling(objective))
    for (auto &[name, gradient] : gradients) {
      Term sum = term(gradient, name.getValue() + ".update");
      gradient = sum * spread(sum.with(*factor), sum.getType());
    }
  for (auto [name, gradient] : gradients)
    if (Operation *op = gradient.getDefiningOp(); op && op->getNumResults() == 1)
      op->setAttr(loom::kGradientOf, name);
  SmallVector<Term> all;
  for (auto [name, gradient] : gradients)
    all.push_back(term(gradient, "train/gradient_norm"));
  norm = getGlobalNorm(all);
  loss = objective.getLoss();
  committed = isFinite(*norm).apply<loom::AndOp>(isFinite(*loss));
  if (!settings.clip)
    return;
  for (auto [entry, clipped] : llvm::zip_equal(gradients, settings.clip->apply(all, *norm)))
    entry.second = clipped;
}

/// Adds the learning rate and the number of this step.
void StepBuilder::buildStep() {
  rate = term(addSetting(function, kRate, scalar), "train/step");
  auto counter = RankedTensorType::get({}, builder.getI64Type());
  step = term(train::addState(function, "train/step", counter, loom::kCounter, {}), "train/step");
}

/// A state of the optimizer before this step; memory is zeros at first. What is computed from it is
/// named after the update that it is part of, so that --shard NAME means the state alone.
Term StepBuilder::addSlot(const Twine &name, const Slot &slot, StringAttr parameter) {
  bool isScalar = slot.type.getRank() == 0;
  Term state =
      term(addState(function, name.str(), slot.type, isScalar ? loom::kCounter : loom::kMoment,
                    slot.beginsAsParameter ? parameter : StringAttr()),
           parameter ? parameter.getValue() + ".update" : Twine("train/step"));
  if (slot.beginsAsParameter || slot.init == 0)
    return state;
  Term isFirst = step->compare(loom::Direction::EQ, 0).broadcast(state.getShape(), {});
  return isFirst.select(state.splat(slot.init), state);
}

/// Sets the next value of a state, which is the former one if the step is not committed.
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

/// Every attempt at a step draws other random numbers, whether it is committed or not.
void StepBuilder::numberAttempts(Results &results) {
  SmallVector<loom::RandomBitsOp> unnumbered;
  for (auto op : function.getOps<loom::RandomBitsOp>())
    if (!op.getIteration())
      unnumbered.push_back(op);
  if (unnumbered.empty())
    return;
  auto counter = RankedTensorType::get({}, builder.getI64Type());
  Term attempt =
      term(train::addState(function, "train/iteration", counter, loom::kCounter, {}), "train/step");
  for (loom::RandomBitsOp op : unnumbered)
    loom::setIteration(op, attempt);
  results.addState("train/iteration", attempt + 1);
}

void StepBuilder::updateLossScale(Results &results) {
  if (!lossScale)
    return;
  results.addOutput(kLossScaleOutput, lossScale->scale);
  LossScaleSpec::State next = settings.lossScale->update(*lossScale, *committed);
  results.addState(kLossScale, next.scale);
  if (next.good)
    results.addState(kGoodSteps, *next.good);
}

/// Requires that the batch can be computed in parts.
LogicalResult StepBuilder::checkPieces(Pieces &pieces) {
  int64_t count = pieces.getCount();
  if (count == 1)
    return success();
  for (const LossSpec &loss : settings.losses)
    if (loss.kind == LossSpec::Kind::Output)
      return function.emitError("--microbatches ")
             << count << ": output '" << loss.prediction
             << "' may be a mean or a sum over the batch; give the loss by its name, e.g. "
                "--loss 'cross_entropy(logits, labels)'";
  auto checkTarget = [&](StringRef text, StringRef target, StringRef prediction) {
    BlockArgument argument = loom::findArgument(function, target);
    return !argument || pieces.isCut(argument)
               ? success()
               : function.emitError("--microbatches ")
                     << count << ": '" << target << "' of '" << text
                     << "' does not begin with the batch that is cut; give output '" << prediction
                     << "' the dimensions of the model's inputs";
  };
  for (const LossSpec &loss : settings.losses)
    if (failed(checkTarget(loss.text, loss.target, loss.prediction)))
      return failure();
  for (const MetricSpec &metric : settings.metrics)
    if (failed(checkTarget(metric.text, metric.target, metric.prediction)))
      return failure();
  if (!statistics.empty())
    return function.emitError("--microbatches ")
           << count << ": '" << statistics.front().first.getValue()
           << "' is a statistic of the whole batch, which its parts do not have; leave "
              "--microbatches out, or export the model with its normalisations in evaluation mode";
  if (settings.losses.size() > 1)
    return function.emitError("--microbatches ")
           << count << " goes with one --loss, there are " << settings.losses.size();
  return success();
}

/// Requires that inputs and states have different names.
LogicalResult StepBuilder::checkNames() {
  llvm::StringSet<> names;
  for (BlockArgument argument : function.getArguments())
    if (StringRef name = loom::getArgumentName(argument); !names.insert(name).second)
      return function.emitError("two inputs or states of the training step are called '")
             << name << "'; rename the model's input or weight, or the target of the loss";
  return success();
}

LogicalResult StepBuilder::run() {
  findStatistics();
  Pieces pieces(function);
  Operation *last = function.front().getTerminator()->getPrevNode(); // of the model
  auto objective = buildObjective(function, builder, settings.losses, settings.metrics);
  if (failed(objective) || failed(findParameters(*objective)) || failed(checkPieces(pieces)))
    return failure();
  if (Operation *sum = pieces.findSum(objective->getSums(), last))
    sum->emitWarning("sums over the batch, of which --microbatches ")
        << pieces.getCount()
        << " gives it a part at a time: a step is not that of the whole batch, as without the "
           "option";
  parameters = makeStates(function, weights);
  pieces.widen();
  beginLossScale(*objective, pieces.getCount());
  const Objective first = *objective;
  if (failed(addGradients(*objective)))
    return failure();
  for (int64_t i = 1; i < pieces.getCount(); ++i) {
    Objective part = first.map(pieces.copy(i));
    if (failed(addGradients(part)))
      return failure();
    objective->accumulate(part);
  }
  if (pieces.getCount() > 1)
    function->setAttr(loom::kParts, builder.getI64IntegerAttr(pieces.getCount()));
  buildScale(*objective);
  buildStep();
  Results results(function);
  objective->addOutputs(results, *loss);
  results.addOutput("gradient_norm", norm->convert(builder.getF32Type()));
  results.addOutput("committed", committed->convert(builder.getF32Type()));
  updateLossScale(results);
  buildUpdates(results);
  for (auto [name, next] : statistics)
    if (!isFrozen(name))
      addNext(results, name, term(next, name.getValue() + ".update"),
              term(parameters[name], name.getValue() + ".update"));
  numberAttempts(results);
  Term next = *step + term(*committed, "train/step").convert(builder.getI64Type());
  results.addState("train/step", next);
  if (failed(checkNames()))
    return failure();
  results.commit();
  for (auto [name, role] : weights)
    trained.insert({name, role});
  return success();
}

LogicalResult train::buildTrainStep(func::FuncOp function, const TrainSettings &settings,
                                    Trained &trained) {
  return StepBuilder(function, settings, trained).run();
}
