//===- Uses.cpp - the readers of a value ----------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/Uses.h"

#include "mlir/IR/Operation.h"

using namespace mlir;

SmallVector<OpOperand *> gridloom::loom::listUses(Value value) {
  SmallVector<OpOperand *> uses =
      llvm::map_to_vector(value.getUses(), [](OpOperand &use) { return &use; });
  llvm::stable_sort(uses, [](OpOperand *a, OpOperand *b) {
    return a->getOwner() != b->getOwner() ? a->getOwner()->isBeforeInBlock(b->getOwner())
                                          : a->getOperandNumber() < b->getOperandNumber();
  });
  return uses;
}

Operation *gridloom::loom::getOnlyReader(Value value) {
  return value.hasOneUse() ? *value.getUsers().begin() : nullptr;
}
