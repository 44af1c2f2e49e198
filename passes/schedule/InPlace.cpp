//===- InPlace.cpp - results in the memory of what they replace -----------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/schedule/InPlace.h"

#include "dialects/loom/Control.h"

using namespace mlir;

namespace gridloom {

/// True when all of the kernel computes elements of one shape, and `argument` is read only as such.
static bool isElementForElement(plan::KernelOp kernel, BlockArgument argument) {
  auto type = cast<RankedTensorType>(argument.getType());
  for (Operation &op : kernel.getBody().front().without_terminator()) {
    if (isa<loom::ConstantOp, loom::IotaOp>(op))
      continue;
    bool elementwise =
        isa<loom::KernelBodyInterface>(op) &&
        cast<RankedTensorType>(op.getResult(0).getType()).getShape() == type.getShape();
    bool readsOther = isa<loom::BroadcastOp>(op) && isa<BlockArgument>(op.getOperand(0)) &&
                      op.getOperand(0) != Value(argument);
    if (!elementwise && !readsOther)
      return false;
  }
  return true;
}

bool canRunInPlace(plan::KernelOp kernel, unsigned argument) {
  Block &body = kernel.getBody().front();
  Operation *yield = body.getTerminator();
  if (yield->getNumOperands() != 1)
    return false;
  BlockArgument from = body.getArgument(argument);
  // Updates go into the copy, and running values over the elements, one place after another.
  if (isa<loom::ScatterOp, loom::CumulativeOp>(body.front()))
    return from.hasOneUse() && from.use_begin()->getOperandNumber() == 0;
  auto input = cast<RankedTensorType>(from.getType()),
       output = cast<RankedTensorType>(yield->getOperand(0).getType());
  return kernel.getSkeleton() == plan::Skeleton::Elementwise &&
         input.getShape() == output.getShape() &&
         loom::getByteSize(input) == loom::getByteSize(output) && isElementForElement(kernel, from);
}

Value getRootValue(Value value) {
  while (auto reshape = value.getDefiningOp<loom::ReshapeOp>())
    value = reshape.getInput();
  return value;
}

/// Appends the operations of `block` that read memory of `value`: a view of it is read by its
/// users.
static void collectReaders(Value value, Block &block, SmallVectorImpl<Operation *> &readers) {
  for (Operation *user : value.getUsers()) {
    if (isa<loom::ReshapeOp, loom::SliceOp>(user))
      collectReaders(user->getResult(0), block, readers);
    else
      readers.push_back(block.findAncestorOpInBlock(*user));
  }
}

/// True when `writer` reads all of `past` as one input, over which it may write.
static bool mayWriteOver(Operation *writer, Value past) {
  auto call = dyn_cast<plan::CallOp>(writer);
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
  return kernel && canRunInPlace(kernel, argument);
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
      if (mayWriteOver(writer, argument))
        llvm::erase(update.readers, writer);
    }
    updates.push_back(std::move(update));
  }
  return updates;
}

} // namespace gridloom
