//===- FactorNames.cpp - names of factors in strategy files ---------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/shard/FactorNames.h"

#include "dialects/loom/Loom.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

std::vector<std::string> gridloom::getFactorNames(Operation *op, const ShardingRule &rule) {
  std::vector<std::string> names(rule.sizes.size());
  auto addTensor = [&](size_t tensor, const std::string &prefix) {
    for (auto [dim, factors] : llvm::enumerate(rule.tensors[tensor]))
      for (auto [place, factor] : llvm::enumerate(factors)) {
        if (!names[factor].empty())
          continue;
        names[factor] = prefix + "d" + std::to_string(dim);
        if (factors.size() > 1)
          names[factor] += "." + std::to_string(place);
      }
  };
  size_t operands = op->getNumOperands();
  for (size_t i = operands; i < rule.tensors.size(); ++i)
    addTensor(i, i == operands ? "" : "out" + std::to_string(i - operands) + ".");
  for (size_t i = 0; i < operands; ++i)
    addTensor(i, "in" + std::to_string(i) + ".");
  for (auto [i, name] : llvm::enumerate(names))
    if (name.empty())
      name = "f" + std::to_string(i);
  return names;
}

bool gridloom::mayHaveFactor(Operation *op, StringRef name) {
  auto reshape = dyn_cast<loom::ReshapeOp>(op);
  if (!reshape)
    return false;
  bool isOperands = name.consume_front("in0.");
  if (!name.consume_front("d"))
    return false;
  auto rankOf = [](Value value) { return cast<RankedTensorType>(value.getType()).getRank(); };
  int64_t operand = rankOf(reshape->getOperand(0)), result = rankOf(reshape->getResult(0));
  auto isBelow = [](StringRef text, int64_t most) {
    int64_t number;
    return !text.getAsInteger(10, number) && number >= 0 && number < most;
  };
  // A dimension has at most one factor of each of the other tensor's dimensions.
  auto [dim, place] = name.split('.');
  return isBelow(dim, isOperands ? operand : result) &&
         (!name.contains('.') || isBelow(place, isOperands ? result : operand));
}
