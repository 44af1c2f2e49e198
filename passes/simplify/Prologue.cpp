//===- Prologue.cpp - operations on weights alone -------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/simplify/Prologue.h"

#include "dialects/loom/Control.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace gridloom;

SmallVector<Operation *> gridloom::getHoistable(Block &block) {
  // `fixed` values are known at load; `worthwhile` ones take work.
  llvm::DenseSet<Operation *> fixed, worthwhile;
  for (Operation &op : block) {
    // The prologue is one block, without bodies.
    if (op.hasTrait<OpTrait::IsTerminator>() || op.getNumResults() != 1 || loom::isControl(&op))
      continue;
    auto isFixed = [&](Value operand) {
      Operation *producer = operand.getDefiningOp();
      return producer && (fixed.contains(producer) || isa<loom::ConstantOp>(producer));
    };
    bool dependsOnWeight = llvm::any_of(op.getOperands(), [&](Value operand) {
      return operand.getDefiningOp() && fixed.contains(operand.getDefiningOp());
    });
    if (isa<loom::GetWeightOp>(op)) {
      fixed.insert(&op);
    } else if (dependsOnWeight && llvm::all_of(op.getOperands(), isFixed)) {
      fixed.insert(&op);
      if (!isa<loom::BroadcastOp, loom::ReshapeOp>(op))
        worthwhile.insert(&op);
    }
  }
  // A broadcast or reshape of hoisted work stays behind; its operand is hoisted.
  SmallVector<Operation *> result;
  for (Operation &op : block) {
    if (!worthwhile.contains(&op))
      continue;
    bool isNeeded = llvm::any_of(op.getUsers(), [&](Operation *user) {
      // Whether a user is outside of hoisted work, or only repeats or reshapes for such users.
      std::function<bool(Operation *)> stays = [&](Operation *user) {
        if (!fixed.contains(user))
          return true;
        return !worthwhile.contains(user) && llvm::any_of(user->getUsers(), stays);
      };
      return stays(user);
    });
    if (isNeeded)
      result.push_back(&op);
  }
  return result;
}

SmallVector<Operation *> gridloom::getUnusedWeights(ModuleOp module) {
  llvm::DenseSet<StringRef> used;
  module.walk([&](Operation *op) {
    if (auto read = dyn_cast<loom::GetWeightOp>(op))
      used.insert(read.getName());
    // Initial values of states, in functions and in programs.
    if (auto init = op->getAttrOfType<StringAttr>(loom::kInit))
      used.insert(init.getValue());
    if (auto function = dyn_cast<func::FuncOp>(op))
      for (unsigned i = 0; i < function.getNumArguments(); ++i)
        if (auto init = function.getArgAttrOfType<StringAttr>(i, loom::kInit))
          used.insert(init.getValue());
  });
  SmallVector<Operation *> unused;
  for (Operation &op : *module.getBody())
    if (isa<loom::WeightOp, loom::DerivedOp>(op) &&
        !used.contains(SymbolTable::getSymbolName(&op).getValue()))
      unused.push_back(&op);
  return unused;
}

RankedTensorType gridloom::getWholeType(Operation *symbol) {
  auto derived = dyn_cast<loom::DerivedOp>(symbol);
  return derived ? derived.getTensorType() : cast<loom::WeightOp>(symbol).getTensorType();
}

Value gridloom::readWhole(OpBuilder &builder, Operation *symbol) {
  auto derived = dyn_cast<loom::DerivedOp>(symbol);
  if (!derived)
    return loom::GetWeightOp::create(builder, symbol->getLoc(), getWholeType(symbol),
                                     SymbolTable::getSymbolName(symbol), Attribute(),
                                     loom::LayoutAttr());
  IRMapping mapping;
  Block &body = derived.getBody().front();
  for (Operation &inner : body.without_terminator())
    builder.clone(inner, mapping);
  return mapping.lookup(body.getTerminator()->getOperand(0));
}

void gridloom::eraseDeadOps(ModuleOp module) {
  for (auto func : module.getOps<func::FuncOp>())
    for (Block &block : func.getBody())
      for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
        if (isOpTriviallyDead(&op))
          op.erase();
}

void gridloom::eraseUnusedWeights(ModuleOp module) {
  // Erasing a derived tensor may leave its weights without a use.
  for (SmallVector<Operation *> unused = getUnusedWeights(module); !unused.empty();
       unused = getUnusedWeights(module))
    for (Operation *op : unused)
      op->erase();
}
