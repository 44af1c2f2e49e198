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
  StringRef getName(unsigned result) {
    return function.getResultAttrOfType<StringAttr>(result, loom::kName).getValue();
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
  return llvm::any_of(patterns, [&](const std::string &each) {
    return each == name || matchesPattern(each, name);
  });
}

LogicalResult Gradient::findSources() {
  for (BlockArgument argument : function.getArguments()) {
    auto name = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), loom::kName);
    if (isFloat(argument) && isWanted(name.getValue(), /*isWeight=*/false))
      sources[name].push_back(argument);
  }
  for (auto weight : function.getOps<loom::GetWeightOp>())
    if (isFloat(weight) && isWanted(weight.getName(), /*isWeight=*/true))
      sources[StringAttr::get(function.getContext(), weight.getName())].push_back(weight);
  if (!sources.empty())
    return success();
  if (patterns.empty())
    return function.emitError("the model has no float weights to differentiate by; name inputs");
  return function.emitError("no float weight or input is called '")
         << llvm::join(patterns, "' or '") << "'";
}

void Gradient::findVaried() {
  for (const auto &[name, values] : sources)
    varied.insert(values.begin(), values.end());
  for (Operation &op : function.front().without_terminator()) {
    bool reads = llvm::any_of(op.getOperands(), [&](Value each) { return varied.contains(each); });
    if (!reads || !carriesDerivative(&op))
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
    if (!sum)
      continue;
    std::string added = name.str() + ".grad";
    for (unsigned i = 0; i < function.getNumResults(); ++i)
      if (getName(i) == added)
        return function.emitError("output '") << added << "' has the name of the gradient of '"
                                              << name.getValue() << "'; rename it";
    SmallVector<Attribute> dims(sum->getRank(), StringAttr::get(context, ""));
    Attribute names = ArrayAttr::get(context, dims);
    if (auto argument = dyn_cast<BlockArgument>(values.front()))
      names = function.getArgAttr(argument.getArgNumber(), loom::kDimNames);
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
