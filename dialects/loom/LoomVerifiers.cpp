//===- LoomVerifiers.cpp - verifiers --------------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/Loom.h"

using namespace mlir;
using namespace gridloom::loom;

static RankedTensorType tensor(Value value) { return cast<RankedTensorType>(value.getType()); }

/// Fails unless `actual` has the expected shape.
static LogicalResult expectShape(Operation *op, RankedTensorType actual,
                                 ArrayRef<int64_t> expected) {
  if (actual.getShape() == expected)
    return success();
  return op->emitOpError("result is ")
         << actual << ", expected " << RankedTensorType::get(expected, actual.getElementType());
}

static LogicalResult expectDim(Operation *op, int64_t dim, RankedTensorType type) {
  if (dim >= 0 && dim < type.getRank())
    return success();
  return op->emitOpError("dim ") << dim << " is not a dimension of " << type;
}

static LogicalResult expectSameElementType(Operation *op, RankedTensorType a, RankedTensorType b) {
  if (a.getElementType() == b.getElementType())
    return success();
  return op->emitOpError("element types ")
         << a.getElementType() << " and " << b.getElementType() << " differ";
}

LogicalResult IotaOp::verify() { return expectDim(*this, getDim(), tensor(getOutput())); }

LogicalResult BroadcastOp::verify() {
  RankedTensorType input = tensor(getInput()), output = tensor(getOutput());
  if (failed(expectSameElementType(*this, input, output)))
    return failure();
  ArrayRef<int64_t> dims = getDims();
  if (static_cast<int64_t>(dims.size()) != input.getRank()) // L-BC1
    return emitOpError("names ") << dims.size() << " dimensions for an input of rank "
                                 << input.getRank();
  for (auto [i, dim] : llvm::enumerate(dims)) {
    if (failed(expectDim(*this, dim, output)))
      return failure();
    if (i && dims[i - 1] >= dim) // L-BC1
      return emitOpError("dims must increase");
    int64_t size = input.getDimSize(i);
    if (size != 1 && size != output.getDimSize(dim)) // L-BC2
      return emitOpError("input dimension ") << i << " is " << size << ", output dimension " << dim
                                             << " is " << output.getDimSize(dim);
  }
  return success();
}

LogicalResult ReshapeOp::verify() {
  RankedTensorType input = tensor(getInput()), output = tensor(getOutput());
  if (input.getNumElements() != output.getNumElements())
    return emitOpError("input has ")
           << input.getNumElements() << " elements, output " << output.getNumElements();
  return expectSameElementType(*this, input, output);
}

LogicalResult TransposeOp::verify() {
  RankedTensorType input = tensor(getInput());
  SmallVector<bool> seen(input.getRank(), false);
  if (static_cast<int64_t>(getPermutation().size()) != input.getRank())
    return emitOpError("permutes ") << getPermutation().size() << " dimensions of " << input;
  SmallVector<int64_t> shape;
  for (int64_t dim : getPermutation()) {
    if (failed(expectDim(*this, dim, input)))
      return failure();
    if (std::exchange(seen[dim], true))
      return emitOpError("dimension ") << dim << " is named twice";
    shape.push_back(input.getDimSize(dim));
  }
  if (failed(expectSameElementType(*this, input, tensor(getOutput()))))
    return failure();
  return expectShape(*this, tensor(getOutput()), shape);
}

LogicalResult SliceOp::verify() {
  RankedTensorType input = tensor(getInput());
  size_t rank = input.getRank();
  if (getStarts().size() != rank || getLimits().size() != rank || getStrides().size() != rank)
    return emitOpError("needs ") << rank << " starts, limits and strides";
  SmallVector<int64_t> shape;
  for (auto [start, limit, stride, size] :
       llvm::zip_equal(getStarts(), getLimits(), getStrides(), input.getShape())) {
    if (start < 0 || limit < start || limit > size || stride < 1)
      return emitOpError("slice ")
             << start << " to " << limit << " by " << stride << " leaves a dimension of " << size;
    shape.push_back((limit - start + stride - 1) / stride);
  }
  if (failed(expectSameElementType(*this, input, tensor(getOutput()))))
    return failure();
  return expectShape(*this, tensor(getOutput()), shape);
}

LogicalResult ConcatenateOp::verify() {
  if (getInputs().empty())
    return emitOpError("needs an operand");
  RankedTensorType first = tensor(getInputs().front());
  if (failed(expectDim(*this, getDim(), first)))
    return failure();
  SmallVector<int64_t> shape(first.getShape());
  shape[getDim()] = 0;
  for (Value input : getInputs()) {
    RankedTensorType type = tensor(input);
    if (failed(expectSameElementType(*this, first, type)))
      return failure();
    if (type.getRank() != first.getRank())
      return emitOpError("operands ") << first << " and " << type << " differ in rank";
    for (int64_t i = 0; i < type.getRank(); ++i)
      if (i != static_cast<int64_t>(getDim()) && type.getDimSize(i) != first.getDimSize(i))
        return emitOpError("operands ") << first << " and " << type << " differ in dimension " << i;
    shape[getDim()] += type.getDimSize(getDim());
  }
  return expectShape(*this, tensor(getOutput()), shape);
}

