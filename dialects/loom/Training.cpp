//===- Training.cpp - names in programs that train ------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/Training.h"

using namespace mlir;
using namespace gridloom;

static StringAttr getRole(Value value) {
  auto argument = dyn_cast<BlockArgument>(value);
  auto function =
      argument ? dyn_cast<func::FuncOp>(argument.getOwner()->getParentOp()) : func::FuncOp();
  return function ? function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), loom::kRole)
                  : StringAttr();
}

bool loom::isWeight(Value value) {
  while (auto convert = value.getDefiningOp<loom::ConvertOp>())
    value = convert.getInput();
  if (value.getDefiningOp<loom::GetWeightOp>())
    return true;
  StringAttr role = getRole(value);
  return role && role.getValue() == kParameter;
}

bool loom::isTrainStep(func::FuncOp function) {
  auto entry = function->getAttrOfType<StringAttr>(kEntry);
  return entry && entry.getValue() == kTrainStep;
}

bool loom::isOfTraining(Value value) { return getRole(value) != nullptr; }
