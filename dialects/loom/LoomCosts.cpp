//===- LoomCosts.cpp - work of every operation ----------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/Float8.h"
#include "dialects/loom/Loom.h"

using namespace mlir;
using namespace gridloom::loom;

static int64_t elements(Value value) {
  return cast<RankedTensorType>(value.getType()).getNumElements();
}

int64_t gridloom::loom::getByteSize(Type type) {
  auto tensor = cast<RankedTensorType>(type);
  int64_t bits = tensor.getElementType().isIndex() ? 64 : tensor.getElementTypeBitWidth();
  return tensor.getNumElements() * ((bits + 7) / 8);
}

int64_t gridloom::loom::elementwiseFlops(Operation *op) {
  int64_t work = 0;
  for (Value result : op->getResults())
    work += elements(result);
  for (Value operand : op->getOperands())
    work = std::max(work, elements(operand));
  return work;
}

bool gridloom::loom::isFloatTensor(Value value) {
  return isa<FloatType>(getElementTypeOrSelf(value));
}

int64_t gridloom::loom::getConversionCycles(Value input, Value output) {
  return isFloat8(getElementTypeOrSelf(output))  ? 12
         : isFloat8(getElementTypeOrSelf(input)) ? 8
                                                 : 1;
}

int64_t ConstantOp::getFlops() { return 0; }
int64_t IotaOp::getFlops() { return 0; }
int64_t BroadcastOp::getFlops() { return 0; }
int64_t ReshapeOp::getFlops() { return 0; }
int64_t TransposeOp::getFlops() { return 0; }
int64_t SliceOp::getFlops() { return 0; }
int64_t ConcatenateOp::getFlops() { return 0; }
int64_t GatherOp::getFlops() { return 0; }
int64_t GetWeightOp::getFlops() { return 0; }

int64_t DotGeneralOp::getFlops() {
  int64_t contracted = 1;
  for (int64_t dim : getLhsContract())
    contracted *= cast<RankedTensorType>(getLhs().getType()).getDimSize(dim);
  return 2 * elements(getOutput()) * contracted;
}

// max, subtract, exp, sum, scale
int64_t SoftmaxOp::getFlops() { return 5 * elements(getInput()); }
// mean, centre, square and sum, scale, shift
int64_t LayerNormOp::getFlops() { return 7 * elements(getInput()); }
// square and sum, normalise, scale
int64_t RmsNormOp::getFlops() { return 4 * elements(getInput()); }
