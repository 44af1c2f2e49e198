//===- AddTrainStep.cpp - a training step and an evaluation ---------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/Control.h"
#include "dialects/loom/DrawAttr.h"
#include "dialects/loom/WeightUse.h"
#include "passes/differentiate/Pullbacks.h"
#include "passes/train/Selection.h"
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
  TrainOptions getOptions() const;
  LogicalResult checkControl();
  func::FuncOp copy(func::FuncOp function, StringRef entry);
  SmallVector<func::FuncOp> findFunctions(StringRef entry);
  LogicalResult addEvaluations(const TrainSettings &settings);
  ArrayAttr describeTargets(const TrainSettings &settings);
  void describeWeights(const TrainSettings &settings, const Trained &trained,
                       SmallVectorImpl<NamedAttribute> &told);
  void describeTraining(const TrainSettings &settings, const Trained &trained);
  void markTies(const Trained &trained);
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

TrainOptions AddTrainStepPass::getOptions() const {
  TrainOptions options;
  options.losses.assign(losses.begin(), losses.end());
  options.metrics.assign(metrics.begin(), metrics.end());
  options.parameters.assign(parameters.begin(), parameters.end());
  options.inits.assign(inits.begin(), inits.end());
  options.seed = seed;
  options.optimizer = optimizer;
  options.clip = clip;
  options.lossScale = lossScale;
  return options;
}

/// Refuses loops and branches, which read weights in functions of their own and have no derivative.
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

/// Records on parameters which weights are tied to them, from the module's attribute.
void AddTrainStepPass::markTies(const Trained &trained) {
  ModuleOp module = getOperation();
  Builder builder(&getContext());
  llvm::MapVector<StringAttr, SmallVector<Attribute>> ties;
  if (auto all = module->getAttrOfType<ArrayAttr>(loom::kTied))
    for (auto tie : all.getAsRange<DictionaryAttr>())
      ties[tie.getAs<StringAttr>("to")].push_back(
          builder.getDictionaryAttr({builder.getNamedAttr("name", tie.get("name")),
                                     builder.getNamedAttr("transposed", tie.get("transposed"))}));
  module->removeAttr(loom::kTied);
  for (auto function : module.getOps<func::FuncOp>())
    for (unsigned i = 0; i < function.getNumArguments(); ++i) {
      auto state = function.getArgAttrOfType<StringAttr>(i, loom::kState);
      auto found = state && trained.contains(state) ? ties.find(state) : ties.end();
      if (found != ties.end())
        function.setArgAttr(i, loom::kTied, builder.getArrayAttr(found->second));
    }
}

namespace {
/// Lets states begin with drawn numbers.
class Initializers {
public:
  Initializers(ModuleOp module, const TrainSettings &settings)
      : module(module), settings(settings) {
    if (!settings.inits.isEmpty())
      module.walk([&](loom::GetWeightOp read) {
        if (auto found = findFans(read))
          fans.try_emplace(read.getNameAttr().getAttr(), *found);
      });
  }

  /// States that begin as a parameter, such as its average, draw the same numbers.
  LogicalResult apply(const Trained &trained) {
    SmallVector<ParameterName> names;
    for (const auto &[name, role] : trained) {
      if (failed(resolve(name, role)))
        return failure();
      auto type = cast<RankedTensorType>(module.lookupSymbol<loom::WeightOp>(name).getType());
      names.push_back({name.getValue(), type.getRank()});
    }
    for (StringRef text : settings.inits.listUnmatched(names))
      module.emitWarning("--init '")
          << text << "' matches only weights that are not trained; they keep the model's values";
    for (auto function : module.getOps<func::FuncOp>())
      for (unsigned i = 0; i < function.getNumArguments(); ++i) {
        auto init = function.getArgAttrOfType<StringAttr>(i, loom::kInit);
        auto draw = init ? draws.find(init) : draws.end();
        if (draw == draws.end())
          continue;
        function.removeArgAttr(i, StringAttr::get(module.getContext(), loom::kInit));
        function.setArgAttr(i, loom::kDraw, draw->second);
      }
    return success();
  }

private:
  /// Running statistics can be set to a constant, but not drawn.
  LogicalResult resolve(StringAttr name, StringRef role) {
    auto weight = module.lookupSymbol<loom::WeightOp>(name);
    auto type = cast<RankedTensorType>(weight.getType());
    const InitRules::Rule *rule = settings.inits.lookup({name.getValue(), type.getRank()});
    if (!rule || (role != loom::kParameter && !rule->spec.isConstant()))
      return success();
    auto found = fans.find(name);
    if (rule->spec.needsFans() && found == fans.end())
      return weight.emitError("--init '")
             << rule->text << "': weight '" << name.getValue() << "' of " << type
             << " has fewer than two dimensions, and no fans; give it another distribution, e.g. "
                "--init 'rank<=1: zeros' behind this one";
    Draw draw = rule->spec.resolve(found == fans.end() ? Fans() : found->second);
    draw.seed = settings.seed;
    draw.stream = Draw::makeStream(name.getValue());
    draws[name] = loom::makeDrawAttr(module.getContext(), draw);
    return success();
  }

