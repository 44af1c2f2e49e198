//===- Prepare.cpp - composites as reductions and elementwise ops ---------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Rewrites contractions, softmax and norms for speed: 16-bit floats are computed in f32,
// divisions happen once a row.
//
//===----------------------------------------------------------------------===//
#include "compiler/codegen/Nest.h"
#include "dialects/loom/Contraction.h"
#include "dialects/loom/Normalizations.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::codegen;

namespace {

/// Builds expressions on tensors.
struct Composer {
  OpBuilder &builder;
  Location loc;

  template <typename OpT, typename... Args> Value make(Type type, Args &&...args) {
    return OpT::create(builder, loc, type, std::forward<Args>(args)...);
  }
  static RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }

  Value convert(Value value, Type element) {
    auto type = typeOf(value).clone(element);
    return type == value.getType() ? value : make<loom::ConvertOp>(type, value);
  }
  /// f32 for narrower floats.
  Value widen(Value value) {
    Type element = typeOf(value).getElementType();
    bool narrow = isa<FloatType>(element) && element.getIntOrFloatBitWidth() < 32;
    return narrow ? convert(value, builder.getF32Type()) : value;
  }
  Value reduce(Value value, dist::ReductionKind kind, ArrayRef<int64_t> dims, bool ignoresNan) {
    SmallVector<int64_t> shape;
    for (auto [i, size] : llvm::enumerate(typeOf(value).getShape()))
      if (!llvm::is_contained(dims, static_cast<int64_t>(i)))
        shape.push_back(size);
    auto type = RankedTensorType::get(shape, typeOf(value).getElementType());
    auto op = loom::ReduceOp::create(builder, loc, type, value, kind, dims);
    if (ignoresNan)
      op->setAttr(kIgnoresNan, builder.getUnitAttr());
    return op.getOutput();
  }
};

void expand(Operation *op) {
  OpBuilder builder(op);
  Composer c{builder, op->getLoc()};
  Value result;
  // The maximum may ignore NaN: a NaN in a row makes the row's sum NaN anyway.
  auto reduceRow = [&](Value x, dist::ReductionKind kind, int64_t dim) {
    return c.reduce(x, kind, dim, /*ignoresNan=*/kind == dist::ReductionKind::Max);
  };
  loom::NormalizationForm form{reduceRow, /*dividesOnce=*/true};
  if (auto softmax = dyn_cast<loom::SoftmaxOp>(op)) {
    result = loom::buildSoftmax(builder, op->getLoc(), softmax.getInput(), softmax.getDim(), form);
  } else if (op->hasTrait<loom::NormalizesRows>()) {
    int64_t size = Composer::typeOf(op->getOperand(0)).getShape().back();
    result = loom::buildRowNorm(builder, op, op->getOperands(), size, form);
  } else if (auto peak = dyn_cast<loom::ArgReduceOp>(op)) {
    peak.getInputMutable().assign(c.widen(peak.getInput()));
    result = peak.decompose(builder).front();
  } else if (auto reduce = dyn_cast<loom::ReduceOp>(op)) {
    Value wide = c.widen(reduce.getInput());
    if (wide == reduce.getInput())
      return;
    result = c.reduce(wide, reduce.getKind(), reduce.getDims(), /*ignoresNan=*/false);
  } else {
    return;
  }
  op->getResult(0).replaceAllUsesWith(
      c.convert(result, c.typeOf(op->getResult(0)).getElementType()));
  op->erase();
}

bool hasCode(Type type) {
  Type element = getElementTypeOrSelf(type);
  if (loom::isFloat8(element) || element.isF16() || element.isBF16() || element.isF32() ||
      element.isF64())
    return true;
  auto integer = dyn_cast<IntegerType>(element);
  return integer && !integer.isSigned() &&
         llvm::is_contained({1u, 8u, 16u, 32u, 64u}, integer.getWidth());
}

LogicalResult verifyOp(plan::KernelOp kernel, Operation *op) {
  auto types = llvm::concat<const Type>(op->getOperandTypes(), op->getResultTypes());
  for (Type type : types)
    if (!hasCode(type))
      return kernel.emitError() << kernelTitle(kernel) << ": no code for " << type << " in '"
                                << loom::getNodeName(op->getLoc())
                                << "'; keep it out of kernels or convert it";
  if (isa<loom::KernelBodyInterface, loom::YieldOp, loom::IotaOp, loom::BroadcastOp,
          loom::ReshapeOp, loom::TransposeOp, loom::SliceOp, loom::ConcatenateOp, loom::GatherOp,
          loom::ReduceOp, loom::SoftmaxOp, loom::LayerNormOp, loom::RmsNormOp, loom::PadOp,
          loom::WindowOp, loom::ReverseOp, loom::GatherElementsOp, loom::ArgReduceOp,
          loom::DotGeneralOp>(op))
    return success();
  if (loom::isLaneOp(op) && llvm::hasNItems(*op->getBlock(), 2))
    return success();
  auto constant = dyn_cast<loom::ConstantOp>(op);
  if (constant && isa<DenseElementsAttr>(constant.getValue()))
    return success();
  return kernel.emitError() << kernelTitle(kernel) << ": " << op->getName()
                            << " has no kernel code; keep it out of kernels";
}

} // namespace

FailureOr<plan::KernelOp> gridloom::codegen::prepareKernel(plan::KernelOp kernel) {
  if (kernel.getBody().empty() || !kernel.getBody().front().mightHaveTerminator() ||
      !isa<loom::YieldOp>(kernel.getBody().front().back()))
    return kernel.emitError() << "kernel " << kernel.getSymName() << " does not end in loom.yield";
  for (Operation &op : kernel.getBody().front())
    if (failed(verifyOp(kernel, &op)))
      return failure();
  OpBuilder builder(kernel);
  auto copy = cast<plan::KernelOp>(builder.clone(*kernel));
  // Contractions of 16-bit floats are widened with the rest of the body, so that their users read
  // unrounded sums.
  for (auto dot : llvm::make_early_inc_range(copy.getBody().front().getOps<loom::DotGeneralOp>()))
    expandContraction(dot, dot.getType().getElementType());
  widenBody(copy);
  for (Operation &op : llvm::make_early_inc_range(copy.getBody().front()))
    expand(&op);
  return copy;
}
