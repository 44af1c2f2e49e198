//===- ShardingRule.cpp - how an operation's tensors share factors --------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/dist/ShardingRule.h"

using namespace mlir;
using namespace gridloom::dist;

ShardingRule gridloom::dist::getElementwiseRule(Operation *op) {
  ShardingRule rule;
  TensorFactors factors;
  for (int64_t size : cast<RankedTensorType>(op->getResult(0).getType()).getShape())
    factors.push_back({rule.addFactor(size)});
  rule.tensors.assign(op->getNumOperands() + op->getNumResults(), factors);
  return rule;
}

SmallVector<Value> gridloom::dist::cloneWithLocalTypes(OpBuilder &builder, Operation *op,
                                                       ValueRange operands, TypeRange types) {
  Operation *local = builder.clone(*op);
  local->setOperands(operands);
  for (auto [result, type] : llvm::zip_equal(local->getResults(), types))
    result.setType(type);
  return llvm::to_vector_of<Value>(local->getResults());
}
