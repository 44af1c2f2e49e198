//===- StridedView.cpp - values as strides over other values --------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/fuse/StridedView.h"

using namespace mlir;

namespace gridloom {

static ArrayRef<int64_t> getShape(Value value) {
  return cast<RankedTensorType>(value.getType()).getShape();
}

SmallVector<int64_t> getMemoryStrides(Value value) {
  ArrayRef<int64_t> shape = getShape(value);
  SmallVector<int64_t> strides = loom::getRowMajorStrides(shape);
  auto weight = value.getDefiningOp<loom::GetWeightOp>();
  if (!weight || !weight.getLayoutAttr() || weight.getLayoutAttr().getPad() == 0 ||
      shape.size() < 2)
    return strides;
  int64_t row = shape.back() + weight.getLayoutAttr().getPad();
  for (size_t i = 0; i + 1 < shape.size(); ++i)
    strides[i] = strides[i] / shape.back() * row;
  return strides;
}

std::optional<SmallVector<int64_t>>
reshapeStrides(ArrayRef<int64_t> shape, ArrayRef<int64_t> strides, ArrayRef<int64_t> newShape) {
  if (llvm::is_contained(shape, 0))
    return std::nullopt;
  // Unit dimensions do not matter.
  SmallVector<std::pair<int64_t, int64_t>> old;
  for (auto [size, stride] : llvm::zip_equal(shape, strides))
    if (size != 1)
      old.push_back({size, stride});

  SmallVector<int64_t> result(newShape.size(), 1);
  size_t i = 0;
  for (size_t j = 0; j < newShape.size();) {
    if (newShape[j] == 1) {
      ++j;
      continue;
    }
    // The shortest runs of old and new dimensions with the same number of elements.
    size_t iEnd = i + 1, jEnd = j + 1;
    int64_t oldSize = old[i].first, newSize = newShape[j];
    while (oldSize != newSize) {
      if (oldSize < newSize)
        oldSize *= old[iEnd++].first;
      else
        newSize *= newShape[jEnd++];
    }
    for (size_t k = i; k + 1 < iEnd; ++k)
      if (old[k].second != old[k + 1].first * old[k + 1].second)
        return std::nullopt;
    int64_t stride = old[iEnd - 1].second;
    for (size_t k = jEnd; k-- > j;) {
      result[k] = stride;
      stride *= newShape[k];
    }
    i = iEnd;
    j = jEnd;
  }
  return result;
}

std::optional<std::pair<Value, double>> matchScale(Operation *op) {
  if (!isa<loom::MultiplyOp, loom::DivideOp>(op))
    return std::nullopt;
  if (std::optional<double> factor = getFloatSplat(op->getOperand(1)))
    return std::pair(op->getOperand(0), isa<loom::DivideOp>(op) ? 1 / *factor : *factor);
  if (auto factor = getFloatSplat(op->getOperand(0)); factor && isa<loom::MultiplyOp>(op))
    return std::pair(op->getOperand(1), *factor);
  return std::nullopt;
}

bool isModerate(double factor) { return std::abs(factor) >= 0x1p-20 && std::abs(factor) <= 0x1p20; }

bool feedsLibrary(Value value) {
  return llvm::any_of(value.getUsers(), [](Operation *user) {
    if (isa<loom::ReshapeOp, loom::TransposeOp, loom::SliceOp>(user))
      return feedsLibrary(user->getResult(0));
    return isa<loom::DotGeneralOp, plan::MatmulOp, plan::AttentionOp>(user);
  });
}

bool feedsKernel(Value value) {
  return !feedsLibrary(value) && llvm::any_of(value.getUsers(), [](Operation *user) {
    if (isa<loom::ReshapeOp, loom::TransposeOp>(user) || matchScale(user))
      return feedsKernel(user->getResult(0));
    return user->getDialect() && isa<loom::LoomDialect>(user->getDialect()) &&
           !isa<loom::DotGeneralOp, loom::ConvolutionOp, loom::YieldOp>(user);
  });
}

bool isReadWhole(Value value) {
  if (!isa_and_nonnull<loom::KernelBodyInterface, loom::BroadcastOp>(value.getDefiningOp()))
    return true;
  int64_t elements = 0;
  for (Operation *user : value.getUsers()) {
    if (!isa<loom::SliceOp>(user))
      return true;
    elements += cast<RankedTensorType>(user->getResult(0).getType()).getNumElements();
  }
  return elements >= cast<RankedTensorType>(value.getType()).getNumElements();
}

bool isInMemory(Value value) {
  return !isa_and_nonnull<loom::KernelBodyInterface>(value.getDefiningOp()) || !value.hasOneUse();
}

/// The operand of `op` if that only reorders, resizes or scales it, with the scalar factor; null if
/// `op` computes something else.
static std::pair<Value, double> stepThrough(Operation *op) {
  if (isa<loom::TransposeOp, loom::ReshapeOp, loom::BroadcastOp>(op))
    return {op->getOperand(0), 1};
  if (isa<loom::SliceOp>(op) && isReadWhole(op->getOperand(0)))
    return {op->getOperand(0), 1};
  // A scaled value that others read as well exists anyway.
  if (op->hasOneUse())
    if (auto scale = matchScale(op); scale && std::isfinite(scale->second))
      return *scale;
  return {Value(), 1};
}

/// Strides of op's result, given those of its input; moves `offset` to the result's first element.
static std::optional<SmallVector<int64_t>> applyStep(Operation *op, ArrayRef<int64_t> strides,
                                                     int64_t &offset) {
  if (auto transpose = dyn_cast<loom::TransposeOp>(op))
    return llvm::map_to_vector(transpose.getPermutation(),
                               [&](int64_t dim) { return strides[dim]; });
  if (auto reshape = dyn_cast<loom::ReshapeOp>(op))
    return reshapeStrides(getShape(reshape.getInput()), strides, getShape(reshape.getOutput()));
  if (auto broadcast = dyn_cast<loom::BroadcastOp>(op)) {
    SmallVector<int64_t> result(getShape(broadcast.getOutput()).size(), 0);
    for (auto [i, dim] : llvm::enumerate(broadcast.getDims()))
      result[dim] = getShape(broadcast.getInput())[i] == 1 ? 0 : strides[i];
    return result;
  }
  SmallVector<int64_t> result(strides);
  if (auto slice = dyn_cast<loom::SliceOp>(op))
    for (auto [start, step, stride] :
         llvm::zip_equal(slice.getStarts(), slice.getStrides(), result)) {
      offset += start * stride;
      stride *= step;
    }
  return result;
}

SmallVector<StridedView> traceViews(Value value) {
  SmallVector<StridedView> views;
  SmallVector<Operation *> path;
  double scale = 1;
  for (Value base = value; base;) {
    std::optional<SmallVector<int64_t>> strides = getMemoryStrides(base);
    int64_t offset = 0;
    for (Operation *op : llvm::reverse(path))
      if (strides)
        strides = applyStep(op, *strides, offset);
    if (strides && (offset == 0 || (loom::isComputed(base) && loom::isAligned(base, offset))))
      views.push_back({base, *strides, offset, scale, path});
    Operation *op = base.getDefiningOp();
    if (!op)
      break;
    auto [input, factor] = stepThrough(op);
    scale *= factor;
    if (!isModerate(scale))
      break;
    path.push_back(op);
    base = input;
  }
  std::reverse(views.begin(), views.end());
  return views;
}

Value makeViewBase(OpBuilder &builder, Value base, int64_t offset) {
  if (offset == 0)
    return base;
  auto type = cast<RankedTensorType>(base.getType());
  int64_t elements = type.getNumElements();
  auto getVector = [&](int64_t size) { return RankedTensorType::get(size, type.getElementType()); };
  if (type.getRank() != 1)
    base = loom::ReshapeOp::create(builder, base.getLoc(), getVector(elements), base);
  return loom::SliceOp::create(builder, base.getLoc(), getVector(elements - offset), base,
                               ArrayRef<int64_t>{offset}, ArrayRef<int64_t>{elements},
                               ArrayRef<int64_t>{1});
}

} // namespace gridloom
