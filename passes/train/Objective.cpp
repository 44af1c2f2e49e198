//===- Objective.cpp - the losses and metrics of a function ---------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/train/Objective.h"

#include "dialects/loom/FullPrecision.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::train;

namespace {
/// Finds the tensors of one function that losses and metrics name.
class ObjectiveBuilder {
public:
  ObjectiveBuilder(func::FuncOp function, OpBuilder &builder)
      : function(function), builder(builder) {}

  LogicalResult addLoss(const LossSpec &spec, Objective &objective);
  LogicalResult addMetric(const MetricSpec &spec, Objective &objective);

private:
  std::optional<Term> findPrediction(StringRef text, StringRef name);
  Term findTarget(StringRef name, unsigned prediction, RankedTensorType type, int64_t axis);
  void describeLabels(const LossSpec &spec, Value target, int64_t classes);
  Term term(Value value, StringRef text) {
    return {builder, NameLoc::get(builder.getStringAttr(text)), value};
  }
  LogicalResult fail(StringRef text, const Twine &error) {
    std::string what = ("'" + text + "'").str(), why = error.str();
    // A loss may be the name of an output alone.
    return function.emitError() << (StringRef(why).starts_with(what) ? "" : what + ": ") << why;
  }

  func::FuncOp function;
  OpBuilder &builder;
};
} // namespace

std::optional<Term> ObjectiveBuilder::findPrediction(StringRef text, StringRef name) {
  std::optional<unsigned> result = loom::findResult(function, name);
  if (!result) {
    (void)fail(text, loom::describeMissingOutput(function, name));
    return std::nullopt;
  }
  if (loom::hasDataLength(function, name)) {
    (void)fail(text, "output '" + name +
                         "' has as many elements as data say; reduce them in the model, so that "
                         "padding has no part in the loss");
    return std::nullopt;
  }
  return term(function.front().getTerminator()->getOperand(*result), "train/loss");
}

/// An output, an input, or a new input with the prediction's dimension names.
Term ObjectiveBuilder::findTarget(StringRef name, unsigned prediction, RankedTensorType type,
                                  int64_t axis) {
  if (std::optional<unsigned> result = loom::findResult(function, name))
    return term(function.front().getTerminator()->getOperand(*result), "train/loss");
  if (BlockArgument argument = loom::findArgument(function, name))
    return term(argument, "train/loss");
  SmallVector<StringRef> dims(type.getRank());
  if (auto named = function.getResultAttrOfType<ArrayAttr>(prediction, loom::kDimNames))
    for (int64_t i = 0, of = 0; i < type.getRank(); ++i, ++of) {
      // Labels lack the dimension of the classes.
      if (static_cast<int64_t>(named.size()) > type.getRank() && of == axis)
        ++of;
      dims[i] = cast<StringAttr>(named[of]).getValue();
    }
  return term(addInput(function, name, type, dims), "train/loss");
}

static int64_t getAxis(int64_t axis, const Term &prediction) {
  return axis < 0 ? axis + prediction.getRank() : axis;
}

/// Adds to an input's attributes that it holds labels of `classes` classes.
void ObjectiveBuilder::describeLabels(const LossSpec &spec, Value target, int64_t classes) {
  auto argument = dyn_cast<BlockArgument>(target);
  if (!argument)
    return;
  SmallVector<NamedAttribute> entries{
      builder.getNamedAttr("classes", builder.getI64IntegerAttr(classes)),
      builder.getNamedAttr("loss", builder.getStringAttr(spec.text))};
  if (spec.ignoreIndex)
    entries.push_back(
        builder.getNamedAttr("ignored", builder.getI64IntegerAttr(*spec.ignoreIndex)));
  SmallVector<Attribute> uses;
  if (auto known = function.getArgAttrOfType<ArrayAttr>(argument.getArgNumber(), loom::kLabels))
    llvm::append_range(uses, known);
  uses.push_back(builder.getDictionaryAttr(entries));
  function.setArgAttr(argument.getArgNumber(), loom::kLabels, builder.getArrayAttr(uses));
}

LogicalResult ObjectiveBuilder::addLoss(const LossSpec &spec, Objective &objective) {
  std::optional<Term> prediction = findPrediction(spec.text, spec.prediction);
  if (!prediction)
    return failure();
  std::string error;
  std::optional<Term> target;
  if (RankedTensorType type = getTargetType(spec, prediction->getType(), error))
    target = findTarget(spec.target, *loom::findResult(function, spec.prediction), type,
                        getAxis(spec.axis, *prediction));
  if (!error.empty())
    return function.emitError() << error;
  if (target && Value(*target) == Value(*prediction))
    return function.emitError() << "loss '" << spec.text << "': the target '" << spec.target
                                << "' is the output itself; name a new input or another tensor";
  std::optional<LossParts> parts = buildLoss(spec, *prediction, target, error);
  if (!parts)
    return function.emitError() << error;
  if (target && spec.kind == LossSpec::Kind::CrossEntropy)
    describeLabels(spec, *target, prediction->getShape()[getAxis(spec.axis, *prediction)]);
  objective.add(Objective::Loss{*parts, spec.factor, spec.isMean});
  return success();
}

