//===- Emitter.cpp - builds loom operations the way ONNX means them -------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/Emitter.h"

#include "passes/simplify/Folding.h"
#include "runtime/core/OnnxScanner.h"

#include "mlir/IR/Verifier.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::onnx_import;

std::string onnx_import::toString(ArrayRef<int64_t> shape) {
  // A shape that is refused may have any number of dimensions.
  bool isLong = shape.size() > rt::kMaxRank;
  auto dims = llvm::map_range(shape.take_front(isLong ? 8 : shape.size()),
                              [](int64_t dim) { return std::to_string(dim); });
  std::string rest = isLong ? ", ... of " + std::to_string(shape.size()) + " dimensions" : "";
  return "[" + llvm::join(dims, ", ") + rest + "]";
}

bool onnx_import::isReasonable(ArrayRef<int64_t> shape) {
  if (shape.size() > rt::kMaxRank)
    return false;
  int64_t elements = 1;
  for (int64_t dim : shape)
    if (dim < 0 || (dim > 0 && llvm::MulOverflow(elements, dim, elements)) ||
        elements > int64_t(1) << 48)
      return false;
  return true;
}

bool Emitter::checkSize(Type type) const {
  auto shape = cast<RankedTensorType>(type).getShape();
  if (isReasonable(shape))
    return true;
  error() << "the result would have the impossible shape " << toString(shape);
  return false;
}

Value Emitter::fold(Operation *op) {
  // Evaluating relies on what the verifier checks.
  if (llvm::any_of(op->getOperands(), getConstant) && failed(verify(op))) {
    op->erase();
    return {};
  }
  FailureOr<DenseElementsAttr> value = foldOperation(op);
  if (failed(value)) {
    op->erase();
    return {};
  }
  if (!*value)
    return op->getResult(0);
  op->erase();
  return loom::ConstantOp::create(builder, loc, *value);
}

//===----------------------------------------------------------------------===//
// Constants
//===----------------------------------------------------------------------===//

Value Emitter::constant(const loom::HostTensor &tensor) {
  return loom::ConstantOp::create(builder, loc, tensor.toAttribute(getContext()));
}

Value Emitter::ints(ArrayRef<int64_t> values) {
  int64_t count = values.size();
  return constant(loom::HostTensor::fromInts(loom::ElementKind::I64, {count}, values));
}

Value Emitter::splat(RankedTensorType type, double number) {
  if (!checkSize(type))
    return {};
  return createSplat(builder, loc, type, number);
}

Value Emitter::splatLike(Value like, double number) {
  return like ? splat(getTensorType(like), number) : like;
}

//===----------------------------------------------------------------------===//
// Elementwise
//===----------------------------------------------------------------------===//

bool Emitter::broadcastTogether(ArrayRef<Value *> values) {
  SmallVector<int64_t> shape;
  for (Value *value : values) {
    if (!*value)
      return false;
    auto joined = broadcastShapes(shape, getShape(*value));
    if (!joined)
      return false;
    shape = std::move(*joined);
  }
  for (Value *value : values)
    if (*value = broadcastTo(*value, shape); !*value)
      return false;
  return true;
}

Value Emitter::compare(loom::Direction direction, Value x, Value y) {
  if (!broadcastTogether({&x, &y}))
    return {};
  auto type = RankedTensorType::get(getShape(x), builder.getI1Type());
  return emit<loom::CompareOp>(type, x, y, direction);
}

Value Emitter::compare(loom::Direction direction, Value x, double number) {
  return x ? compare(direction, x, splatLike(x, number)) : x;
}

Value Emitter::select(Value predicate, Value onTrue, Value onFalse) {
  if (!broadcastTogether({&predicate, &onTrue, &onFalse}))
    return {};
  if (!getTensorType(predicate).getElementType().isInteger(1)) {
    error() << "the condition is " << predicate.getType()
            << ", expected booleans; convert it (Cast)";
    return {};
  }
  return emit<loom::SelectOp>(onTrue.getType(), predicate, onTrue, onFalse);
}

Value Emitter::convert(Value x, Type elementType, bool saturate) {
  if (!x || getTensorType(x).getElementType() == elementType)
    return x;
  return emit<loom::ConvertOp>(getTensorType(x).clone(elementType), x,
                               /*unsaturated=*/!saturate && loom::isFloat8(elementType));
}