  ModuleOp module;
  const TrainSettings &settings;
  llvm::DenseMap<StringAttr, Fans> fans;
  llvm::DenseMap<StringAttr, DictionaryAttr> draws;
};
} // namespace

void AddTrainStepPass::runOnOperation() {
  ModuleOp module = getOperation();
  FailureOr<TrainSettings> settings = readSettings(module, getOptions());
  if (failed(settings) || failed(checkControl()))
    return signalPassFailure();
  module->removeAttr(loom::kTrains);
  // Training steps come first, since decisions for several functions are made in the first.
  if (findFunctions(loom::kTrainStep).empty())
    for (func::FuncOp function : findFunctions(loom::kMain))
      copy(function, loom::kTrainStep);
  if (failed(addEvaluations(*settings)))
    return signalPassFailure();
  Trained trained;
  Initializers initializers(module, *settings); // while reads show what weights are for
  for (func::FuncOp function : findFunctions(loom::kTrainStep)) {
    function->removeAttr(loom::kEvaluated);
    if (failed(buildTrainStep(function, *settings, trained)))
      return signalPassFailure();
  }
  for (StringRef entry : {loom::kMain, loom::kEval})
    for (func::FuncOp function : findFunctions(entry))
      makeStates(function, trained);
  if (failed(initializers.apply(trained)))
    return signalPassFailure();
  markTies(trained);
  describeTraining(*settings, trained);
}

/// The inputs that losses and metrics compare with, each with the label that all of them ignore, if
/// there is one: it can fill up incomplete samples.
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

/// Records how much is trained, and the weights that are not frozen but that no loss depends on,
/// which users may not expect.
void AddTrainStepPass::describeWeights(const TrainSettings &settings, const Trained &trained,
                                       SmallVectorImpl<NamedAttribute> &told) {
  Builder builder(&getContext());
  int64_t parameters = 0, elements = 0;
  SmallVector<StringRef> unreached;
  // Weights that a read can train, and those with a read that cannot: frozen ones and statistics,
  // which only the training step marks. A weight may be in both.
  llvm::DenseSet<StringAttr> open, closed;
  getOperation().walk([&](loom::GetWeightOp read) {
    if (read.use_empty())
      return;
    Fate fate = decideFate(read, settings.rules, {});
    bool isOpen = fate == Fate::Trained || fate == Fate::Narrow;
    (isOpen ? open : closed).insert(read.getNameAttr().getAttr());
  });
  for (auto weight : getOperation().getOps<loom::WeightOp>()) {
    auto type = cast<RankedTensorType>(weight.getType());
    auto found = trained.find(weight.getSymNameAttr());
    if (found != trained.end() && found->second == loom::kParameter) {
      ++parameters;
      elements += type.getNumElements();
    } else if (found == trained.end() && isa<FloatType>(type.getElementType()) &&
               type.getRank() > 0 && open.contains(weight.getSymNameAttr()) &&
               !closed.contains(weight.getSymNameAttr())) {
      unreached.push_back(weight.getSymName());
    }
  }
  told.push_back(builder.getNamedAttr("parameters", builder.getI64IntegerAttr(parameters)));
  told.push_back(builder.getNamedAttr("elements", builder.getI64IntegerAttr(elements)));
  if (!unreached.empty())
    told.push_back(builder.getNamedAttr("unreached", builder.getStrArrayAttr(unreached)));
}

/// Records what a plan says about its training.
void AddTrainStepPass::describeTraining(const TrainSettings &settings, const Trained &trained) {
  Builder builder(&getContext());
  SmallVector<StringRef> texts(losses.begin(), losses.end());
  SmallVector<NamedAttribute> told{
      builder.getNamedAttr("learning_rate",
                           builder.getF64FloatAttr(settings.optimizer->getLearningRate())),
      builder.getNamedAttr("losses", builder.getStrArrayAttr(texts)),
      builder.getNamedAttr("optimizer", builder.getStringAttr(optimizer)),
      builder.getNamedAttr("targets", describeTargets(settings))};
  SmallVector<std::string> terms = Objective::getTermNames(losses.size());
  SmallVector<StringRef> names(terms.begin(), terms.end());
  if (!names.empty())
    told.push_back(builder.getNamedAttr("terms", builder.getStrArrayAttr(names)));
  if (settings.lossScale)
    told.push_back(builder.getNamedAttr("least_loss_scale",
                                        builder.getF64FloatAttr(settings.lossScale->getMinimum())));
  describeWeights(settings, trained, told);
  getOperation()->setAttr(loom::kTraining, builder.getDictionaryAttr(told));
}
