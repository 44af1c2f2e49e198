//===- Signature.cpp - inputs and outputs of functions by name ------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/Signature.h"

using namespace mlir;
using namespace gridloom;

StringRef loom::getArgumentName(BlockArgument argument) {
  auto name = dyn_cast_or_null<StringAttr>(getArgumentAttr(argument, kName));
  return name ? name.getValue() : "";
}

Attribute loom::getArgumentAttr(Value value, StringRef attribute) {
  auto argument = dyn_cast<BlockArgument>(value);
  auto function =
      argument ? dyn_cast<func::FuncOp>(argument.getOwner()->getParentOp()) : func::FuncOp();
  return function ? function.getArgAttr(argument.getArgNumber(), attribute) : Attribute();
}

StringRef loom::getResultName(func::FuncOp function, unsigned result) {
  auto name = function.getResultAttrOfType<StringAttr>(result, kName);
  return name ? name.getValue() : "";
}

BlockArgument loom::findArgument(func::FuncOp function, StringRef name) {
  for (BlockArgument argument : function.getArguments())
    if (getArgumentName(argument) == name)
      return argument;
  return {};
}

std::optional<unsigned> loom::findResult(func::FuncOp function, StringRef name) {
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    if (getResultName(function, i) == name)
      return i;
  return std::nullopt;
}

std::string loom::describeMissingOutput(func::FuncOp function, StringRef name) {
  std::string names;
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    names += (i ? "', '" : "'") + getResultName(function, i).str();
  return "'" + name.str() + "' is not an output of the model; its outputs are " + names + "'";
}

bool loom::hasDataLength(func::FuncOp function, StringRef name) {
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    if (StringRef other = getResultName(function, i);
        other.consume_front(name) && other.starts_with(".dim"))
      return true;
  return false;
}