Value Emitter::widen(Value x) {
  if (!x)
    return x;
  Type element = getTensorType(x).getElementType();
  bool isNarrow = isa<FloatType>(element) && element.getIntOrFloatBitWidth() == 16;
  return isNarrow ? convert(x, builder.getF32Type()) : x;
}

//===----------------------------------------------------------------------===//
// Moves
//===----------------------------------------------------------------------===//

std::optional<SmallVector<int64_t>> Emitter::broadcastShapes(ArrayRef<int64_t> a,
                                                             ArrayRef<int64_t> b) const {
  SmallVector<int64_t> shape(std::max(a.size(), b.size()), 1);
  for (size_t i = 0; i < shape.size(); ++i) {
    int64_t left = i < a.size() ? a[a.size() - 1 - i] : 1;
    int64_t right = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (left != right && left != 1 && right != 1) {
      error() << "shapes " << toString(a) << " and " << toString(b) << " do not broadcast";
      return std::nullopt;
    }
    shape[shape.size() - 1 - i] = left == 1 ? right : left;
  }
  return shape;
}

Value Emitter::broadcastTo(Value x, ArrayRef<int64_t> shape) {
  if (!x)
    return x;
  int64_t offset = static_cast<int64_t>(shape.size()) - getTensorType(x).getRank();
  return broadcast(x, shape,
                   llvm::to_vector(llvm::seq<int64_t>(offset, static_cast<int64_t>(shape.size()))));
}

Value Emitter::broadcast(Value x, ArrayRef<int64_t> shape, ArrayRef<int64_t> dims) {
  if (!x || getShape(x) == shape)
    return x;
  return emit<loom::BroadcastOp>(getTensorType(x).clone(shape), x, dims);
}

Value Emitter::reshape(Value x, ArrayRef<int64_t> shape) {
  if (!x || getShape(x) == shape)
    return x;
  if (!isReasonable(shape) || loom::countElements(shape) != getTensorType(x).getNumElements()) {
    error() << "cannot reshape " << toString(getShape(x)) << " to " << toString(shape);
    return {};
  }
  return emit<loom::ReshapeOp>(getTensorType(x).clone(shape), x);
}

Value Emitter::transpose(Value x, ArrayRef<int64_t> permutation) {
  if (!x || llvm::is_sorted(permutation))
    return x;
  auto shape = llvm::map_to_vector(permutation, [&](int64_t dim) { return getShape(x)[dim]; });
  return emit<loom::TransposeOp>(getTensorType(x).clone(shape), x, permutation);
}

/// The concatenation of single elements that x is, such as a partly known shape; null if it is
/// none.
static loom::ConcatenateOp getSingles(Value x) {
  auto joined = x.getDefiningOp<loom::ConcatenateOp>();
  bool isList = joined && getTensorType(x).getRank() == 1 &&
                llvm::all_of(joined.getInputs(), [](Value part) { return getShape(part)[0] == 1; });
  return isList ? joined : loom::ConcatenateOp();
}

/// Elements of a concatenation of single ones; null if there is none at one of the places.
static Value pickParts(Emitter &emit, loom::ConcatenateOp joined, ArrayRef<int64_t> places) {
  int64_t count = joined.getInputs().size();
  if (places.empty())
    return {};
  for (int64_t place : places)
    if (place < 0 || place >= count)
      return {};
  SmallVector<Value> parts =
      llvm::map_to_vector(places, [&](int64_t place) { return Value(joined.getInputs()[place]); });
  return emit.concatenate(parts, 0);
}

Value Emitter::slice(Value x, int64_t dim, int64_t start, int64_t limit, int64_t stride) {
  if (!x || (start == 0 && limit == getShape(x)[dim] && stride == 1))
    return x;
  if (start < 0 || limit < start || limit > getShape(x)[dim]) {
    error() << "elements " << start << " to " << limit << " are not in dimension " << dim << " of "
            << toString(getShape(x));
    return {};
  }
  if (loom::ConcatenateOp joined = getSingles(x)) {
    SmallVector<int64_t> places;
    for (int64_t place = start; place < limit; place += stride)
      places.push_back(place);
    if (Value parts = pickParts(*this, joined, places))
      return parts;
  }
  SmallVector<int64_t> shape(getShape(x)), limits(shape);
  SmallVector<int64_t> starts(shape.size(), 0), strides(shape.size(), 1);
  starts[dim] = start;
  limits[dim] = limit;
  strides[dim] = stride;
  shape[dim] = (limit - start + stride - 1) / stride;
  return emit<loom::SliceOp>(getTensorType(x).clone(shape), x, starts, limits, strides);
}

