//===- Survey.cpp - what can be trained of a model ------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/train/Survey.h"

#include "dialects/loom/Control.h"
#include "dialects/loom/Training.h"
#include "dialects/loom/WeightUse.h"
#include "passes/differentiate/Gradients.h"
#include "passes/train/Selection.h"

#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::train;

namespace {

class Surveyor {
public:
  Surveyor(ModuleOp module, TrainSettings settings, TrainSurvey &survey)
      : module(module), settings(std::move(settings)), survey(survey) {}

  LogicalResult run();

private:
  LogicalResult chooseLosses();
  LogicalResult setLosses(ArrayRef<std::string> texts);
  void guessLoss();
  void findReaders();
  void addBlocks();
  void addWeight(loom::WeightOp weight);
  std::string findObstacle(loom::WeightOp weight);

  ModuleOp module;
  TrainSettings settings;
  TrainSurvey &survey;
  func::FuncOp function; ///< the model as it is trained, with the losses
  SmallVector<Value> sums;
  llvm::MapVector<StringAttr, Value> statistics;
  /// Reads by weight: all of the function, and those that the losses depend on.
  llvm::MapVector<StringAttr, SmallVector<loom::GetWeightOp>> reads, reached;
  llvm::DenseSet<StringAttr> insideBodies;
  llvm::MapVector<StringAttr, std::string> blocked; ///< weights without a gradient, and why
};

} // namespace

/// The first function of the model as it is trained, else as it is run.
static func::FuncOp findTrained(ModuleOp module) {
  func::FuncOp found;
  for (auto function : module.getOps<func::FuncOp>()) {
    auto entry = function->getAttrOfType<StringAttr>(loom::kEntry);
    if (!entry || loom::isBody(function))
      continue;
    if (loom::isTrainStep(function))
      return function;
    if (!found && entry.getValue() == loom::kMain)
      found = function;
  }
  return found;
}

//===----------------------------------------------------------------------===//
// Losses
//===----------------------------------------------------------------------===//

static bool isOfWeight(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    if (!isa<loom::BroadcastOp, loom::ReshapeOp, loom::TransposeOp, loom::ConvertOp>(op))
      break;
    value = op->getOperand(0);
  }
  return value.getDefiningOp<loom::GetWeightOp>() || matchPattern(value, m_Constant());
}

/// The operation that computes a value's elements, before they are moved and a bias is added.
static Operation *findMaker(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    if (isa<loom::ReshapeOp, loom::TransposeOp, loom::ConvertOp, loom::SliceOp>(op))
      value = op->getOperand(0);
    else if (isa<loom::AddOp>(op) && isOfWeight(op->getOperand(0)))
      value = op->getOperand(1);
    else if (isa<loom::AddOp>(op) && isOfWeight(op->getOperand(1)))
      value = op->getOperand(0);
    else
      return op;
  }
  return nullptr;
}

static bool isProductWithWeight(Operation *op) {
  auto product = dyn_cast_or_null<loom::DotGeneralOp>(op);
  return product && (isOfWeight(product.getLhs()) || isOfWeight(product.getRhs()));
}

/// A name derived from `name` that no input or output has.
static std::string findFreeName(func::FuncOp function, std::string name) {
  while (loom::findArgument(function, name) || loom::findResult(function, name))
    name += "_";
  return name;
}

/// An output's name in a call, quoted if necessary.
static std::string quoteWord(StringRef name) {
  return name.find_first_of(" (),='") == StringRef::npos ? name.str() : "'" + name.str() + "'";
}

