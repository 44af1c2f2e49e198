//===- Term.cpp - formulas of tensors -------------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/differentiate/Term.h"

#include "dialects/loom/Padding.h"

using namespace mlir;
using namespace gridloom;

Term Term::splat(RankedTensorType type, double number) const {
  Type element = type.getElementType();
  Attribute attribute = isa<FloatType>(element)
                            ? Attribute(FloatAttr::get(element, number))
                            : Attribute(IntegerAttr::get(element, static_cast<int64_t>(number)));
  return with(
      loom::ConstantOp::create(*builder, loc, DenseElementsAttr::get(type, ArrayRef(attribute))));
}

Term Term::iota(ArrayRef<int64_t> shape, int64_t dim) const {
  return emit<loom::IotaOp>(RankedTensorType::get(shape, builder->getI64Type()), dim);
}

Term Term::compare(loom::Direction direction, Value other) const {
  return emit<loom::CompareOp>(getType().clone(builder->getI1Type()), value, other, direction);
}

Term Term::select(Value chosen, Value otherwise) const {
  return emit<loom::SelectOp>(chosen.getType(), value, chosen, otherwise);
}

Term Term::convert(Type element) const {
  if (getType().getElementType() == element)
    return *this;
  return emit<loom::ConvertOp>(getType().clone(element), value);
}

Term Term::reshape(ArrayRef<int64_t> shape) const {
  if (getShape() == shape)
    return *this;
  return emit<loom::ReshapeOp>(getType().clone(shape), value);
}

Term Term::transpose(ArrayRef<int64_t> permutation) const {
  if (llvm::is_sorted(permutation))
    return *this;
  auto shape = llvm::map_to_vector(permutation, [&](int64_t dim) { return getShape()[dim]; });
  return emit<loom::TransposeOp>(getType().clone(shape), value, permutation);
}

Term Term::reverse(ArrayRef<int64_t> dims) const {
  return dims.empty() ? *this : emit<loom::ReverseOp>(getType(), value, dims);
}

Term Term::sum(ArrayRef<int64_t> dims) const {
  if (dims.empty())
    return *this;
  SmallVector<int64_t> shape;
  for (auto [dim, size] : llvm::enumerate(getShape()))
    if (!llvm::is_contained(dims, static_cast<int64_t>(dim)))
      shape.push_back(size);
  return emit<loom::ReduceOp>(getType().clone(shape), value, dist::ReductionKind::Sum, dims);
}

Term Term::broadcast(ArrayRef<int64_t> shape, ArrayRef<int64_t> dims) const {
  if (getShape() == shape)
    return *this;
  return emit<loom::BroadcastOp>(getType().clone(shape), value, dims);
}

Term Term::repeat(ArrayRef<int64_t> shape, ArrayRef<int64_t> dims) const {
  SmallVector<int64_t> kept;
  for (int64_t dim = 0; dim < static_cast<int64_t>(shape.size()); ++dim)
    if (!llvm::is_contained(dims, dim))
      kept.push_back(dim);
  return broadcast(shape, kept);
}

Term Term::slice(ArrayRef<int64_t> starts, ArrayRef<int64_t> limits,
                 ArrayRef<int64_t> strides) const {
  SmallVector<int64_t> shape;
  for (auto [start, limit, stride] : llvm::zip_equal(starts, limits, strides))
    shape.push_back((limit - start + stride - 1) / stride);
  if (getShape() == ArrayRef(shape))
    return *this;
  return emit<loom::SliceOp>(getType().clone(shape), value, starts, limits, strides);
}

Term Term::slice(int64_t dim, int64_t start, int64_t stop) const {
  SmallVector<int64_t> starts(getRank(), 0), limits(getShape()), strides(getRank(), 1);
  starts[dim] = start;
  limits[dim] = stop;
  return slice(starts, limits, strides);
}

Term Term::pad(ArrayRef<int64_t> low, ArrayRef<int64_t> high, ArrayRef<int64_t> interior) const {
  auto count = [](int64_t number) { return std::max<int64_t>(number, 0); };
  SmallVector<int64_t> before = llvm::map_to_vector(low, count);
  SmallVector<int64_t> after = llvm::map_to_vector(high, count);
  SmallVector<int64_t> shape, starts, limits, strides(getRank(), 1);
  for (auto [d, size] : llvm::enumerate(getShape())) {
    int64_t spread = size ? size + (size - 1) * interior[d] : 0;
    shape.push_back(before[d] + spread + after[d]);
    starts.push_back(before[d] - low[d]);
    limits.push_back(shape.back() - (after[d] - high[d]));
  }
  Term padded = *this;
  if (getShape() != ArrayRef(shape)) {
    Attribute zero = loom::getNeutralElement(getType().getElementType(), dist::ReductionKind::Sum);
    padded = emit<loom::PadOp>(getType().clone(shape), value, cast<TypedAttr>(zero), before, after,
                               interior);
  }
  return padded.slice(starts, limits, strides);
}