Value Emitter::concatenate(ArrayRef<Value> values, int64_t dim) {
  if (!llvm::all_of(values, [](Value value) { return bool(value); }))
    return {};
  if (values.size() == 1)
    return values.front();
  SmallVector<int64_t> shape(getShape(values.front()));
  shape[dim] = 0;
  for (Value value : values)
    shape[dim] += getShape(value)[dim];
  return emit<loom::ConcatenateOp>(getTensorType(values.front()).clone(shape), ValueRange(values),
                                   dim);
}

Value Emitter::gather(Value x, Value indices, int64_t dim) {
  if (!x || !indices)
    return {};
  if (loom::ConcatenateOp joined = getSingles(x))
    if (DenseElementsAttr known = getConstant(indices);
        known && loom::getByteSize(known.getType()) <= kMaxFoldedBytes) {
      FailureOr<loom::HostTensor> places = loom::HostTensor::fromAttribute(known);
      if (succeeded(places))
        if (Value parts = pickParts(*this, joined, places->toInts()))
          return reshape(parts, getShape(indices));
    }
  SmallVector<int64_t> shape(getShape(x).take_front(dim));
  llvm::append_range(shape, getShape(indices));
  llvm::append_range(shape, getShape(x).drop_front(dim + 1));
  return emit<loom::GatherOp>(getTensorType(x).clone(shape), x, indices, dim);
}

Value Emitter::iota(RankedTensorType type, int64_t dim) { return emit<loom::IotaOp>(type, dim); }

//===----------------------------------------------------------------------===//
// Contractions and reductions
//===----------------------------------------------------------------------===//

Value Emitter::dotGeneral(Value x, Value y, ArrayRef<int64_t> xBatch, ArrayRef<int64_t> yBatch,
                          ArrayRef<int64_t> xContract, ArrayRef<int64_t> yContract) {
  if (!x || !y)
    return {};
  SmallVector<int64_t> shape;
  for (int64_t dim : xBatch)
    shape.push_back(getShape(x)[dim]);
  auto addFree = [&](Value value, ArrayRef<int64_t> batch, ArrayRef<int64_t> contract) {
    for (auto [dim, size] : llvm::enumerate(getShape(value)))
      if (!llvm::is_contained(batch, dim) && !llvm::is_contained(contract, dim))
        shape.push_back(size);
  };
  addFree(x, xBatch, xContract);
  addFree(y, yBatch, yContract);
  return emit<loom::DotGeneralOp>(getTensorType(x).clone(shape), x, y, xBatch, yBatch, xContract,
                                  yContract);
}

