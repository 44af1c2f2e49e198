//===- Folding.cpp - fold operations on constants -------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/simplify/Folding.h"

#include <cmath>
#include <numeric>

using namespace mlir;
using namespace gridloom;

DenseElementsAttr gridloom::getConstant(Value value) {
  auto constant = value.getDefiningOp<loom::ConstantOp>();
  return constant ? dyn_cast<DenseElementsAttr>(constant.getValue()) : DenseElementsAttr();
}

std::optional<double> gridloom::getSplat(Value value) {
  DenseElementsAttr constant = getConstant(value);
  if (!constant || !constant.isSplat())
    return std::nullopt;
  Type type = constant.getElementType();
  if (auto element = dyn_cast<FloatAttr>(constant.getSplatValue<Attribute>()))
    return element.getValueAsDouble();
  auto element = cast<IntegerAttr>(constant.getSplatValue<Attribute>());
  bool isUnsigned = type.isInteger(1) || type.isUnsignedInteger();
  return isUnsigned ? static_cast<double>(element.getValue().getZExtValue())
                    : static_cast<double>(element.getValue().getSExtValue());
}

bool gridloom::isSplatNear(Value value, double number) {
  if (!isa<FloatType>(cast<RankedTensorType>(value.getType()).getElementType()))
    return false;
  std::optional<double> splat = getSplat(value);
  return splat && std::abs(*splat - number) <= 1e-6 * std::abs(number);
}

Value gridloom::createSplat(OpBuilder &builder, Location loc, RankedTensorType type,
                            double number) {
  std::optional<loom::ElementKind> kind = loom::getElementKind(type.getElementType());
  assert(kind && "element type the compiler does not compute with");
  loom::HostTensor element = loom::HostTensor::fromDoubles(*kind, {}, {number});
  DenseElementsAttr value = element.toAttribute(builder.getContext()).resizeSplat(type);
  return loom::ConstantOp::create(builder, loc, value);
}

/// `value` as a splat of one element, if it is one.
static DenseElementsAttr getScalar(DenseElementsAttr value) {
  if (!value.isSplat())
    return {};
  return value.resizeSplat(RankedTensorType::get({}, value.getElementType()));
}

bool gridloom::canFold(Operation *op) {
  return op->getNumResults() == 1 && isa<loom::EvaluateInterface>(op) &&
         !isa<loom::RandomBitsOp>(op);
}

/// The elements of the padded input and of all windows, which evaluating a window operation copies;
/// 0 for other operations.
static double countWindowElements(Operation *op) {
  if (!isa<loom::ReduceWindowOp, loom::ConvolutionOp>(op))
    return 0;
  auto input = cast<RankedTensorType>(op->getOperand(0).getType());
  auto result = cast<RankedTensorType>(op->getResult(0).getType());
  SmallVector<double> padded(input.getShape());
  double read = result.getNumElements();
  if (auto window = dyn_cast<loom::ReduceWindowOp>(op)) {
    for (auto [dim, low, high, size] :
         llvm::zip_equal(window.getDims(), window.getLow(), window.getHigh(), window.getSizes())) {
      padded[dim] += static_cast<double>(low) + static_cast<double>(high);
      read *= static_cast<double>(size);
    }
  } else if (auto conv = dyn_cast<loom::ConvolutionOp>(op)) {
    for (auto [i, low, high, dilation] :
         llvm::enumerate(conv.getLow(), conv.getHigh(), conv.getInputDilations()))
      padded[i + 2] = (padded[i + 2] - 1) * static_cast<double>(dilation) + 1 +
                      static_cast<double>(low) + static_cast<double>(high);
    for (int64_t size : cast<RankedTensorType>(op->getOperand(1).getType()).getShape().drop_front())
      read *= static_cast<double>(size);
  }
  return std::max(read, std::accumulate(padded.begin(), padded.end(), 1.0, std::multiplies<>()));
}

static FailureOr<DenseElementsAttr> evaluate(Operation *op, ArrayRef<DenseElementsAttr> operands) {
  int64_t bytes = 0;
  for (DenseElementsAttr operand : operands)
    bytes += loom::getByteSize(operand.getType());
  if (bytes > kMaxReadBytes || countWindowElements(op) > kMaxWindowElements)
    return DenseElementsAttr();
  SmallVector<loom::HostTensor> tensors;
  for (DenseElementsAttr operand : operands) {
    FailureOr<loom::HostTensor> tensor = loom::HostTensor::fromAttribute(operand);
    if (failed(tensor))
      return DenseElementsAttr();
    tensors.push_back(*tensor);
  }
  FailureOr<SmallVector<loom::HostTensor>> results =
      cast<loom::EvaluateInterface>(op).evaluate(tensors);
  if (failed(results))
    return failure();
  return results->front().toAttribute(op->getContext());
}

