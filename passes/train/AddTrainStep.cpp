//===- AddTrainStep.cpp - a training step and an evaluation ---------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/Control.h"
#include "dialects/loom/WeightUse.h"
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
  TrainOptions getOptions() const;
  LogicalResult checkControl();
  func::FuncOp copy(func::FuncOp function, StringRef entry);
  SmallVector<func::FuncOp> findFunctions(StringRef entry);
  LogicalResult addEvaluations(const TrainSettings &settings);
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

TrainOptions AddTrainStepPass::getOptions() const {
  TrainOptions options;
  options.losses.assign(losses.begin(), losses.end());
  options.metrics.assign(metrics.begin(), metrics.end());
  options.parameters.assign(parameters.begin(), parameters.end());
  options.optimizer = optimizer;
  options.clip = clip;
  return options;
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
  FailureOr<TrainSettings> settings = readSettings(module, getOptions());
  if (failed(settings) || failed(checkControl()))
    return signalPassFailure();
  module->removeAttr(loom::kTrains);
  // Training steps come first: what is decided for several functions is decided there.
  if (findFunctions(loom::kTrainStep).empty())
    for (func::FuncOp function : findFunctions(loom::kMain))
      copy(function, loom::kTrainStep);
  if (failed(addEvaluations(*settings)))
    return signalPassFailure();
  Trained trained;
  for (func::FuncOp function : findFunctions(loom::kTrainStep)) {
    function->removeAttr(loom::kEvaluated);
    if (failed(buildTrainStep(function, *settings, trained)))
      return signalPassFailure();
  }
  for (StringRef entry : {loom::kMain, loom::kEval})
    for (func::FuncOp function : findFunctions(entry))
      makeStates(function, trained);
  describeTraining(*settings);
}

/// What a plan says of its training.
void AddTrainStepPass::describeTraining(const TrainSettings &settings) {
  Builder builder(&getContext());
  SmallVector<StringRef> texts(losses.begin(), losses.end());
  SmallVector<NamedAttribute> attributes = {
      builder.getNamedAttr("learning_rate",
                           builder.getF64FloatAttr(settings.optimizer->getLearningRate())),
      builder.getNamedAttr("losses", builder.getStrArrayAttr(texts)),
      builder.getNamedAttr("optimizer", builder.getStringAttr(optimizer))};
  SmallVector<std::string> terms = Objective::getTermNames(losses.size());
  SmallVector<StringRef> names(terms.begin(), terms.end());
  if (!names.empty())
    attributes.push_back(builder.getNamedAttr("terms", builder.getStrArrayAttr(names)));
  getOperation()->setAttr(loom::kTraining, builder.getDictionaryAttr(attributes));
}