/// Classes come from a product with a weight; probabilities and embeddings do not. If several
/// outputs qualify, guesses none.
void Surveyor::guessLoss() {
  SmallVector<std::string> logits, numbers;
  std::string probabilities;
  for (auto [i, value] : llvm::enumerate(function.front().getTerminator()->getOperands())) {
    if (!loom::isFloatTensor(value) || function.getResultAttr(i, loom::kUpdates))
      continue;
    std::string name = quoteWord(loom::getResultName(function, i));
    survey.anyLosses.push_back("output(" + name + ")");
    ArrayRef<int64_t> shape = cast<RankedTensorType>(value.getType()).getShape();
    Operation *maker = findMaker(value);
    if (shape.empty())
      numbers.push_back(name);
    else if (shape.size() >= 2 && shape.back() >= 2 && isProductWithWeight(maker))
      logits.push_back(name);
    else if (isa_and_nonnull<loom::SoftmaxOp>(maker))
      probabilities = name;
  }
  survey.isLossGuessed = true;
  if (numbers.size() == 1) {
    survey.losses = {"output(" + numbers.front() + ")"};
    survey.lossRemark = "output " + numbers.front() + " is one number; taken for the loss";
  } else if (logits.size() == 1 && numbers.empty()) {
    std::string labels = findFreeName(function, "labels");
    survey.losses = {"cross_entropy(" + logits.front() + ", " + labels + ")"};
    survey.lossRemark = "output " + logits.front() + " is a product with a weight; its last " +
                        "dimension is taken for classes. For numbers instead: 'mse(" +
                        logits.front() + ", target)'";
  } else if (!probabilities.empty() && logits.empty()) {
    survey.lossRemark = "output " + probabilities + " is a softmax; losses take what goes into " +
                        "it: export the model without it and give 'cross_entropy(OUTPUT, labels)'";
  } else {
    survey.lossRemark = "the outputs do not tell the loss; give 'cross_entropy(OUTPUT, labels)', "
                        "'mse(OUTPUT, target)', 'bce(OUTPUT, target)', or the name of an output "
                        "that is the loss";
  }
}

LogicalResult Surveyor::setLosses(ArrayRef<std::string> texts) {
  for (const std::string &text : texts) {
    std::string error;
    std::optional<LossSpec> spec = LossSpec::parse(text, error);
    if (!spec)
      return module.emitError() << error;
    settings.losses.push_back(std::move(*spec));
  }
  return success();
}

LogicalResult Surveyor::chooseLosses() {
  if (!settings.losses.empty()) {
    for (const LossSpec &loss : settings.losses)
      survey.losses.push_back(loss.text);
    return success();
  }
  guessLoss();
  if (survey.anyLosses.empty())
    return function.emitError("no output is a float; there is nothing to train by");
  return setLosses(survey.losses.empty() ? survey.anyLosses : survey.losses);
}

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

void Surveyor::findReaders() {
  for (auto read : function.getOps<loom::GetWeightOp>())
    reads[read.getNameAttr().getAttr()].push_back(read);
  reached = groupReads(function, sums);
  module.walk([&](loom::GetWeightOp read) {
    if (loom::isBody(read->getParentOfType<func::FuncOp>()))
      insideBodies.insert(read.getNameAttr().getAttr());
  });
}

/// Adds the operations without a derivative that training would refuse, and the weights behind.
void Surveyor::addBlocks() {
  GradientSources sources;
  auto isTrained = [&](loom::GetWeightOp read) {
    return decideFate(read, settings.rules, statistics) == Fate::Trained;
  };
  for (const auto &[name, each] : reached)
    for (loom::GetWeightOp read : each)
      if (isTrained(read))
        sources[name].push_back(read);
  Gradients gradients(function, "the loss", sources);
  for (const Gradients::Obstacle &obstacle :
       gradients.findObstacles(sums, [](Operation *) { return false; })) {
    TrainSurvey::Block block{loom::getNodeName(obstacle.op->getLoc()), obstacle.what.str(), {}};
    for (loom::GetWeightOp read : findReads(function, llvm::to_vector(obstacle.op->getOperands())))
      if (isTrained(read) &&
          blocked.insert({read.getNameAttr().getAttr(), block.node + "' (" + block.what + ")"})
              .second)
        block.weights.push_back(read.getName().str());
    survey.blocks.push_back(std::move(block));
  }
}

