//===- States.cpp - states of training steps ------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/train/States.h"

#include "dialects/loom/Control.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::train;

static BlockArgument addArgument(func::FuncOp function, RankedTensorType type,
                                 ArrayRef<NamedAttribute> attributes) {
  Builder builder(function.getContext());
  unsigned number = function.getNumArguments();
  StringAttr name;
  for (const NamedAttribute &attribute : attributes)
    if (attribute.getName() == loom::kName)
      name = cast<StringAttr>(attribute.getValue());
  [[maybe_unused]] LogicalResult added = function.insertArgument(
      number, type, builder.getDictionaryAttr(attributes), NameLoc::get(name));
  assert(succeeded(added));
  return function.getArgument(number);
}

BlockArgument train::addInput(func::FuncOp function, StringRef name, RankedTensorType type,
                              ArrayRef<StringRef> dimNames) {
  Builder builder(function.getContext());
  return addArgument(function, type,
                     {builder.getNamedAttr(loom::kName, builder.getStringAttr(name)),
                      builder.getNamedAttr(loom::kDimNames, builder.getStrArrayAttr(dimNames))});
}

BlockArgument train::addSetting(func::FuncOp function, StringRef name, RankedTensorType type) {
  Builder builder(function.getContext());
  BlockArgument argument = addInput(function, name, type, {});
  function.setArgAttr(argument.getArgNumber(), loom::kRole, builder.getStringAttr(loom::kSetting));
  return argument;
}

BlockArgument train::addState(func::FuncOp function, StringRef name, RankedTensorType type,
                              StringRef role, StringAttr init) {
  Builder builder(function.getContext());
  SmallVector<StringRef> dimNames(type.getRank());
  SmallVector<NamedAttribute> attributes{
      builder.getNamedAttr(loom::kName, builder.getStringAttr(name)),
      builder.getNamedAttr(loom::kDimNames, builder.getStrArrayAttr(dimNames)),
      builder.getNamedAttr(loom::kState, builder.getStringAttr(name)),
      builder.getNamedAttr(loom::kRole, builder.getStringAttr(role))};
  if (init)
    attributes.push_back(builder.getNamedAttr(loom::kInit, init));
  return addArgument(function, type, attributes);
}

void Results::add(StringRef name, Value value, bool isState) {
  Builder builder(function.getContext());
  SmallVector<StringRef> dimNames(cast<RankedTensorType>(value.getType()).getRank());
  SmallVector<NamedAttribute> named{
      builder.getNamedAttr(loom::kName, builder.getStringAttr(name)),
      builder.getNamedAttr(loom::kDimNames, builder.getStrArrayAttr(dimNames))};
  if (isState)
    named.push_back(builder.getNamedAttr(loom::kState, builder.getStringAttr(name)));
  values.push_back(value);
  attributes.push_back(builder.getDictionaryAttr(named));
}

void Results::addOutput(StringRef name, Value value) { add(name, value, /*isState=*/false); }
void Results::addState(StringRef name, Value value) { add(name, value, /*isState=*/true); }

/// Erases unused operations, last first.
static void eraseUnread(Block &block) {
  // An iterator over a reversed range would point to the erased operation.
  for (Operation *op = block.getTerminator()->getPrevNode(); op;) {
    Operation *before = op->getPrevNode();
    if (op->use_empty() && !loom::isControl(op))
      op->erase();
    op = before;
  }
}

void Results::commit() {
  Operation *end = function.front().getTerminator();
  end->setOperands(values);
  function.setType(FunctionType::get(function.getContext(), function.getArgumentTypes(),
                                     llvm::to_vector(ValueRange(values).getTypes())));
  function.setAllResultAttrs(attributes);
  eraseUnread(function.front());
  llvm::BitVector unread(function.getNumArguments());
  for (BlockArgument argument : function.getArguments())
    if (argument.use_empty() && !loom::isOfTraining(argument))
      unread.set(argument.getArgNumber());
  [[maybe_unused]] LogicalResult erased = function.eraseArguments(unread);
  assert(succeeded(erased));
}

llvm::MapVector<StringAttr, BlockArgument>
train::makeStates(func::FuncOp function, const llvm::MapVector<StringAttr, StringRef> &weights) {
  llvm::MapVector<StringAttr, BlockArgument> states;
  for (auto read : llvm::make_early_inc_range(function.getOps<loom::GetWeightOp>())) {
    auto name = StringAttr::get(function.getContext(), read.getName());
    auto known = weights.find(name);
    if (known == weights.end())
      continue;
    BlockArgument &state = states[name];
    if (!state)
      state = addState(function, name, cast<RankedTensorType>(read.getType()), known->second, name);
    read.getOutput().replaceAllUsesWith(state);
    read.erase();
  }
  return states;
}
