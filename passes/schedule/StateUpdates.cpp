//===- StateUpdates.cpp - updates of states in a program ------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/schedule/StateUpdates.h"

#include "dialects/loom/Control.h"
#include "dialects/loom/Signature.h"

using namespace mlir;

namespace gridloom {

Value getRootValue(Value value) {
  while (auto reshape = value.getDefiningOp<loom::ReshapeOp>())
    value = reshape.getInput();
  return value;
}

bool isState(Value value) { return loom::getArgumentAttr(value, loom::kState) != nullptr; }

/// Appends the operations of `block` that read memory of `value`, also through views.
static void collectReaders(Value value, Block &block, SmallVectorImpl<Operation *> &readers) {
  for (Operation *user : value.getUsers()) {
    if (isa<loom::ReshapeOp, loom::SliceOp>(user))
      collectReaders(user->getResult(0), block, readers);
    else
      readers.push_back(block.findAncestorOpInBlock(*user));
  }
}

/// True if the writer of `next` reads all of `past` as one input, and may write over it.
static bool mayWriteOver(OpResult next, Value past) {
  auto call = dyn_cast<plan::CallOp>(next.getOwner());
  auto isPast = [&](Value input) { return getRootValue(input) == past; };
  auto isPart = [&](Value input) {
    while (isa_and_nonnull<loom::ReshapeOp, loom::SliceOp>(input.getDefiningOp()))
      input = input.getDefiningOp()->getOperand(0);
    return input == past;
  };
  if (!call || llvm::count_if(call.getInputs(), isPast) != 1 ||
      llvm::count_if(call.getInputs(), isPart) != 1)
    return false;
  auto kernel = SymbolTable::lookupNearestSymbolFrom<plan::KernelOp>(call, call.getKernelAttr());
  unsigned argument = llvm::find_if(call.getInputs(), isPast) - call.getInputs().begin();
  return kernel && kernel.canRunInPlace(next.getResultNumber(), argument);
}

SmallVector<StateUpdate> findStateUpdates(func::FuncOp func) {
  SmallVector<StateUpdate> updates;
  if (loom::isBody(func))
    return updates;
  Block &block = func.getBody().front();
  for (auto [i, value] : llvm::enumerate(block.getTerminator()->getOperands())) {
    auto state = func.getResultAttrOfType<StringAttr>(i, loom::kState);
    Value next = getRootValue(value);
    Operation *writer = next.getDefiningOp();
    if (!state ||
        !isa_and_nonnull<plan::CallOp, plan::MatmulOp, plan::ConvolutionOp, plan::AttentionOp>(
            writer))
      continue;
    StateUpdate update{state, next, writer, {}};
    for (BlockArgument argument : func.getArguments()) {
      if (func.getArgAttrOfType<StringAttr>(argument.getArgNumber(), loom::kState) != state)
        continue;
      collectReaders(argument, block, update.readers);
      if (mayWriteOver(cast<OpResult>(next), argument))
        llvm::erase(update.readers, writer);
    }
    updates.push_back(std::move(update));
  }
  return updates;
}

} // namespace gridloom
