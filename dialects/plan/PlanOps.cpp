//===- PlanOps.cpp - the operations' C++ ----------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/plan/Plan.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::plan;

#define GET_OP_CLASSES
#include "dialects/plan/PlanOps.cpp.inc"

std::string gridloom::plan::formatDims(DictionaryAttr dims) {
  std::string text;
  for (NamedAttribute dim : dims)
    text += (text.empty() ? "" : ",") + dim.getName().str() + "=" +
            std::to_string(cast<IntegerAttr>(dim.getValue()).getInt());
  return text;
}

//===----------------------------------------------------------------------===//
// kernel
//===----------------------------------------------------------------------===//

/// True if each element of the operation's result needs only the operand's element at the same
/// position in row-major order.
static bool readsInPlace(Operation *op, OpOperand &operand) {
  // A scatter updates a copy, and running values are computed over the elements, one after another.
  if (isa<loom::ScatterOp, loom::CumulativeOp>(op))
    return operand.getOperandNumber() == 0;
  auto countElements = [](Value value) {
    return cast<RankedTensorType>(value.getType()).getNumElements();
  };
  return isa<loom::KernelBodyInterface, loom::BroadcastOp, loom::ReshapeOp>(op) &&
         countElements(operand.get()) == countElements(op->getResult(0));
}

/// True for operations of kernels that compute one output element after another. Operations that
/// combine or move elements make a kernel read ahead.
static bool isElementByElement(Operation *op) {
  return isa<loom::KernelBodyInterface, loom::ConstantOp, loom::IotaOp, loom::BroadcastOp,
             loom::ReshapeOp, loom::GatherOp, loom::ScatterOp, loom::CumulativeOp>(op);
}

/// True if the body reads, for each element of the output, only the element of argument `input` at
/// the same position. Outputs of one shape are computed together: an element of all of them before
/// any is written.
static bool isReadInPlace(Block &body, unsigned output, unsigned input) {
  llvm::DenseSet<Value> inPlace, elsewhere;
  auto shapeOf = [](Value value) { return cast<RankedTensorType>(value.getType()).getShape(); };
  ArrayRef<int64_t> shape = shapeOf(body.getTerminator()->getOperand(output));
  for (Value result : body.getTerminator()->getOperands())
    (shapeOf(result) == shape ? inPlace : elsewhere).insert(result);
  for (Operation &op : llvm::drop_begin(llvm::reverse(body))) {
    if (!isElementByElement(&op))
      return false;
    bool isHere = llvm::any_of(op.getResults(), [&](Value each) { return inPlace.contains(each); });
    bool isThere =
        llvm::any_of(op.getResults(), [&](Value each) { return elsewhere.contains(each); });
    for (OpOperand &operand : op.getOpOperands()) {
      if (isHere)
        (readsInPlace(&op, operand) ? inPlace : elsewhere).insert(operand.get());
      if (isThere)
        elsewhere.insert(operand.get());
    }
  }
  Value argument = body.getArgument(input);
  return inPlace.contains(argument) && !elsewhere.contains(argument);
}

void KernelOp::recordInPlace() {
  Block &block = getBody().front();
  SmallVector<Attribute> pairs;
  for (auto [output, result] : llvm::enumerate(block.getTerminator()->getOperandTypes()))
    for (auto [input, type] : llvm::enumerate(block.getArgumentTypes()))
      if (loom::getByteSize(type) == loom::getByteSize(result) &&
          isReadInPlace(block, output, input))
        pairs.push_back(InPlaceAttr::get(getContext(), output, input));
  setInPlaceAttr(pairs.empty() ? ArrayAttr() : ArrayAttr::get(getContext(), pairs));
}

bool KernelOp::canRunInPlace(unsigned output, unsigned input) {
  return getInPlace() &&
         llvm::is_contained(*getInPlace(), InPlaceAttr::get(getContext(), output, input));
}

LogicalResult KernelOp::verifyRegions() {
  if (!getInPlace())
    return success();
  Block &block = getBody().front();
  bool hasYield = !block.empty() && isa<loom::YieldOp>(block.back());
  TypeRange outputs = hasYield ? TypeRange(block.back().getOperandTypes()) : TypeRange();
  for (auto pair : getInPlace()->getAsRange<InPlaceAttr>()) {
    unsigned output = pair.getOutput(), input = pair.getInput();
    if (output >= outputs.size()) // P-IP1
      return emitOpError("in_place names output ")
             << output << "; outputs are numbered from 0 and number " << outputs.size();
    if (input >= block.getNumArguments())
      return emitOpError("in_place names input ")
             << input << "; inputs are numbered from 0 and number " << block.getNumArguments();
    int64_t written = loom::getByteSize(outputs[output]);
    int64_t read = loom::getByteSize(block.getArgument(input).getType());
    if (written != read) // P-IP2
      return emitOpError("in_place gives output ")
             << output << " of " << written << " bytes the memory of input " << input << " of "
             << read << " bytes";
    if (!isReadInPlace(block, output, input)) // P-IP3
      return emitOpError("in_place gives output ")
             << output << " the memory of input " << input
             << ", of which the body does not read exactly the elements in their places";
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

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
  bool permutes = kind == GroupKind::Permute;
  if (getPermutation().has_value() != permutes) // P-GR3
    return emitOpError() << (permutes ? "needs" : "has") << " a permutation; its kind is " << name;
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
