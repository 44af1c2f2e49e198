//===- LoomControl.cpp - loops and branches -------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/Control.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;
using namespace gridloom::loom;

//===----------------------------------------------------------------------===//
// Bodies
//===----------------------------------------------------------------------===//

static func::FuncOp lookUp(Operation *op, FlatSymbolRefAttr name) {
  return SymbolTable::lookupNearestSymbolFrom<func::FuncOp>(op, name);
}

SmallVector<BodyLink, 2> gridloom::loom::getBodies(Operation *op) {
  SmallVector<BodyLink, 2> links;
  auto add = [&](FlatSymbolRefAttr name, unsigned results, bool loops) {
    func::FuncOp body = lookUp(op, name);
    if (!body)
      return;
    BodyLink &link = links.emplace_back(BodyLink{body, {}, {}});
    // Operand 0 is the condition of either.
    for (unsigned i = 1; i < op->getNumOperands(); ++i)
      link.operands.push_back(i);
    if (loops)
      link.results.push_back(std::nullopt);
    for (unsigned i = 0; i < results; ++i)
      link.results.push_back(i);
  };
  if (auto loop = dyn_cast<WhileOp>(op)) {
    add(loop.getBodyAttr(), loop.getNumResults(), true);
  } else if (auto branch = dyn_cast<IfOp>(op)) {
    add(branch.getThenBodyAttr(), branch.getNumResults(), false);
    add(branch.getElseBodyAttr(), branch.getNumResults(), false);
  }
  return links;
}

void gridloom::loom::forEachBody(func::FuncOp function,
                                 llvm::function_ref<void(Operation *, func::FuncOp)> visit) {
  for (Operation &op : function.front())
    for (BodyLink &link : getBodies(&op)) {
      visit(&op, link.body);
      forEachBody(link.body, visit);
    }
}

SmallVector<func::FuncOp> gridloom::loom::getUnusedBodies(ModuleOp module) {
  llvm::DenseSet<func::FuncOp> used;
  for (auto function : module.getOps<func::FuncOp>())
    if (!isBody(function))
      forEachBody(function, [&](Operation *, func::FuncOp body) { used.insert(body); });
  return llvm::filter_to_vector(module.getOps<func::FuncOp>(), [&](func::FuncOp function) {
    return isBody(function) && !used.contains(function);
  });
}

//===----------------------------------------------------------------------===//
// Verifiers
//===----------------------------------------------------------------------===//

static bool isOneBool(Value value) {
  return cast<RankedTensorType>(value.getType()).getRank() == 0;
}

static LogicalResult verifyBody(Operation *op, FlatSymbolRefAttr name, TypeRange arguments,
                                ArrayRef<Type> results) {
  func::FuncOp body = lookUp(op, name);
  if (!body || !isBody(body))
    return op->emitOpError("names no body: ") << name;
  FunctionType type = body.getFunctionType();
  if (TypeRange(type.getInputs()) != arguments)
    return op->emitOpError("gives ")
           << name << " " << arguments << ", which takes " << type.getInputs();
  if (TypeRange(type.getResults()) != TypeRange(results))
    return op->emitOpError("expects ")
           << results << " of " << name << ", which returns " << type.getResults();
  return success();
}

LogicalResult WhileOp::verifySymbolUses(SymbolTableCollection &) {
  if (!isOneBool(getCondition()))
    return emitOpError("has a condition of type ") << getCondition().getType();
  if (TypeRange(getInits()) != TypeRange(getResults()))
    return emitOpError("carries ")
           << getInits().getTypes() << ", but results in " << getResultTypes();
  SmallVector<Type> results{getCondition().getType()};
  llvm::append_range(results, getResultTypes());
  return verifyBody(*this, getBodyAttr(), getOperands().drop_front().getTypes(), results);
}

LogicalResult IfOp::verifySymbolUses(SymbolTableCollection &) {
  if (!isOneBool(getCondition()))
    return emitOpError("has a condition of type ") << getCondition().getType();
  SmallVector<Type> results(getResultTypes());
  if (failed(verifyBody(*this, getThenBodyAttr(), getCaptures().getTypes(), results)))
    return failure();
  return verifyBody(*this, getElseBodyAttr(), getCaptures().getTypes(), results);
}

//===----------------------------------------------------------------------===//
// Sharding rules: a carried value has one sharding; within the body propagation goes on.
//===----------------------------------------------------------------------===//

static TensorFactors addFactors(ShardingRule &rule, Type type) {
  TensorFactors factors;
  for (int64_t size : cast<RankedTensorType>(type).getShape())
    factors.push_back({rule.addFactor(size)});
  return factors;
}

ShardingRule WhileOp::getShardingRule() {
  ShardingRule rule;
  rule.readsPadding = false;
  rule.isSeparable = true;
  for (Type type : getOperandTypes())
    rule.tensors.push_back(addFactors(rule, type));
  for (unsigned i = 0; i < getNumResults(); ++i)
    rule.tensors.push_back(rule.tensors[i + 1]);
  return rule;
}

ShardingRule IfOp::getShardingRule() {
  ShardingRule rule;
  rule.readsPadding = false;
  rule.isSeparable = true;
  for (Type type : getOperandTypes())
    rule.tensors.push_back(addFactors(rule, type));
  for (Type type : getResultTypes())
    rule.tensors.push_back(addFactors(rule, type));
  return rule;
}
