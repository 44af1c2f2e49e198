//===- SetPrecision.cpp - loom-set-precision ------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/Control.h"
#include "dialects/loom/FullPrecision.h"
#include "passes/simplify/Precision.h"
#include "passes/simplify/Simplify.h"

namespace gridloom {
#define GEN_PASS_DEF_SETPRECISION
#include "passes/simplify/Passes.h.inc"
} // namespace gridloom

using namespace mlir;
using namespace gridloom;

namespace {

/// Gives values the types that the analysis found, and converts where types differ.
class Narrower {
public:
  Narrower(const PrecisionAnalysis &analysis, FloatType narrow)
      : analysis(analysis), narrow(narrow), wide(Float32Type::get(narrow.getContext())) {}

  void rewrite(func::FuncOp function) {
    for (Operation &op : llvm::make_early_inc_range(function.front()))
      rewrite(&op);
  }
  /// Changes the type of the states a function reads, before it is rewritten.
  void narrowStates(func::FuncOp function);

private:
  void rewrite(Operation *op);
  void rewriteReturn(func::ReturnOp op);
  void rewriteControl(Operation *op);
  void rewriteContraction(Operation *op);
  void rewriteUniform(Operation *op);
  Type getStored(Value value) const { return analysis.isWide(value) ? wide : narrow; }
  Value get(Value value, Type element);
  Value convert(Value value, Type element);
  DenseElementsAttr convertLiteral(DenseElementsAttr values, Type element) const;
  void setOperands(Operation *op, Type element);
  static void setElement(Value value, Type element) {
    value.setType(cast<RankedTensorType>(value.getType()).clone(element));
  }
  static Type getElement(Value value) {
    return cast<RankedTensorType>(value.getType()).getElementType();
  }
  /// Whether a value was f32 when the pass began.
  bool isFloat(Value value) const { return isF32Tensor(value) || narrowed.contains(value); }

  const PrecisionAnalysis &analysis;
  Type narrow, wide;
  llvm::DenseSet<Value> narrowed;           // values whose type was changed
  llvm::DenseMap<Value, Value> conversions; // to the other type
};

} // namespace

/// Numbers beyond the type's range become its largest: the lowest f32 of a pooling must be the
/// lowest number, not minus infinity.
DenseElementsAttr Narrower::convertLiteral(DenseElementsAttr values, Type element) const {
  const llvm::fltSemantics &semantics = cast<FloatType>(element).getFloatSemantics();
  auto round = [&](APFloat number) {
    bool wasFinite = number.isFinite(), loses = false;
    number.convert(semantics, APFloat::rmNearestTiesToEven, &loses);
    return wasFinite && number.isInfinity() ? APFloat::getLargest(semantics, number.isNegative())
                                            : number;
  };
  ShapedType type = values.getType().clone(element);
  if (values.isSplat())
    return DenseElementsAttr::get(type, round(values.getSplatValue<APFloat>()));
  return DenseElementsAttr::get(type, llvm::map_to_vector(values.getValues<APFloat>(), round));
}

Value Narrower::convert(Value value, Type element) {
  OpBuilder builder(value.getContext());
  builder.setInsertionPointAfterValue(value);
  if (auto constant = value.getDefiningOp<loom::ConstantOp>())
    return loom::ConstantOp::create(
        builder, constant.getLoc(),
        convertLiteral(cast<DenseElementsAttr>(constant.getValue()), element));
  Location loc = value.getLoc();
  // Values derived from a weight have the weight's name.
  if (auto weight = value.getDefiningOp<loom::GetWeightOp>())
    loc = NameLoc::get(weight.getNameAttr().getAttr());
  return loom::ConvertOp::create(builder, loc,
                                 cast<RankedTensorType>(value.getType()).clone(element), value);
}

/// The value as `element`. A value computed in f32 and stored in 16 bits is rounded first, unless
/// its only reader takes it unrounded; weights are available in f32.
Value Narrower::get(Value value, Type element) {
  if (getElement(value) == element) {
    bool isRounded = element == wide && getStored(value) == narrow && !value.hasOneUse() &&
                     !isa_and_nonnull<loom::ConstantOp, loom::GetWeightOp>(value.getDefiningOp());
    if (!isRounded)
      return value;
    Value &twice = conversions[get(value, narrow)];
    return twice ? twice : twice = convert(get(value, narrow), wide);
  }
  if (Value known = conversions.lookup(value))
    return known;
  Value made = convert(value, element);
  conversions[value] = made;
  return made;
}

void Narrower::setOperands(Operation *op, Type element) {
  for (OpOperand &operand : op->getOpOperands())
    if (isFloat(operand.get()))
      operand.set(get(operand.get(), element));
}

void Narrower::narrowStates(func::FuncOp function) {
  for (auto [i, argument] : llvm::enumerate(function.getArguments())) {
    auto state = function.getArgAttrOfType<StringAttr>(i, loom::kState);
    if (!state || !analysis.isNarrowState(state))
      continue;
    setElement(argument, narrow);
    narrowed.insert(argument);
  }
}

/// The caller gets results in f32.
void Narrower::rewriteReturn(func::ReturnOp op) {
  auto function = op->getParentOfType<func::FuncOp>();
  for (OpOperand &operand : op->getOpOperands()) {
    auto state = function.getResultAttrOfType<StringAttr>(operand.getOperandNumber(), loom::kState);
    bool isNarrow = state && analysis.isNarrowState(state);
    if (isFloat(operand.get()))
      operand.set(get(operand.get(), isNarrow ? narrow : wide));
  }
  function.setFunctionType(FunctionType::get(op.getContext(), function.front().getArgumentTypes(),
                                             op.getOperandTypes()));
}

