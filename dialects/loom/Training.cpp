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

bool loom::isSentState(Value value) {
  auto argument = dyn_cast<BlockArgument>(value);
  auto step =
      argument ? dyn_cast<func::FuncOp>(argument.getOwner()->getParentOp()) : func::FuncOp();
  return step && isTrainStep(step) && step.getArgAttr(argument.getArgNumber(), kState) &&
         cast<RankedTensorType>(argument.getType()).getNumElements() == 1;
}

Location loom::getGradientLocation(Location of) {
  return NameLoc::get(StringAttr::get(of.getContext(), getNodeName(of) + ".grad"), of);
}

std::optional<Location> loom::getDifferentiated(Location location) {
  if (auto name = dyn_cast<NameLoc>(location)) {
    Location of = name.getChildLoc();
    return isa<UnknownLoc>(of) ? std::nullopt : std::optional(of);
  }
  if (auto fused = dyn_cast<FusedLoc>(location))
    for (Location part : fused.getLocations())
      if (std::optional<Location> of = getDifferentiated(part))
        return of;
  return std::nullopt;
}
