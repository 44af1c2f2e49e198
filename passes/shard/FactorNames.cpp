//===- FactorNames.cpp - what strategy files call factors -----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/shard/FactorNames.h"

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
