//===- CheckSteps.cpp - how exactly training steps are determined ---------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/interpreter/CheckSteps.h"

#include "dialects/loom/Training.h"

using namespace mlir;
using namespace gridloom;
using loom::HostTensor;

void StepRecord::watch(InterpreterOptions &options) {
  gradients.clear();
  options.observer = [this](Operation *op, Place, ArrayRef<HostTensor> results) {
    auto parameter = op->getAttrOfType<StringAttr>(loom::kGradientOf);
    if (!parameter || results.size() != 1 || !loom::isFloatKind(results.front().getKind()))
      return;
    std::vector<double> sizes = results.front().toDoubles();
    for (double &size : sizes)
      size = std::abs(size);
    gradients[parameter.getValue()] = std::move(sizes);
  };
}

LogicalResult StepRecord::addStep(func::FuncOp function, unsigned argument, unsigned result,
                                  const NamedTensors &outputs, double largest) {
  auto begin = function.getArgAttrOfType<StringAttr>(argument, loom::kInit);
  auto name = function.getResultAttrOfType<StringAttr>(result, loom::kName);
  auto next = outputs.find(name.getValue());
  auto gradient = gradients.find(begin.getValue());
  if (next == outputs.end() || gradient == gradients.end())
    return success();
  std::vector<double> after = next->second.toDoubles();
  std::vector<double> &before = values[name.getValue()];
  if (before.empty()) {
    auto weight = function->getParentOfType<ModuleOp>().lookupSymbol<loom::WeightOp>(begin);
    FailureOr<HostTensor> loaded = weight ? weights.load(weight) : FailureOr<HostTensor>(failure());
    if (failed(loaded))
      return failure();
    before = loaded->toDoubles();
  }
  Step step;
  for (auto [from, to] : llvm::zip(before, after))
    if (std::isfinite(from) && std::isfinite(to))
      step.reach = std::max(step.reach, std::abs(to - from));
  before = after;
  if (gradient->second.size() != after.size() || !(largest > 0))
    return success();
  for (double size : gradient->second)
    step.gradient.push_back(size / largest);
  calls.back()[name.getValue()] = std::move(step);
  return success();
}

LogicalResult StepRecord::addCall(const Specialisation &specialisation,
                                  const NamedTensors &outputs) {
  calls.emplace_back();
  double largest = 0;
  for (const auto &entry : gradients)
    for (double size : entry.second)
      if (std::isfinite(size))
        largest = std::max(largest, size);
  func::FuncOp function = specialisation.stages.front();
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    for (unsigned k = 0; k < function.getNumResults(); ++k)
      if (Attribute state = function.getArgAttr(i, loom::kState);
          state && function.getArgAttr(i, loom::kInit) &&
          function.getResultAttr(k, loom::kState) == state &&
          failed(addStep(function, i, k, outputs, largest)))
        return failure();
  gradients.clear();
  return success();
}

std::vector<double> StepRecord::getAllowance(size_t count, StringRef output, double share) const {
  std::vector<double> allowance;
  for (const llvm::StringMap<Step> &call : ArrayRef(calls).take_front(count)) {
    auto found = call.find(output);
    if (found == call.end())
      continue;
    const Step &step = found->second;
    allowance.resize(step.gradient.size());
    for (auto [allowed, gradient] : llvm::zip(allowance, step.gradient))
      allowed += 2 * step.reach * (gradient > share ? share / gradient : 1);
  }
  return allowance;
}