/// Computes an elementwise operation on splats on one element.
static FailureOr<DenseElementsAttr> foldSplats(Operation *op,
                                               ArrayRef<DenseElementsAttr> operands) {
  auto type = cast<RankedTensorType>(op->getResult(0).getType());
  SmallVector<DenseElementsAttr> scalars = llvm::map_to_vector(operands, getScalar);
  OpBuilder builder(op->getContext());
  SmallVector<Value> values;
  SmallVector<Operation *> detached;
  for (DenseElementsAttr scalar : scalars) {
    auto constant = loom::ConstantOp::create(builder, op->getLoc(), scalar);
    values.push_back(constant);
    detached.push_back(constant);
  }
  OperationState state(op->getLoc(), op->getName());
  state.addOperands(values);
  state.addTypes(RankedTensorType::get({}, type.getElementType()));
  state.propertiesAttr = op->getPropertiesAsAttribute();
  Operation *scalarOp = Operation::create(state);
  FailureOr<DenseElementsAttr> result = evaluate(scalarOp, scalars);
  scalarOp->destroy();
  for (Operation *constant : detached)
    constant->destroy();
  if (failed(result) || !*result)
    return result;
  return result->resizeSplat(type);
}

/// What one evaluation has computed. Without it, an expression that reads its parts twice would
/// take time exponential in its depth.
using KnownValues = llvm::SmallDenseMap<Value, DenseElementsAttr>;

/// The values of all operands; empty if one is not known.
static FailureOr<SmallVector<DenseElementsAttr>> evaluateOperands(Operation *op, int depth,
                                                                  KnownValues &known);

/// evaluateConstant for an expression at most `depth` operations deep.
static FailureOr<DenseElementsAttr> evaluateConstant(Value value, int depth, KnownValues &known) {
  if (DenseElementsAttr constant = getConstant(value))
    return constant;
  Operation *op = value.getDefiningOp();
  if (!op || depth == 0 || !canFold(op) || loom::getByteSize(value.getType()) > kMaxFoldedBytes)
    return DenseElementsAttr();
  // Of operations without operands only an iota has a value at compile time; a weight does not.
  if (op->getNumOperands() == 0 && !isa<loom::IotaOp>(op))
    return DenseElementsAttr();
  if (DenseElementsAttr before = known.lookup(value))
    return before;
  FailureOr<SmallVector<DenseElementsAttr>> operands = evaluateOperands(op, depth - 1, known);
  if (failed(operands))
    return failure();
  if (operands->size() != op->getNumOperands())
    return DenseElementsAttr();
  FailureOr<DenseElementsAttr> result = evaluate(op, *operands);
  if (succeeded(result))
    known[value] = *result;
  return result;
}

static FailureOr<SmallVector<DenseElementsAttr>> evaluateOperands(Operation *op, int depth,
                                                                  KnownValues &known) {
  SmallVector<DenseElementsAttr> operands;
  for (Value operand : op->getOperands()) {
    FailureOr<DenseElementsAttr> value = evaluateConstant(operand, depth, known);
    if (failed(value))
      return failure();
    if (!*value)
      return SmallVector<DenseElementsAttr>();
    operands.push_back(*value);
  }
  return operands;
}

/// Enough for the operations of one ONNX node and those that compute its operands from counters.
static constexpr int kDeepest = 16;

FailureOr<DenseElementsAttr> gridloom::evaluateConstant(Value value) {
  KnownValues known;
  return ::evaluateConstant(value, kDeepest, known);
}

FailureOr<DenseElementsAttr> gridloom::foldOperation(Operation *op) {
  if (op->getNumOperands() == 0 || !canFold(op))
    return DenseElementsAttr();
  // An empty result needs no computation, whatever the operands are.
  if (auto empty = cast<RankedTensorType>(op->getResult(0).getType()); empty.getNumElements() == 0)
    return DenseElementsAttr::get(empty, ArrayRef<Attribute>());
  SmallVector<DenseElementsAttr> operands = llvm::map_to_vector(op->getOperands(), getConstant);
  bool isConstant = llvm::all_of(operands, [](DenseElementsAttr value) { return bool(value); });
  // Counters alone stay: kernels compute them more cheaply than they read a table. With a table
  // among the operands, the result becomes a table.
  if (!isConstant) {
    auto isTable = [](DenseElementsAttr value) { return value && !value.isSplat(); };
    if (llvm::none_of(operands, isTable) ||
        loom::getByteSize(op->getResult(0).getType()) > kMaxFoldedBytes)
      return DenseElementsAttr();
    KnownValues known;
    FailureOr<SmallVector<DenseElementsAttr>> values = evaluateOperands(op, kDeepest, known);
    if (failed(values))
      return failure();
    if (values->empty())
      return DenseElementsAttr();
    operands = std::move(*values);
  }
  auto type = cast<RankedTensorType>(op->getResult(0).getType());
  if (type.getNumElements() > 0) {
    if (isa<loom::KernelBodyInterface>(op) &&
        llvm::all_of(operands, [](DenseElementsAttr value) { return value.isSplat(); }))
      return foldSplats(op, operands);
    if (isa<loom::BroadcastOp, loom::ReshapeOp, loom::TransposeOp, loom::SliceOp>(op) &&
        operands[0].isSplat())
      return operands[0].resizeSplat(type);
  }
  if (loom::getByteSize(type) > kMaxFoldedBytes)
    return DenseElementsAttr();
  return evaluate(op, operands);
}
