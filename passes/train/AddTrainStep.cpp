//===- AddTrainStep.cpp - a training step and an evaluation ---------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/Control.h"
#include "passes/differentiate/Pullbacks.h"
#include "passes/train/Train.h"
#include "passes/train/TrainStep.h"

#include "mlir/IR/SymbolTable.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::train;

namespace gridloom {
#define GEN_PASS_DEF_ADDTRAINSTEP
#include "passes/train/Passes.h.inc"
} // namespace gridloom

namespace {
struct AddTrainStepPass : public gridloom::impl::AddTrainStepBase<AddTrainStepPass> {
  using AddTrainStepBase::AddTrainStepBase;

  void getDependentDialects(DialectRegistry &registry) const override {
    registerPullbacks(registry);
  }
  void runOnOperation() override;

private:
  FailureOr<TrainSettings> readSettings();
  LogicalResult checkRules(const TrainSettings &settings);
  LogicalResult checkControl();
  func::FuncOp copy(func::FuncOp function, StringRef entry);
  SmallVector<func::FuncOp> findFunctions(StringRef entry);
  LogicalResult addEvaluations(const TrainSettings &settings);
  ArrayAttr describeTargets(const TrainSettings &settings);
  void describeTraining(const TrainSettings &settings);
};
} // namespace

SmallVector<func::FuncOp> AddTrainStepPass::findFunctions(StringRef entry) {
  SmallVector<func::FuncOp> functions;
  for (auto function : getOperation().getOps<func::FuncOp>())
    if (auto called = function->getAttrOfType<StringAttr>(loom::kEntry);
        !loom::isBody(function) && called && called.getValue() == entry)
      functions.push_back(function);
  return functions;
}

/// Texts that cannot be read are errors of the command line, on the module.
template <typename Spec>
static LogicalResult read(ModuleOp module, ArrayRef<std::string> texts, SmallVector<Spec> &specs) {
  for (const std::string &text : texts) {
    std::string error;
    std::optional<Spec> spec = Spec::parse(text, error);
    if (!spec)
      return module.emitError() << error;
    specs.push_back(std::move(*spec));
  }
  return success();
}

FailureOr<TrainSettings> AddTrainStepPass::readSettings() {
  ModuleOp module = getOperation();
  TrainSettings settings;
  SmallVector<std::string> lossTexts(losses.begin(), losses.end());
  SmallVector<std::string> metricTexts(metrics.begin(), metrics.end());
  if (failed(read(module, lossTexts, settings.losses)) ||
      failed(read(module, metricTexts, settings.metrics)))
    return failure();
  std::string error;
  settings.optimizer = Optimizer::parse(optimizer, error);
  if (!settings.optimizer)
    return module.emitError() << error;
  if (!clip.empty()) {
    settings.clip = ClipSpec::parse(clip, error);
    if (!settings.clip)
      return module.emitError() << error;
  }
  SmallVector<std::string> texts(parameters.begin(), parameters.end());
  std::optional<ParameterRules> rules = ParameterRules::parse(texts, error);
  if (!rules)
    return module.emitError() << error;
  settings.rules = std::move(*rules);
  return settings;
}

/// Every text of --param is about some weight.
LogicalResult AddTrainStepPass::checkRules(const TrainSettings &settings) {
  SmallVector<ParameterName> names;
  for (auto weight : getOperation().getOps<loom::WeightOp>())
    names.push_back({weight.getSymName(), cast<RankedTensorType>(weight.getType()).getRank()});
  SmallVector<StringRef> unmatched = settings.rules.listUnmatched(names);
  if (unmatched.empty())
    return success();
  return getOperation().emitError("--param '")
         << unmatched.front() << "': no weight of the model has such a name";
}

/// Loops and branches read weights in functions of their own, and have no derivative.
LogicalResult AddTrainStepPass::checkControl() {
  WalkResult result = getOperation().walk([](Operation *op) {
    if (!loom::isControl(op))
      return WalkResult::advance();
    op->emitError("a ") << (isa<loom::WhileOp>(op) ? "loop" : "branch")
                        << " that is not unrolled cannot be trained; unroll it with --unroll N, or "
                           "export the model without it";
    return WalkResult::interrupt();
  });
  return failure(result.wasInterrupted());
}