LogicalResult ObjectiveBuilder::addMetric(const MetricSpec &spec, Objective &objective) {
  std::optional<Term> prediction = findPrediction(spec.text, spec.prediction);
  if (!prediction)
    return failure();
  std::string error;
  RankedTensorType type = getTargetType(spec, prediction->getType(), error);
  if (!type)
    return function.emitError() << error;
  Term target = findTarget(spec.target, *loom::findResult(function, spec.prediction), type,
                           getAxis(spec.axis, *prediction));
  std::optional<LossParts> parts = buildMetric(spec, *prediction, target, error);
  if (!parts)
    return function.emitError() << error;
  if (objective.hasMetric(spec.name))
    return fail(spec.text, "there are two metrics '" + spec.name + "'; leave one out");
  objective.add(Objective::Metric{spec.name, *parts});
  return success();
}

FailureOr<Objective> train::buildObjective(func::FuncOp function, OpBuilder &builder,
                                           ArrayRef<LossSpec> losses,
                                           ArrayRef<MetricSpec> metrics) {
  ObjectiveBuilder objectives(function, builder);
  Objective objective;
  Operation *before = function.front().getTerminator()->getPrevNode();
  for (const LossSpec &spec : losses)
    if (failed(objectives.addLoss(spec, objective)))
      return failure();
  for (const MetricSpec &spec : metrics)
    if (failed(objectives.addMetric(spec, objective)))
      return failure();
  loom::markFullPrecision(function.front(), before);
  return objective;
}

bool Objective::hasMetric(StringRef name) const {
  return llvm::any_of(metrics, [&](const Metric &metric) { return metric.name == name; });
}

SmallVector<Value> Objective::getSums() const {
  return llvm::map_to_vector(losses, [](const Loss &loss) { return Value(loss.parts.sum); });
}

Objective Objective::map(const IRMapping &mapping) const {
  auto mapParts = [&](const LossParts &parts) {
    return LossParts{parts.sum.with(mapping.lookupOrDefault(parts.sum)),
                     parts.count.with(mapping.lookupOrDefault(parts.count)), parts.numRows};
  };
  Objective mapped;
  for (const Loss &loss : losses)
    mapped.add(Loss{mapParts(loss.parts), loss.factor, loss.isMean});
  for (const Metric &metric : metrics)
    mapped.add(Metric{metric.name, mapParts(metric.parts)});
  return mapped;
}

static LossParts add(const LossParts &a, const LossParts &b) {
  return {a.sum + b.sum, a.count + b.count, a.numRows + b.numRows};
}

void Objective::accumulate(const Objective &other) {
  for (auto [mine, others] : llvm::zip_equal(losses, other.losses))
    mine.parts = mine.isMean ? ::add(mine.parts, others.parts)
                             : LossParts{mine.parts.sum + others.parts.sum, mine.parts.count, 1};
  for (auto [mine, others] : llvm::zip_equal(metrics, other.metrics))
    mine = {mine.name, ::add(mine.parts, others.parts)};
}

Term Objective::getDivisor(const LossParts &parts) {
  return parts.count.compare(loom::Direction::GT, 0).select(parts.count, parts.count.splat(1));
}

static Term getMean(const LossParts &parts) { return parts.sum / Objective::getDivisor(parts); }

/// The mean of a loss times its factor, as `element`.
static Term getTerm(const Objective::Loss &loss, Type element) {
  Term mean = getMean(loss.parts).convert(element);
  return loss.factor != 1 ? mean * loss.factor : mean;
}

Term Objective::getLoss() const {
  auto isDouble = [](const Loss &loss) {
    return loss.parts.sum.getType().getElementType().isF64();
  };
  MLIRContext *context = losses.front().parts.sum.getType().getContext();
  Type element = llvm::any_of(losses, isDouble) ? Type(Float64Type::get(context))
                                                : Type(Float32Type::get(context));
  std::optional<Term> total;
  for (const Loss &loss : losses) {
    Term term = getTerm(loss, element);
    total = total ? *total + term : term;
  }
  return *total;
}

SmallVector<std::string> Objective::getTermNames(size_t numLosses) {
  SmallVector<std::string> names;
  for (size_t i = 1; numLosses > 1 && i <= numLosses; ++i)
    names.push_back("loss." + std::to_string(i));
  return names;
}

void Objective::addOutputs(Results &results, const Term &loss) const {
  auto add = [&](const std::string &name, const Term &value) {
    results.addOutput(name, value.convert(Float32Type::get(value.getType().getContext())));
  };
  add("loss", loss);
  add("count", losses.front().parts.count);
  for (auto [name, term] : llvm::zip(getTermNames(losses.size()), losses)) {
    add(name, getTerm(term, loss.getType().getElementType()));
    add(name + ".count", term.parts.count);
  }
  for (const Metric &metric : metrics) {
    add(metric.name, getMean(metric.parts));
    add(metric.name + ".count", metric.parts.count);
  }
}