/// Why a weight stays as it is; empty if it is trained.
std::string Surveyor::findObstacle(loom::WeightOp weight) {
  StringAttr name = weight.getSymNameAttr();
  Type element = cast<RankedTensorType>(weight.getType()).getElementType();
  if (!isa<FloatType>(element))
    return "integers or quantised";
  auto found = reached.find(name);
  if (found == reached.end())
    return statistics.contains(name)                       ? "running statistic"
           : insideBodies.contains(name)                   ? "read inside a loop or branch"
           : survey.isLossGuessed && survey.losses.empty() ? "no output depends on it"
                                                           : "no loss depends on it";
  switch (decideFate(found->second, settings.rules, statistics)) {
  case Fate::Frozen:
    return "--param";
  case Fate::Constant:
    return "a Constant node, not an initializer";
  case Fate::Statistic:
    return "running statistic";
  case Fate::Mixed:
    return "a running statistic of one node and a parameter of another, which is refused";
  case Fate::Narrow: {
    std::string text;
    llvm::raw_string_ostream(text) << "of " << element << "; parameters are f32 or f64";
    return text;
  }
  case Fate::Trained:
    break;
  }
  auto block = blocked.find(name);
  return block == blocked.end()
             ? ""
             : "its readers lead to node '" + block->second + ", which has no derivative";
}

void Surveyor::addWeight(loom::WeightOp weight) {
  auto type = cast<RankedTensorType>(weight.getType());
  auto used = reads.find(weight.getSymNameAttr());
  TrainSurvey::Weight each;
  each.name = weight.getSymName().str();
  each.role = used == reads.end() ? "other" : describeUse(used->second);
  each.obstacle = findObstacle(weight);
  each.elements = type.getNumElements();
  each.bytes = loom::getByteSize(type);
  if (each.obstacle.empty())
    for (const Slot &slot : settings.optimizer->getSlots(type))
      each.slotBytes += loom::getByteSize(slot.type);
  survey.weights.push_back(std::move(each));
}

LogicalResult Surveyor::run() {
  func::FuncOp original = findTrained(module);
  if (!original)
    return module.emitError("there is no function to train");
  OwningOpRef<func::FuncOp> copy = original.clone();
  function = *copy;
  if (failed(chooseLosses()))
    return failure();
  OpBuilder builder(function.front().getTerminator());
  auto objective = buildObjective(function, builder, settings.losses, settings.metrics);
  if (failed(objective))
    return failure();
  sums = objective->getSums();
  statistics = findStatistics(function);
  findReaders();
  addBlocks();
  for (auto weight : module.getOps<loom::WeightOp>())
    addWeight(weight);
  module.walk([&](Operation *op) {
    std::string node = loom::getNodeName(op->getLoc());
    if (loom::isControl(op) && !llvm::is_contained(survey.controls, node))
      survey.controls.push_back(std::move(node));
  });
  if (auto ties = module->getAttrOfType<ArrayAttr>(loom::kTied))
    for (auto tie : ties.getAsRange<DictionaryAttr>())
      survey.ties.push_back({tie.getAs<StringAttr>("name").str(), tie.getAs<StringAttr>("to").str(),
                             tie.getAs<BoolAttr>("transposed").getValue()});
  if (auto evaluated = original->getAttrOfType<ArrayAttr>(loom::kEvaluated))
    for (auto node : evaluated.getAsRange<DictionaryAttr>())
      survey.evaluated.push_back(
          {node.getAs<StringAttr>("op").str(), node.getAs<StringAttr>("node").str()});
  return success();
}

LogicalResult train::surveyTraining(ModuleOp module, const TrainSettings &settings,
                                    TrainSurvey &survey) {
  return Surveyor(module, settings, survey).run();
}
