//===- Selection.cpp - which weights are trained --------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/train/Selection.h"

#include "dialects/loom/Training.h"
#include "passes/differentiate/Gradients.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::train;

SmallVector<loom::GetWeightOp> train::findReads(func::FuncOp function, ArrayRef<Value> values) {
  llvm::DenseSet<Value> used(values.begin(), values.end());
  SmallVector<loom::GetWeightOp> found;
  for (Operation &op : llvm::reverse(function.front().without_terminator())) {
    if (llvm::none_of(op.getResults(), [&](Value each) { return used.contains(each); }) ||
        !carriesDerivative(&op))
      continue;
    if (auto weight = dyn_cast<loom::GetWeightOp>(op)) {
      if (loom::isFloatTensor(weight))
        found.push_back(weight);
      continue;
    }
    used.insert(op.operand_begin(), op.operand_end());
  }
  std::reverse(found.begin(), found.end());
  return found;
}

llvm::MapVector<StringAttr, Value> train::findStatistics(func::FuncOp function) {
  llvm::MapVector<StringAttr, Value> statistics;
  for (auto [i, value] : llvm::enumerate(function.front().getTerminator()->getOperands()))
    if (auto weight = function.getResultAttrOfType<StringAttr>(i, loom::kUpdates))
      statistics[weight] = value;
  return statistics;
}

Fate train::decideFate(loom::GetWeightOp read, const ParameterRules &rules,
                       const llvm::MapVector<StringAttr, Value> &statistics) {
  auto type = cast<RankedTensorType>(read.getType());
  if (rules.lookup({read.getName(), type.getRank()}).isFrozen)
    return Fate::Frozen;
  if (read->hasAttr(loom::kFrozen) || statistics.contains(read.getNameAttr().getAttr()))
    return Fate::Statistic;
  return type.getElementType().isF32() || type.getElementType().isF64() ? Fate::Trained
                                                                        : Fate::Narrow;
}
