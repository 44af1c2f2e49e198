//===- WidenBody.cpp - narrow floats are computed in f32 ------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A kernel computes f16, bf16 and 8-bit floats in f32 until it stores them: one rounding instead of
// one per operation, and no conversions back and forth. Conversions that the program asks for stay,
// and comparisons are of rounded values.
//
//===----------------------------------------------------------------------===//
#include "compiler/codegen/Nest.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::codegen;

namespace {

bool isNarrow(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  auto element = type ? dyn_cast<FloatType>(type.getElementType()) : FloatType();
  return element && element.getWidth() < 32;
}

/// Operations that only pass elements on; they stay narrow if their operands are.
bool isMove(Operation *op) {
  return isa<loom::BroadcastOp, loom::ReshapeOp, loom::TransposeOp, loom::SliceOp,
             loom::ConcatenateOp, loom::GatherOp, loom::GatherElementsOp, loom::ReverseOp,
             loom::PadOp, loom::WindowOp, loom::SelectOp>(op);
}

class Widener {
public:
  explicit Widener(MLIRContext *context) : wide(Float32Type::get(context)) {}

  void visit(Operation *op) {
    if (isa<loom::ConstantOp>(op) || loom::isLaneOp(op))
      return;
    // A conversion reads the f32 value and rounds as the program asks. One to f32 may now be an
    // identity. It is erased only at the end: users of its output want f32, while users of its
    // input may still get that narrowed.
    if (auto change = dyn_cast<loom::ConvertOp>(op)) {
      if (change.getInput().getType() == change.getOutput().getType())
        identities.push_back(change);
      return;
    }
    bool isUniform =
        isa<loom::KernelBodyInterface, loom::ReduceOp, loom::SoftmaxOp, loom::ArgReduceOp>(op) ||
        op->hasTrait<loom::NormalizesRows>() || isMove(op);
    if (!isUniform || isa<loom::BitcastConvertOp>(op))
      return setOperands(op, /*toWide=*/false);
    auto isWidened = [&](Value value) { return narrowTypes.contains(value); };
    bool touches = llvm::any_of(op->getOperands(), isNarrow) ||
                   llvm::any_of(op->getOperands(), isWidened) ||
                   llvm::any_of(op->getResults(), isNarrow);
    if (!touches || (isMove(op) && llvm::none_of(op->getOperands(), isWidened)))
      return;
    // Another kernel may have rounded one of two equal values.
    if (isa<loom::CompareOp>(op))
      setOperands(op, /*toWide=*/false);
    setOperands(op, /*toWide=*/true);
    if (auto pad = dyn_cast<loom::PadOp>(op))
      pad.setValueAttr(FloatAttr::get(wide, cast<FloatAttr>(pad.getValue()).getValueAsDouble()));
    for (Value result : op->getResults())
      if (isNarrow(result)) {
        auto type = cast<RankedTensorType>(result.getType());
        narrowTypes[result] = type;
        result.setType(type.clone(wide));
      }
  }

  void eraseIdentities() {
    for (loom::ConvertOp change : identities) {
      change.getOutput().replaceAllUsesWith(change.getInput());
      change.erase();
    }
  }

  void setOperands(Operation *op, bool toWide) {
    for (OpOperand &operand : op->getOpOperands())
      operand.set(toWide ? getWide(operand.get()) : getNarrow(operand.get()));
  }

private:
  /// The value as f32, if it is a narrow float.
  Value getWide(Value value) {
    return isNarrow(value) ? convert(value, cast<RankedTensorType>(value.getType()).clone(wide))
                           : value;
  }
  /// The value in the type the program gave it.
  Value getNarrow(Value value) {
    auto found = narrowTypes.find(value);
    return found == narrowTypes.end() ? value : convert(value, found->second);
  }

  Value convert(Value value, RankedTensorType type) {
    Value &known = conversions[value];
    if (known)
      return known;
    OpBuilder builder(wide.getContext());
    builder.setInsertionPointAfterValue(value);
    if (auto constant = value.getDefiningOp<loom::ConstantOp>())
      if (auto splat = dyn_cast<SplatElementsAttr>(constant.getValue()))
        return known = loom::ConstantOp::create(
                   builder, value.getLoc(),
                   DenseElementsAttr::get(
                       type, static_cast<Attribute>(builder.getFloatAttr(
                                 wide, splat.getSplatValue<APFloat>().convertToDouble()))));
    return known = loom::ConvertOp::create(builder, value.getLoc(), type, value);
  }

  Type wide;
  llvm::DenseMap<Value, RankedTensorType> narrowTypes; // of values that are f32 now
  llvm::DenseMap<Value, Value> conversions;            // to the other type
  SmallVector<loom::ConvertOp> identities;
};

} // namespace

void gridloom::codegen::widenBody(plan::KernelOp kernel) {
  Widener widener(kernel.getContext());
  Block &block = kernel.getBody().front();
  for (Operation &op : llvm::make_early_inc_range(block.without_terminator()))
    widener.visit(&op);
  widener.setOperands(block.getTerminator(), /*toWide=*/false);
  widener.eraseIdentities();
}
