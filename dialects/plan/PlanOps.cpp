//===- PlanOps.cpp - the operations' C++ ----------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/plan/Plan.h"

using namespace mlir;
using namespace gridloom::plan;

#define GET_OP_CLASSES
#include "dialects/plan/PlanOps.cpp.inc"

LogicalResult CallOp::verifySymbolUses(SymbolTableCollection &symbols) {
  auto kernel = symbols.lookupNearestSymbolFrom<KernelOp>(*this, getKernelAttr());
  if (!kernel)
    return emitOpError("names no kernel: ") << getKernelAttr();
  Block &body = kernel.getBody().front();
  if (body.getArgumentTypes() != getInputs().getTypes())
    return emitOpError("operands differ in type from the arguments of ") << getKernelAttr();
  if (body.getTerminator()->getOperandTypes() != getOutputs().getTypes())
    return emitOpError("results differ in type from what ") << getKernelAttr() << " yields";
  return success();
}

LogicalResult ConvolutionOp::verify() {
  if ((getBias() != nullptr) != getDescriptor().getBias() ||
      (getResidual() != nullptr) != getDescriptor().getResidual())
    return emitOpError("has other operands than its descriptor says");
  return success();
}

LogicalResult AttentionOp::verify() {
  if ((getMask() != nullptr) == getDescriptor().getMask().empty())
    return emitOpError("has other operands than its descriptor says");
  return success();
}
