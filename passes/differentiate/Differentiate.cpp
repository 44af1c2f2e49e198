//===- Differentiate.cpp - gradients as outputs ---------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/differentiate/Differentiate.h"

#include "dialects/loom/Control.h"
#include "dialects/loom/Derivatives.h"
#include "dialects/loom/NamePattern.h"
#include "passes/differentiate/Pullbacks.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace gridloom;

namespace gridloom {
#define GEN_PASS_DEF_DIFFERENTIATE
#include "passes/differentiate/Passes.h.inc"
} // namespace gridloom

namespace {

bool isFloat(Value value) { return isa<FloatType>(getElementTypeOrSelf(value)); }

/// Whether a result of the operation may change with its operands as a derivative sees it.
bool carriesDerivative(Operation *op) {
  auto derivative = dyn_cast<DerivativeInterface>(op);
  return !derivative || !derivative.isFlat();
}

/// One function that is differentiated.
class Gradient {
public:
  Gradient(func::FuncOp function, StringRef of, ArrayRef<std::string> patterns)
      : function(function), of(of), patterns(patterns) {}

  /// Fails with a diagnostic.
  LogicalResult run();

private:
  std::optional<unsigned> findOutput();
  LogicalResult findSources();
  void findVaried();
  LogicalResult checkUsed(Value loss);
  LogicalResult addOutputs(Adjoints &adjoints);
  bool isWanted(StringRef name, bool isWeight) const;
  bool readsInside(Operation *op) const;
  bool isTaken(StringRef name);
  StringRef getName(unsigned result) {
    auto name = function.getResultAttrOfType<StringAttr>(result, loom::kName);
    return name ? name.getValue() : "";
  }
  StringRef getName(BlockArgument argument) {
    auto name = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), loom::kName);
    return name ? name.getValue() : "";
  }

  func::FuncOp function;
  StringRef of;
  ArrayRef<std::string> patterns;
  /// Weights and inputs by name, with all values that have it.
  llvm::MapVector<StringAttr, SmallVector<Value>> sources;
  llvm::DenseSet<Value> varied;
  /// Operations that a change of a source reaches the output through, last first.
  SmallVector<Operation *> path;
};

std::optional<unsigned> Gradient::findOutput() {
  std::string names;
  for (unsigned i = 0; i < function.getNumResults(); ++i) {
    if (getName(i) == of)
      return i;
    names += (i ? "', '" : "'") + getName(i).str();
  }
  function.emitError("'") << of << "' is not an output of the model; its outputs are " << names
                          << "'";
  return std::nullopt;
}

bool Gradient::isWanted(StringRef name, bool isWeight) const {
  if (patterns.empty())
    return isWeight;
  return llvm::any_of(patterns,
                      [&](const std::string &each) { return matchesPattern(each, name); });
}

/// Whether a body that the operation runs reads a weight that is asked for.
bool Gradient::readsInside(Operation *op) const {
  return llvm::any_of(loom::getBodies(op), [&](const loom::BodyLink &link) {
    return llvm::any_of(func::FuncOp(link.body).front(), [&](Operation &inner) {
      auto weight = dyn_cast<loom::GetWeightOp>(inner);
      return weight ? isFloat(weight) && isWanted(weight.getName(), /*isWeight=*/true)
                    : readsInside(&inner);
    });
  });
}

LogicalResult Gradient::findSources() {
  for (BlockArgument argument : function.getArguments())
    if (isFloat(argument) && isWanted(getName(argument), /*isWeight=*/false))
      sources[StringAttr::get(function.getContext(), getName(argument))].push_back(argument);
  for (auto weight : function.getOps<loom::GetWeightOp>())
    if (isFloat(weight) && isWanted(weight.getName(), /*isWeight=*/true))
      sources[StringAttr::get(function.getContext(), weight.getName())].push_back(weight);
  bool areInside = llvm::any_of(function.front(), [&](Operation &op) { return readsInside(&op); });
  for (const std::string &pattern : patterns)
    if (!areInside && llvm::none_of(sources, [&](const auto &source) {
          return matchesPattern(pattern, source.first.getValue());
        }))
      return function.emitError("no float weight or input is called '")
             << pattern << "'; weights of one element are constants of the program";
  if (sources.empty() && !areInside)
    return function.emitError("the model has no float weights to differentiate by; name inputs");
  return success();
}

void Gradient::findVaried() {
  for (const auto &[name, values] : sources)
    varied.insert(values.begin(), values.end());
  for (Operation &op : function.front().without_terminator()) {
    bool reads = llvm::any_of(op.getOperands(), [&](Value each) { return varied.contains(each); });
    if ((!reads && !readsInside(&op)) || !carriesDerivative(&op))
      continue;
    for (Value result : op.getResults())
      if (isFloat(result))
        varied.insert(result);
  }
}