LogicalResult GatherOp::verify() {
  RankedTensorType input = tensor(getInput());
  int64_t dim = getDim();
  if (failed(expectDim(*this, dim, input)))
    return failure();
  SmallVector<int64_t> shape(input.getShape().take_front(dim));
  llvm::append_range(shape, tensor(getIndices()).getShape());
  llvm::append_range(shape, input.getShape().drop_front(dim + 1));
  if (failed(expectSameElementType(*this, input, tensor(getOutput()))))
    return failure();
  return expectShape(*this, tensor(getOutput()), shape);
}

//===----------------------------------------------------------------------===//
// Contractions and reductions
//===----------------------------------------------------------------------===//

/// L-DG1, L-DG2 for one list of pairs.
static LogicalResult verifyPairs(DotGeneralOp op, StringRef what, ArrayRef<int64_t> lhs,
                                 ArrayRef<int64_t> rhs, SmallVectorImpl<bool> &lhsSeen,
                                 SmallVectorImpl<bool> &rhsSeen) {
  RankedTensorType left = tensor(op.getLhs()), right = tensor(op.getRhs());
  if (lhs.size() != rhs.size())
    return op.emitOpError() << what << " lists " << lhs.size() << " and " << rhs.size()
                            << " dimensions";
  for (auto [a, b] : llvm::zip_equal(lhs, rhs)) {
    if (failed(expectDim(op, a, left)) || failed(expectDim(op, b, right)))
      return failure();
    if (std::exchange(lhsSeen[a], true) || std::exchange(rhsSeen[b], true))
      return op.emitOpError() << what << " names a dimension twice";
    if (left.getDimSize(a) != right.getDimSize(b))
      return op.emitOpError() << what << " dimensions are " << left.getDimSize(a) << " and "
                              << right.getDimSize(b);
  }
  return success();
}

LogicalResult DotGeneralOp::verify() {
  RankedTensorType left = tensor(getLhs()), right = tensor(getRhs());
  SmallVector<bool> lhsSeen(left.getRank(), false), rhsSeen(right.getRank(), false);
  // L-DG3
  bool widens = (left.getElementType().isF16() || left.getElementType().isBF16()) &&
                tensor(getOutput()).getElementType().isF32();
  if (failed(expectSameElementType(*this, left, right)) ||
      (!widens && failed(expectSameElementType(*this, left, tensor(getOutput())))) ||
      failed(verifyPairs(*this, "batch", getLhsBatch(), getRhsBatch(), lhsSeen, rhsSeen)) ||
      failed(verifyPairs(*this, "contract", getLhsContract(), getRhsContract(), lhsSeen, rhsSeen)))
    return failure();
  SmallVector<int64_t> shape;
  for (int64_t dim : getLhsBatch())
    shape.push_back(left.getDimSize(dim));
  for (int64_t dim : getLhsFreeDims())
    shape.push_back(left.getDimSize(dim));
  for (int64_t dim : getRhsFreeDims())
    shape.push_back(right.getDimSize(dim));
  return expectShape(*this, tensor(getOutput()), shape);
}

LogicalResult ReduceOp::verify() {
  RankedTensorType input = tensor(getInput());
  SmallVector<int64_t> shape;
  for (auto [i, dim] : llvm::enumerate(getDims())) {
    if (failed(expectDim(*this, dim, input)))
      return failure();
    if (i && getDims()[i - 1] >= dim) // L-RD1
      return emitOpError("dims must increase");
  }
  for (int64_t i = 0; i < input.getRank(); ++i)
    if (!llvm::is_contained(getDims(), i))
      shape.push_back(input.getDimSize(i));
  if (failed(expectSameElementType(*this, input, tensor(getOutput()))))
    return failure();
  return expectShape(*this, tensor(getOutput()), shape); // L-RD2
}

LogicalResult SoftmaxOp::verify() { return expectDim(*this, getDim(), tensor(getInput())); }

static LogicalResult verifyRowNorm(Operation *op) {
  RankedTensorType input = tensor(op->getOperand(0));
  if (input.getRank() == 0)
    return op->emitOpError("needs an input of rank 1 or more");
  for (Value parameter : op->getOperands().drop_front())
    if (tensor(parameter).getShape() != input.getShape().take_back(1))
      return op->emitOpError("parameter is ")
             << parameter.getType() << " for rows of " << input.getShape().back();
  return success();
}

LogicalResult LayerNormOp::verify() { return verifyRowNorm(*this); }
LogicalResult RmsNormOp::verify() { return verifyRowNorm(*this); }

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

LogicalResult GetWeightOp::verifySymbolUses(SymbolTableCollection &symbols) {
  Operation *symbol = symbols.lookupNearestSymbolFrom(*this, getNameAttr());
  RankedTensorType global;
  if (auto weight = dyn_cast_or_null<WeightOp>(symbol))
    global = weight.getTensorType();
  else if (auto derived = dyn_cast_or_null<DerivedOp>(symbol))
    global = derived.getTensorType();
  else
    return emitOpError("names no weight: ") << getNameAttr();
  if (!getSharding() && global != getOutput().getType())
    return emitOpError("has type ") << getOutput().getType() << ", the weight " << global;
  return success();
}