Value Emitter::matmul(Value x, Value y) {
  if (!x || !y)
    return {};
  if (getShape(x).empty() || getShape(y).empty()) {
    error() << "operands of rank " << getShape(x).size() << " and " << getShape(y).size()
            << " cannot be multiplied; both need rank 1 or more";
    return {};
  }
  int64_t xRank = getTensorType(x).getRank(), yRank = getTensorType(y).getRank();
  int64_t xDepth = getShape(x).back(), yDepth = getShape(y)[std::max<int64_t>(yRank - 2, 0)];
  if (xDepth != yDepth) {
    error() << "operands " << toString(getShape(x)) << " and " << toString(getShape(y))
            << " cannot be multiplied: " << xDepth << " columns times " << yDepth << " rows";
    return {};
  }
  ArrayRef<int64_t> xOuter = getShape(x).drop_back(std::min<int64_t>(xRank, 2));
  ArrayRef<int64_t> yOuter = getShape(y).drop_back(std::min<int64_t>(yRank, 2));
  auto outer = broadcastShapes(xOuter, yOuter);
  if (!outer)
    return {};

  // Outer dimensions both sides have are batch dimensions. One that only one side has, or has at a
  // size other than 1, is a free dimension of that side: nothing needs to be repeated.
  SmallVector<int64_t> xShape, yShape, xBatch, yBatch, batch, xFree, yFree;
  for (int64_t i = 0, rank = outer->size(); i < rank; ++i) {
    int64_t xDim = i - rank + xOuter.size(), yDim = i - rank + yOuter.size();
    bool inX = xDim >= 0 && xOuter[xDim] == (*outer)[i];
    bool inY = yDim >= 0 && yOuter[yDim] == (*outer)[i];
    if (inX && inY) {
      xBatch.push_back(xShape.size());
      yBatch.push_back(yShape.size());
    }
    (inX && inY ? batch : inX ? xFree : yFree).push_back(i);
    if (inX)
      xShape.push_back((*outer)[i]);
    if (inY)
      yShape.push_back((*outer)[i]);
  }
  int64_t rows = outer->size(), columns = rows + 1;
  if (xRank > 1) {
    xShape.push_back(getShape(x)[xRank - 2]);
    xFree.push_back(rows);
  }
  int64_t xContract = xShape.size(), yContract = yShape.size();
  xShape.push_back(xDepth);
  yShape.push_back(yDepth);
  if (yRank > 1) {
    yShape.push_back(getShape(y).back());
    yFree.push_back(columns);
  }
  Value product =
      dotGeneral(reshape(x, xShape), reshape(y, yShape), xBatch, yBatch, {xContract}, {yContract});

  // The product's dimensions are batch, x's, y's; `order` says which outer dimension each of them
  // is.
  SmallVector<int64_t> order(batch);
  llvm::append_range(order, xFree);
  llvm::append_range(order, yFree);
  SmallVector<int64_t> permutation = llvm::to_vector(llvm::seq<int64_t>(0, order.size()));
  llvm::sort(permutation, [&](int64_t a, int64_t b) { return order[a] < order[b]; });
  return transpose(product, permutation);
}

Value Emitter::reduce(Value x, dist::ReductionKind kind, ArrayRef<int64_t> dims, bool keepDims) {
  if (!x || dims.empty())
    return x;
  // Where the dimensions are split, the sum or product of a part may be beyond 16-bit floats.
  bool mayOverflow = kind == dist::ReductionKind::Sum || kind == dist::ReductionKind::Prod;
  if (Value wide = mayOverflow ? widen(x) : x; wide != x)
    return convert(reduce(wide, kind, dims, keepDims), getTensorType(x).getElementType());
  SmallVector<int64_t> reduced, kept;
  for (auto [dim, size] : llvm::enumerate(getShape(x))) {
    bool goes = llvm::is_contained(dims, dim);
    kept.push_back(goes ? 1 : size);
    if (!goes)
      reduced.push_back(size);
  }
  Value result = emit<loom::ReduceOp>(getTensorType(x).clone(reduced), x, kind, dims);
  return keepDims ? reshape(result, kept) : result;
}

Value Emitter::mean(Value x, ArrayRef<int64_t> dims, bool keepDims) {
  if (!x)
    return x;
  double count = 1;
  for (int64_t dim : dims)
    count *= getShape(x)[dim];
  if (dims.empty())
    return x;
  Value sum = reduce(widen(x), dist::ReductionKind::Sum, dims, keepDims);
  return convert(binary<loom::DivideOp>(sum, count), getTensorType(x).getElementType());
}

Value Emitter::reduceLike(Value x, dist::ReductionKind kind, ArrayRef<int64_t> dims) {
  if (!x || dims.empty())
    return x;
  SmallVector<int64_t> kept;
  for (int64_t dim : llvm::seq<int64_t>(0, getTensorType(x).getRank()))
    if (!llvm::is_contained(dims, dim))
      kept.push_back(dim);
  return broadcast(reduce(x, kind, dims, /*keepDims=*/false), getShape(x), kept);
}

Value Emitter::logSoftmax(Value x, int64_t dim) {
  if (!x)
    return x;
  Type element = getTensorType(x).getElementType();
  x = widen(x);
  Value shifted = binary<loom::SubtractOp>(x, reduceLike(x, dist::ReductionKind::Max, {dim}));
  Value sum = reduceLike(unary<loom::ExpOp>(shifted), dist::ReductionKind::Sum, {dim});
  return convert(binary<loom::SubtractOp>(shifted, unary<loom::LogOp>(sum)), element);
}
