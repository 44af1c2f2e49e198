//===- LoomTypeInference.cpp - result types from operands -----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/Loom.h"

using namespace mlir;
using namespace gridloom::loom;

LogicalResult ConstantOp::inferReturnTypes(MLIRContext *, std::optional<Location>, ValueRange,
                                           DictionaryAttr attributes, OpaqueProperties properties,
                                           RegionRange, SmallVectorImpl<Type> &types) {
  ElementsAttr value;
  if (properties)
    value = properties.as<Properties *>()->getValue();
  else
    value = attributes.getAs<ElementsAttr>("value");
  if (!value)
    return failure();
  types.push_back(value.getType());
  return success();
}