/// Finds what leads to the output; refuses what has no derivative.
LogicalResult Gradient::checkUsed(Value loss) {
  llvm::DenseSet<Value> used = {loss};
  for (Operation &op : llvm::reverse(function.front().without_terminator())) {
    bool isOnPath = llvm::any_of(
        op.getResults(), [&](Value each) { return used.contains(each) && varied.contains(each); });
    if (!isOnPath || isa<loom::GetWeightOp>(op))
      continue;
    auto derivative = dyn_cast<DerivativeInterface>(&op);
    StringRef obstacle = derivative ? derivative.findObstacle() : op.getName().getStringRef();
    if (!obstacle.empty())
      return op.emitError("output '") << of << "' depends on weights through it, and " << obstacle
                                      << " has no derivative yet";
    path.push_back(&op);
    used.insert(op.operand_begin(), op.operand_end());
  }
  for (const auto &[name, values] : sources)
    if (llvm::any_of(values, [&](Value each) { return used.contains(each); }))
      return success();
  return function.emitError("output '") << of
                                        << "' depends on none of the weights and inputs it is "
                                           "to be differentiated by";
}

/// Whether an output or input has the name.
bool Gradient::isTaken(StringRef name) {
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    if (getName(i) == name)
      return true;
  return llvm::any_of(function.getArguments(),
                      [&](BlockArgument argument) { return getName(argument) == name; });
}

/// Each source that the output depends on has its gradient as an output, the sum over all values of
/// its name.
LogicalResult Gradient::addOutputs(Adjoints &adjoints) {
  MLIRContext *context = function.getContext();
  Operation *end = function.front().getTerminator();
  SmallVector<Value> results(end->getOperands());
  for (const auto &[name, values] : sources) {
    adjoints.enter(name);
    std::optional<Term> sum;
    for (Value value : values)
      if (Value gradient = adjoints.get(value)) {
        Term term = adjoints.term(gradient);
        sum = sum ? *sum + term : term;
      }
    if (!sum && llvm::is_contained(patterns, name.getValue()))
      return function.emitError("output '")
             << of << "' does not depend on '" << name.getValue() << "'";
    if (!sum)
      continue;
    std::string added = name.str() + ".grad";
    if (isTaken(added))
      return function.emitError("'")
             << added << "' has the name of the gradient of '" << name.getValue() << "'; rename it";
    SmallVector<Attribute> dims(sum->getRank(), StringAttr::get(context, ""));
    Attribute names = ArrayAttr::get(context, dims);
    if (auto argument = dyn_cast<BlockArgument>(values.front()))
      if (Attribute given = function.getArgAttr(argument.getArgNumber(), loom::kDimNames))
        names = given;
    auto attributes = DictionaryAttr::get(context, {{loom::kName, StringAttr::get(context, added)},
                                                    {loom::kDimNames, names},
                                                    {loom::kGradient, UnitAttr::get(context)}});
    if (failed(function.insertResult(results.size(), sum->getType(), attributes)))
      return failure();
    results.push_back(*sum);
  }
  end->setOperands(results);
  return success();
}

LogicalResult Gradient::run() {
  std::optional<unsigned> output = findOutput();
  if (!output || failed(findSources()))
    return failure();
  Operation *end = function.front().getTerminator();
  Value loss = end->getOperand(*output);
  if (!isFloat(loss))
    return function.emitError("output '")
           << of << "' is " << getElementTypeOrSelf(loss) << "; only floats have gradients";
  // Beyond a length that data decide, elements are anything.
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    if (StringRef name = getName(i); name.consume_front(of) && name.consume_front(".dim"))
      return function.emitError("output '")
             << of << "' has as many elements as data say; sum them in the model, so that padding "
             << "has no part in the derivative";
  findVaried();
  if (failed(checkUsed(loss)))
    return failure();
  OpBuilder builder(end);
  Adjoints adjoints(builder, varied);
  adjoints.enter(of);
  adjoints.add(loss, [&] { return adjoints.term(loss).splat(1); });
  for (Operation *op : path) {
    Value cotangent = adjoints.get(op->getResult(0));
    if (!cotangent)
      continue;
    adjoints.enter(loom::getNodeName(op->getLoc()));
    cast<DerivativeInterface>(op).pullBack(cotangent, adjoints);
  }
  return addOutputs(adjoints);
}

struct DifferentiatePass : public gridloom::impl::DifferentiateBase<DifferentiatePass> {
  using DifferentiateBase::DifferentiateBase;

  void getDependentDialects(DialectRegistry &registry) const override {
    registerPullbacks(registry);
  }

  void runOnOperation() override {
    SmallVector<std::string> patterns(withRespectTo.begin(), withRespectTo.end());
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!loom::isBody(function) && failed(Gradient(function, of, patterns).run()))
        return signalPassFailure();
  }
};
} // namespace
