//===- Training.cpp - names in programs that train ------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/Training.h"

#include "dialects/loom/Signature.h"

using namespace mlir;
using namespace gridloom;

static StringAttr getRole(Value value) {
  return dyn_cast_or_null<StringAttr>(loom::getArgumentAttr(value, loom::kRole));
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
  return getArgumentAttr(value, kState) &&
         isTrainStep(cast<func::FuncOp>(value.getParentBlock()->getParentOp())) &&
         cast<RankedTensorType>(value.getType()).getNumElements() == 1;
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