func::FuncOp AddTrainStepPass::copy(func::FuncOp function, StringRef entry) {
  func::FuncOp copied = function.clone();
  SymbolTable symbols(getOperation());
  StringRef name = function.getSymName();
  copied.setSymName((entry + (name.consume_front(loom::kMain) ? name : "_" + name.str())).str());
  copied->setAttr(loom::kEntry, StringAttr::get(&getContext(), entry));
  symbols.insert(copied, Block::iterator(function));
  return copied;
}

LogicalResult AddTrainStepPass::addEvaluations(const TrainSettings &settings) {
  for (func::FuncOp function : findFunctions(loom::kMain)) {
    func::FuncOp evaluation = copy(function, loom::kEval);
    OpBuilder builder(evaluation.front().getTerminator());
    auto objective = buildObjective(evaluation, builder, settings.losses, settings.metrics);
    if (failed(objective))
      return failure();
    Results results(evaluation);
    objective->addOutputs(results, objective->getLoss());
    results.commit();
  }
  return success();
}

void AddTrainStepPass::runOnOperation() {
  ModuleOp module = getOperation();
  FailureOr<TrainSettings> settings = readSettings();
  if (failed(settings) || failed(checkRules(*settings)) || failed(checkControl()))
    return signalPassFailure();
  module->removeAttr(loom::kTrains);
  // Training steps come first: what is decided for several functions is decided there.
  if (findFunctions(loom::kTrainStep).empty())
    for (func::FuncOp function : findFunctions(loom::kMain))
      copy(function, loom::kTrainStep);
  if (failed(addEvaluations(*settings)))
    return signalPassFailure();
  Trained trained;
  for (func::FuncOp function : findFunctions(loom::kTrainStep))
    if (failed(buildTrainStep(function, *settings, trained)))
      return signalPassFailure();
  for (StringRef entry : {loom::kMain, loom::kEval})
    for (func::FuncOp function : findFunctions(entry))
      makeStates(function, trained);
  describeTraining(*settings);
}

/// The inputs that losses and metrics compare with, each with the label that all of them ignore, if
/// there is one: what fills a sample up can have it.
ArrayAttr AddTrainStepPass::describeTargets(const TrainSettings &settings) {
  llvm::MapVector<StringRef, std::optional<int64_t>> targets;
  SmallVector<func::FuncOp> functions = findFunctions(loom::kEval);
  auto add = [&](StringRef target, std::optional<int64_t> ignored) {
    if (target.empty() || functions.empty() || !loom::findArgument(functions.front(), target))
      return;
    auto [known, isNew] = targets.insert({target, ignored});
    if (!isNew && known->second != ignored)
      known->second = std::nullopt;
  };
  for (const LossSpec &loss : settings.losses)
    add(loss.target, loss.ignoreIndex);
  for (const MetricSpec &metric : settings.metrics)
    add(metric.target, metric.ignoreIndex);
  Builder builder(&getContext());
  SmallVector<Attribute> list;
  for (auto &[name, ignored] : targets) {
    SmallVector<NamedAttribute> entry = {builder.getNamedAttr("name", builder.getStringAttr(name))};
    if (ignored)
      entry.push_back(builder.getNamedAttr("ignored", builder.getI64IntegerAttr(*ignored)));
    list.push_back(builder.getDictionaryAttr(entry));
  }
  return builder.getArrayAttr(list);
}

/// What a plan says of its training.
void AddTrainStepPass::describeTraining(const TrainSettings &settings) {
  Builder builder(&getContext());
  SmallVector<StringRef> texts(losses.begin(), losses.end());
  SmallVector<NamedAttribute> attributes = {
      builder.getNamedAttr("learning_rate",
                           builder.getF64FloatAttr(settings.optimizer->getLearningRate())),
      builder.getNamedAttr("losses", builder.getStrArrayAttr(texts)),
      builder.getNamedAttr("optimizer", builder.getStringAttr(optimizer)),
      builder.getNamedAttr("targets", describeTargets(settings))};
  SmallVector<std::string> terms = Objective::getTermNames(losses.size());
  SmallVector<StringRef> names(terms.begin(), terms.end());
  if (!names.empty())
    attributes.push_back(builder.getNamedAttr("terms", builder.getStrArrayAttr(names)));
  getOperation()->setAttr(loom::kTraining, builder.getDictionaryAttr(attributes));
}
