//===- Differentiate.cpp - gradients as outputs ---------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/differentiate/Differentiate.h"

#include "dialects/loom/Control.h"
#include "dialects/loom/Derivatives.h"
#include "dialects/loom/NamePattern.h"
#include "dialects/loom/Signature.h"
#include "passes/differentiate/Gradients.h"
#include "passes/differentiate/Pullbacks.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace gridloom;

namespace gridloom {
#define GEN_PASS_DEF_DIFFERENTIATE
#include "passes/differentiate/Passes.h.inc"
} // namespace gridloom

namespace {

/// Differentiates an output of one function.
class OutputGradient {
public:
  OutputGradient(func::FuncOp function, StringRef of, ArrayRef<std::string> patterns)
      : function(function), of(of), patterns(patterns) {}

  /// Fails with a diagnostic.
  LogicalResult run();

private:
  LogicalResult findSources();
  LogicalResult addOutputs(const llvm::MapVector<StringAttr, Value> &gradients);
  bool isWanted(StringRef name, bool isWeight) const;
  bool readsInside(Operation *op) const;
  func::FuncOp function;
  StringRef of;
  ArrayRef<std::string> patterns;
  /// Weights and inputs by name, with all values of that name.
  GradientSources sources;
};

bool OutputGradient::isWanted(StringRef name, bool isWeight) const {
  if (patterns.empty())
    return isWeight;
  return llvm::any_of(patterns,
                      [&](const std::string &each) { return matchesPattern(each, name); });
}

/// Whether a body that the operation runs reads a weight whose gradient is wanted.
bool OutputGradient::readsInside(Operation *op) const {
  return llvm::any_of(loom::getBodies(op), [&](const loom::BodyLink &link) {
    return llvm::any_of(func::FuncOp(link.body).front(), [&](Operation &inner) {
      auto weight = dyn_cast<loom::GetWeightOp>(inner);
      return weight ? loom::isFloatTensor(weight) && isWanted(weight.getName(), /*isWeight=*/true)
                    : readsInside(&inner);
    });
  });
}

LogicalResult OutputGradient::findSources() {
  for (BlockArgument argument : function.getArguments())
    if (loom::isFloatTensor(argument) &&
        isWanted(loom::getArgumentName(argument), /*isWeight=*/false))
      sources[StringAttr::get(function.getContext(), loom::getArgumentName(argument))].push_back(
          argument);
  for (auto weight : function.getOps<loom::GetWeightOp>())
    if (loom::isFloatTensor(weight) && isWanted(weight.getName(), /*isWeight=*/true))
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

/// Adds the gradient of each source that the output depends on as an output.
LogicalResult OutputGradient::addOutputs(const llvm::MapVector<StringAttr, Value> &gradients) {
  MLIRContext *context = function.getContext();
  Operation *end = function.front().getTerminator();
  SmallVector<Value> results(end->getOperands());
  for (const auto &[name, values] : sources) {
    Value gradient = gradients.lookup(name);
    if (!gradient && llvm::is_contained(patterns, name.getValue()))
      return function.emitError("output '")
             << of << "' does not depend on '" << name.getValue() << "'";
    if (!gradient)
      continue;
    std::string added = name.str() + ".grad";
    if (loom::findResult(function, added) || loom::findArgument(function, added))
      return function.emitError("'")
             << added << "' has the name of the gradient of '" << name.getValue() << "'; rename it";
    auto type = cast<RankedTensorType>(gradient.getType());
    SmallVector<Attribute> dims(type.getRank(), StringAttr::get(context, ""));
    Attribute names = ArrayAttr::get(context, dims);
    if (auto argument = dyn_cast<BlockArgument>(values.front()))
      if (Attribute given = function.getArgAttr(argument.getArgNumber(), loom::kDimNames))
        names = given;
    auto attributes = DictionaryAttr::get(context, {{loom::kName, StringAttr::get(context, added)},
                                                    {loom::kDimNames, names},
                                                    {loom::kGradient, UnitAttr::get(context)}});
    if (failed(function.insertResult(results.size(), type, attributes)))
      return failure();
    results.push_back(gradient);
  }
  end->setOperands(results);
  return success();
}

LogicalResult OutputGradient::run() {
  std::optional<unsigned> output = loom::findResult(function, of);
  if (!output)
    return function.emitError() << loom::describeMissingOutput(function, of);
  if (failed(findSources()))
    return failure();
  Operation *end = function.front().getTerminator();
  Value loss = end->getOperand(*output);
  if (!loom::isFloatTensor(loss))
    return function.emitError("output '")
           << of << "' is " << getElementTypeOrSelf(loss) << "; only floats have gradients";
  if (loom::hasDataLength(function, of))
    return function.emitError("output '")
           << of << "' has as many elements as data say; sum them in the model, so that padding "
           << "has no part in the derivative";
  OpBuilder builder(end);
  Location loc = NameLoc::get(builder.getStringAttr(of + ".grad"));
  Gradients sweep(function, ("output '" + of + "'").str(), sources);
  auto gradients = sweep.build({{loss, Term(builder, loc, loss).splat(1)}},
                               [&](Operation *op) { return readsInside(op); });
  return failed(gradients) ? failure() : addOutputs(*gradients);
}

struct DifferentiatePass : public gridloom::impl::DifferentiateBase<DifferentiatePass> {
  using DifferentiateBase::DifferentiateBase;

  void getDependentDialects(DialectRegistry &registry) const override {
    registerPullbacks(registry);
  }

  void runOnOperation() override {
    SmallVector<std::string> patterns(withRespectTo.begin(), withRespectTo.end());
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!loom::isBody(function) && failed(OutputGradient(function, of, patterns).run()))
        return signalPassFailure();
  }
};
} // namespace
