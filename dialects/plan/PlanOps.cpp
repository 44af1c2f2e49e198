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
  EpilogueAttr epilogue = getDescriptor().getEpilogue();
  if ((getBias() != nullptr) != epilogue.getBias() ||
      (getResidual() != nullptr) != epilogue.getResidual())
    return emitOpError("has other operands than its descriptor says");
  return success();
}

LogicalResult GroupOp::verify() {
  GroupKind kind = getKind();
  StringRef name = stringifyGroupKind(kind);
  bool reduces = kind == GroupKind::AllReduce || kind == GroupKind::ReduceScatter;
  bool transfers = kind == GroupKind::Send || kind == GroupKind::Recv;
  if (getReduction().has_value() != reduces) // P-GR1
    return emitOpError() << (reduces ? "needs" : "has") << " a reduction; its kind is " << name;
  if (getStage().has_value() != transfers || getChannel().has_value() != transfers) // P-GR2
    return emitOpError() << (transfers ? "needs" : "has") << " a stage and a channel; its kind is "
                         << name;
  if (getRoot().has_value() != (kind == GroupKind::Broadcast) ||
      getPermutation().has_value() != (kind == GroupKind::Permute)) // P-GR3
    return emitOpError() << "has another root or permutation than its kind needs, " << name;
  StreamAttr stream = StreamAttr::getOf(kind, getAxes(), transfers ? *getStage() : -1);
  if (getStream() != stream) // P-GR4
    return emitOpError() << "is on stream '" << getStream().getName() << "'; its ranks meet on '"
                         << stream.getName() << "'";
  return success();
}

LogicalResult AttentionOp::verify() {
  if ((getMask() != nullptr) == getDescriptor().getMask().empty())
    return emitOpError("has other operands than its descriptor says");
  return success();
}
