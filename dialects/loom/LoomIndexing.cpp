//===- LoomIndexing.cpp - verifiers and costs of indexing operations ------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Verifiers and costs of the operations in LoomIndexing.td.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/Loom.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::loom;

bool gridloom::loom::isLaneOp(Operation *op) { return isa<CumulativeOp, ScatterOp, ArgsortOp>(op); }

//===----------------------------------------------------------------------===//
// Verifiers
//===----------------------------------------------------------------------===//

static LogicalResult expectDim(Operation *op, int64_t dim, RankedTensorType type) {
  if (dim >= 0 && dim < type.getRank())
    return success();
  return op->emitOpError("dim ") << dim << " is not a dimension of " << type;
}

/// Fails unless the shapes agree in all dimensions but `dim`.
static LogicalResult expectEqualBeside(Operation *op, StringRef what, RankedTensorType a,
                                       RankedTensorType b, int64_t dim) {
  if (a.getRank() != b.getRank())
    return op->emitOpError("input ") << a << " and " << what << " " << b << " differ in rank";
  for (int64_t i = 0; i < a.getRank(); ++i)
    if (i != dim && a.getDimSize(i) != b.getDimSize(i))
      return op->emitOpError("input ")
             << a << " and " << what << " " << b << " differ in dimension " << i;
  return success();
}

LogicalResult BitcastConvertOp::verify() {
  Type from = getInput().getType().getElementType(), to = getOutput().getType().getElementType();
  if (from.isInteger(1) || to.isInteger(1) ||
      from.getIntOrFloatBitWidth() != to.getIntOrFloatBitWidth()) // L-BT1
    return emitOpError("reads ") << from << " as " << to << "; their widths differ";
  return success();
}

LogicalResult ReverseOp::verify() {
  for (auto [i, dim] : llvm::enumerate(getDims())) { // L-RV1
    if (failed(expectDim(*this, dim, getInput().getType())))
      return failure();
    if (i && getDims()[i - 1] >= dim)
      return emitOpError("dims must increase");
  }
  return success();
}

LogicalResult GatherElementsOp::verify() {
  RankedTensorType input = getInput().getType(), indices = getIndices().getType();
  if (failed(expectDim(*this, getDim(), input)) ||
      failed(expectEqualBeside(*this, "indices", input, indices, getDim()))) // L-GE1
    return failure();
  if (getOutput().getType() != indices.clone(input.getElementType())) // L-GE2
    return emitOpError("result is ")
           << getOutput().getType() << ", expected " << indices.clone(input.getElementType());
  return success();
}

LogicalResult ScatterOp::verify() {
  RankedTensorType input = getInput().getType(), indices = getIndices().getType(),
                   updates = getUpdates().getType();
  if (failed(expectDim(*this, getDim(), input)) ||
      failed(expectEqualBeside(*this, "updates", input, updates, getDim())))
    return failure();
  if (input.getElementType() != updates.getElementType()) // L-SC1
    return emitOpError("element types ")
           << input.getElementType() << " and " << updates.getElementType() << " differ";
  bool bySlice = indices.getShape() == ArrayRef<int64_t>{updates.getDimSize(getDim())};
  if (indices.getShape() != updates.getShape() && !bySlice) // L-SC2
    return emitOpError("indices ")
           << indices << " are neither one per element nor one per slice of " << updates
           << " along dim " << getDim();
  return success();
}

LogicalResult CumulativeOp::verify() { return expectDim(*this, getDim(), getInput().getType()); }

LogicalResult ArgReduceOp::verify() {
  RankedTensorType input = getInput().getType();
  if (failed(expectDim(*this, getDim(), input)))
    return failure();
  if (getKind() != dist::ReductionKind::Max && getKind() != dist::ReductionKind::Min) // L-AR1
    return emitOpError("kind is ")
           << dist::stringifyReductionKind(getKind()) << ", expected max or min";
  SmallVector<int64_t> shape(input.getShape());
  shape.erase(shape.begin() + getDim());
  if (input.getDimSize(getDim()) == 0) // L-AR2
    return emitOpError("dim ") << getDim() << " of " << input << " is empty";
  if (getOutput().getType().getShape() != ArrayRef<int64_t>(shape))
    return emitOpError("result is ")
           << getOutput().getType() << ", expected " << getOutput().getType().clone(shape);
  return success();
}

LogicalResult ArgsortOp::verify() {
  RankedTensorType input = getInput().getType(), output = getOutput().getType();
  if (failed(expectDim(*this, getDim(), input)) ||
      failed(expectEqualBeside(*this, "result", input, output, getDim()))) // L-AS1
    return failure();
  if (output.getDimSize(getDim()) > input.getDimSize(getDim()))
    return emitOpError("takes ") << output.getDimSize(getDim()) << " of "
                                 << input.getDimSize(getDim()) << " elements";
  return success();
}

//===----------------------------------------------------------------------===//
// Costs
//===----------------------------------------------------------------------===//

int64_t ReverseOp::getFlops() { return 0; }
int64_t GatherElementsOp::getFlops() { return 0; }
int64_t ScatterOp::getFlops() {
  return getReduction() ? getUpdates().getType().getNumElements() : 0;
}
int64_t CumulativeOp::getFlops() { return getInput().getType().getNumElements(); }
// Find the peak, compare with it, find the first place.
int64_t ArgReduceOp::getFlops() { return 3 * getInput().getType().getNumElements(); }
/// One comparison per element and level of the merges; a level more, since they cannot be foreseen.
int64_t ArgsortOp::getFlops() {
  int64_t taken = std::max<int64_t>(getOutput().getType().getDimSize(getDim()), 1);
  return getInput().getType().getNumElements() * 4 * (llvm::Log2_64_Ceil(taken) + 1);
}
