//===- Padding.cpp - shards of sizes that do not divide evenly --------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/Padding.h"

#include "dialects/loom/Halo.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::loom;

static Value splat(OpBuilder &builder, Location loc, RankedTensorType type, Attribute element) {
  return ConstantOp::create(builder, loc, DenseElementsAttr::get(type, element));
}

RankedTensorType gridloom::loom::withDim(RankedTensorType type, int64_t dim, int64_t size) {
  SmallVector<int64_t> shape(type.getShape());
  shape[dim] = size;
  return type.clone(shape);
}

Value gridloom::loom::padDim(OpBuilder &builder, Location loc, Value value, int64_t dim,
                             int64_t size) {
  auto type = cast<RankedTensorType>(value.getType());
  if (type.getDimSize(dim) == size)
    return value;
  Value zeros = splat(builder, loc, withDim(type, dim, size - type.getDimSize(dim)),
                      getNeutralElement(type.getElementType(), dist::ReductionKind::Sum));
  return ConcatenateOp::create(builder, loc, withDim(type, dim, size), ValueRange{value, zeros},
                               dim);
}

Value gridloom::loom::getPadded(ConcatenateOp op) {
  Value padded;
  for (Value part : op->getOperands())
    if (!isa_and_nonnull<ConstantOp>(part.getDefiningOp())) {
      if (padded)
        return {};
      padded = part;
    }
  return padded;
}

Value gridloom::loom::trimDim(OpBuilder &builder, Location loc, Value value, int64_t dim,
                              int64_t size) {
  auto type = cast<RankedTensorType>(value.getType());
  if (type.getDimSize(dim) == size)
    return value;
  SmallVector<int64_t> starts(type.getRank(), 0), strides(type.getRank(), 1);
  RankedTensorType trimmed = withDim(type, dim, size);
  return SliceOp::create(builder, loc, trimmed, value, starts, trimmed.getShape(), strides);
}

Attribute gridloom::loom::getAbsent(Type element) {
  if (auto type = dyn_cast<FloatType>(element))
    return FloatAttr::get(type, APFloat::getZero(type.getFloatSemantics(), /*Negative=*/true));
  return getNeutralElement(element, dist::ReductionKind::Sum);
}

Attribute gridloom::loom::getNeutralElement(Type element, dist::ReductionKind reduction) {
  using dist::ReductionKind;
  if (auto type = dyn_cast<FloatType>(element)) {
    const llvm::fltSemantics &semantics = type.getFloatSemantics();
    if (reduction == ReductionKind::Max || reduction == ReductionKind::Min)
      return FloatAttr::get(type, APFloat::getInf(semantics, reduction == ReductionKind::Max));
    return FloatAttr::get(type, reduction == ReductionKind::Prod ? 1.0 : 0.0);
  }
  unsigned width = element.getIntOrFloatBitWidth();
  bool isUnsigned = width == 1 || element.isUnsignedInteger();
  switch (reduction) {
  case ReductionKind::Sum:
    return IntegerAttr::get(element, APInt(width, 0));
  case ReductionKind::Prod:
    return IntegerAttr::get(element, APInt(width, 1));
  case ReductionKind::Max:
    return IntegerAttr::get(element, isUnsigned ? APInt::getMinValue(width)
                                                : APInt::getSignedMinValue(width));
  case ReductionKind::Min:
    return IntegerAttr::get(element, isUnsigned ? APInt::getMaxValue(width)
                                                : APInt::getSignedMaxValue(width));
  }
  llvm_unreachable("unknown reduction");
}

Value gridloom::loom::maskPadding(OpBuilder &builder, Location loc, Value shard, int64_t dim,
                                  int64_t size, ArrayRef<StringAttr> axes,
                                  dist::ReductionKind reduction) {
  auto type = cast<RankedTensorType>(shard.getType());
  int64_t local = type.getDimSize(dim);
  // Element i of this shard is global element position * local + i.
  Value index = getPositions(builder, loc, getShardStart(builder, loc, axes, local), local);
  auto row = cast<RankedTensorType>(index.getType());
  Value inside =
      CompareOp::create(builder, loc, row.clone(builder.getI1Type()), index,
                        splat(builder, loc, row, builder.getI64IntegerAttr(size)), Direction::LT);
  return selectAlong(builder, loc, dim, inside, shard,
                     getNeutralElement(type.getElementType(), reduction));
}
