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
    // Integers and comparisons carry no derivative.
    bool isUsed = llvm::any_of(op.getResults(), [&](Value each) {
      return used.contains(each) && loom::isFloatTensor(each);
    });
    if (!isUsed || !carriesDerivative(&op))
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

llvm::MapVector<StringAttr, SmallVector<loom::GetWeightOp>>
train::groupReads(func::FuncOp function, ArrayRef<Value> values) {
  llvm::MapVector<StringAttr, SmallVector<loom::GetWeightOp>> groups;
  for (loom::GetWeightOp read : findReads(function, values))
    groups[read.getNameAttr().getAttr()].push_back(read);
  for (auto read : function.getOps<loom::GetWeightOp>()) {
    auto group = groups.find(read.getNameAttr().getAttr());
    if (group != groups.end() && !read.use_empty() && read->hasAttr(loom::kFrozen) &&
        !llvm::is_contained(group->second, read))
      group->second.push_back(read);
  }
  return groups;
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
  if (auto reason = read->getAttrOfType<StringAttr>(loom::kFrozen))
    return reason.getValue() == loom::kFrozenConstant ? Fate::Constant : Fate::Statistic;
  if (statistics.contains(read.getNameAttr().getAttr()))
    return Fate::Mixed;
  return type.getElementType().isF32() || type.getElementType().isF64() ? Fate::Trained
                                                                        : Fate::Narrow;
}

Fate train::decideFate(ArrayRef<loom::GetWeightOp> reads, const ParameterRules &rules,
                       const llvm::MapVector<StringAttr, Value> &statistics) {
  Fate first = decideFate(reads.front(), rules, statistics);
  bool isSame = llvm::all_of(reads.drop_front(), [&](loom::GetWeightOp read) {
    return decideFate(read, rules, statistics) == first;
  });
  return isSame ? first : Fate::Mixed;
}