void Narrower::rewriteControl(Operation *op) {
  for (OpOperand &operand : op->getOpOperands())
    if (isFloat(operand.get()))
      operand.set(get(operand.get(), analysis.takesWide(operand) ? wide : narrow));
  for (loom::BodyLink &link : loom::getBodies(op)) {
    func::FuncOp body = link.body;
    for (auto [argument, operand] : llvm::zip_equal(body.getArguments(), link.operands)) {
      if (argument.getType() == op->getOperand(operand).getType())
        continue;
      argument.setType(op->getOperand(operand).getType());
      narrowed.insert(argument);
    }
    body.setFunctionType(FunctionType::get(body.getContext(), body.front().getArgumentTypes(),
                                           body.getFunctionType().getResults()));
    rewrite(body);
  }
}

/// 16-bit operands are summed in f32, and the sum is rounded unless a reader needs it unrounded.
void Narrower::rewriteContraction(Operation *op) {
  Value result = op->getResult(0);
  if (analysis.isFull(op))
    return setOperands(op, wide);
  setOperands(op, narrow);
  if (isa<loom::ConvolutionOp>(op) || !analysis.isWide(result)) {
    setElement(result, narrow);
    narrowed.insert(result);
  }
}

void Narrower::rewriteUniform(Operation *op) {
  Type element = analysis.computesWide(op) ? wide : narrow;
  for (OpOperand &operand : op->getOpOperands()) {
    bool isOfNorm = op->hasTrait<loom::NormalizesRows>() && operand.getOperandNumber() > 0;
    if (isFloat(operand.get()))
      operand.set(get(operand.get(), isOfNorm ? wide : element));
  }
  if (element == wide)
    return;
  if (auto pad = dyn_cast<loom::PadOp>(op); pad && pad.getValue().getType() == wide) {
    auto literal = DenseElementsAttr::get(RankedTensorType::get({}, wide),
                                          static_cast<Attribute>(pad.getValue()));
    pad.setValueAttr(cast<TypedAttr>(convertLiteral(literal, narrow).getSplatValue<Attribute>()));
  }
  for (Value result : op->getResults())
    if (isF32Tensor(result)) {
      setElement(result, narrow);
      narrowed.insert(result);
    }
}

void Narrower::rewrite(Operation *op) {
  bool isOfFloats = llvm::any_of(op->getOperands(), [&](Value value) { return isFloat(value); }) ||
                    llvm::any_of(op->getResults(), isF32Tensor);
  if (!isOfFloats || isa<loom::ConstantOp, loom::GetWeightOp>(op))
    return;
  if (auto end = dyn_cast<func::ReturnOp>(op))
    return rewriteReturn(end);
  if (loom::isControl(op))
    return rewriteControl(op);
  if (isa<loom::DotGeneralOp, loom::ConvolutionOp>(op))
    return rewriteContraction(op);
  auto change = dyn_cast<loom::ConvertOp>(op);
  if (!change)
    return rewriteUniform(op);
  // A conversion takes its operand as it is stored.
  if (isFloat(change.getInput()))
    change.getInputMutable().assign(get(change.getInput(), getStored(change.getInput())));
  if (isF32Tensor(change.getOutput()) && !analysis.isWide(change.getOutput())) {
    setElement(change.getOutput(), narrow);
    narrowed.insert(change.getOutput());
  }
}

namespace {
struct SetPrecisionPass : gridloom::impl::SetPrecisionBase<SetPrecisionPass> {
  using SetPrecisionBase::SetPrecisionBase;

  void runOnOperation() override {
    setPrecision();
    getOperation().walk([](Operation *op) { op->removeDiscardableAttr(loom::kFullPrecision); });
  }

private:
  void setPrecision() {
    ModuleOp module = getOperation();
    MLIRContext *context = &getContext();
    FloatType narrow;
    if (precision == "bf16")
      narrow = BFloat16Type::get(context);
    else if (precision == "f16")
      narrow = Float16Type::get(context);
    else if (precision == "f32")
      return;
    else if (precision != "tf32") {
      module.emitError("unknown precision '") << precision << "'; write f32, tf32, bf16 or f16";
      return signalPassFailure();
    }
    module->setAttr(loom::kPrecision, StringAttr::get(context, precision));
    PrecisionAnalysis analysis(module, narrow);
    for (auto [op, reason] : analysis.getReasons())
      if (narrow || analysis.isFull(op))
        op->emitRemark() << op->getName().stripDialect() << " stays f32: " << reason;
    if (!narrow)
      return markContractions(module, analysis);
    Narrower narrower(analysis, narrow);
    for (auto function : module.getOps<func::FuncOp>())
      if (!loom::isBody(function)) {
        narrower.narrowStates(function);
        narrower.rewrite(function);
      }
    eraseDead(module);
  }

  static void markContractions(ModuleOp module, const PrecisionAnalysis &analysis) {
    module.walk([&](Operation *op) {
      if (!op->getParentOfType<func::FuncOp>() || analysis.isFull(op))
        return;
      if (auto dot = dyn_cast<loom::DotGeneralOp>(op); dot && isF32Tensor(dot.getOutput()))
        dot.setTf32(true);
      if (auto conv = dyn_cast<loom::ConvolutionOp>(op); conv && isF32Tensor(conv.getOutput()))
        conv.setTf32(true);
    });
  }

  /// Erases literals, weights and conversions of which only the other type is read.
  static void eraseDead(ModuleOp module) {
    for (auto function : module.getOps<func::FuncOp>())
      for (Operation &op : llvm::make_early_inc_range(llvm::reverse(function.front())))
        if (isa<loom::ConstantOp, loom::ConvertOp, loom::GetWeightOp>(op) && op.use_empty())
          op.erase();
  }
};
} // namespace
