//===- Prepare.cpp - composites as reductions and elementwise ops ---------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Rewrites contractions, softmax and layer_norm for speed rather than for readers: 16-bit floats
// are computed in f32, divisions happen once per row.
//
//===----------------------------------------------------------------------===//
#include "compiler/codegen/Nest.h"
#include "dialects/loom/Contraction.h"

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
  template <typename OpT> Value binary(Value lhs, Value rhs) {
    return make<OpT>(lhs.getType(), lhs, rhs);
  }
  static RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }

  Value splat(Value like, double value) {
    auto type = typeOf(like);
    auto attr = builder.getFloatAttr(type.getElementType(), value);
    return loom::ConstantOp::create(builder, loc,
                                    DenseElementsAttr::get(type, static_cast<Attribute>(attr)));
  }
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
  /// Repeats a value that lacks `dim` of `like`.
  Value repeat(Value value, Value like, int64_t dim) {
    SmallVector<int64_t> dims;
    for (int64_t i = 0; i < typeOf(like).getRank(); ++i)
      if (i != dim)
        dims.push_back(i);
    return make<loom::BroadcastOp>(like.getType(), value, dims);
  }

  Value softmax(Value input, int64_t dim) {
    Value x = widen(input);
    Value peak = reduce(x, dist::ReductionKind::Max, dim, /*ignoresNan=*/true);
    Value shifted = binary<loom::SubtractOp>(x, repeat(peak, x, dim));
    Value power = make<loom::ExpOp>(x.getType(), shifted);
    Value sum = reduce(power, dist::ReductionKind::Sum, dim, /*ignoresNan=*/false);
    Value scale = binary<loom::DivideOp>(splat(sum, 1.0), sum);
    return binary<loom::MultiplyOp>(power, repeat(scale, x, dim));
  }

  Value layerNorm(Value input, Value scale, Value bias, double epsilon) {
    Value x = widen(input);
    int64_t last = typeOf(x).getRank() - 1;
    double share = 1.0 / static_cast<double>(typeOf(x).getDimSize(last));
    auto mean = [&](Value value) {
      Value sum = reduce(value, dist::ReductionKind::Sum, last, /*ignoresNan=*/false);
      return binary<loom::MultiplyOp>(sum, splat(sum, share));
    };
    auto repeatRow = [&](Value row) {
      return make<loom::BroadcastOp>(x.getType(), widen(row), ArrayRef<int64_t>{last});
    };
    Value centred = binary<loom::SubtractOp>(x, repeat(mean(x), x, last));
    Value variance = mean(binary<loom::MultiplyOp>(centred, centred));
    Value shifted = binary<loom::AddOp>(variance, splat(variance, epsilon));
    Value inverse = make<loom::RsqrtOp>(shifted.getType(), shifted);
    Value result = binary<loom::MultiplyOp>(centred, repeat(inverse, x, last));
    result = binary<loom::MultiplyOp>(result, repeatRow(scale));
    return bias ? binary<loom::AddOp>(result, repeatRow(bias)) : result;
  }
};

void expand(Operation *op) {
  OpBuilder builder(op);
  Composer c{builder, op->getLoc()};
  Value result;
  if (auto softmax = dyn_cast<loom::SoftmaxOp>(op)) {
    result = c.softmax(softmax.getInput(), softmax.getDim());
  } else if (auto norm = dyn_cast<loom::LayerNormOp>(op)) {
    result = c.layerNorm(norm.getInput(), norm.getScale(), norm.getBias(),
                         norm.getEpsilon().convertToDouble());
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
          loom::ReduceOp, loom::SoftmaxOp, loom::LayerNormOp, loom::PadOp, loom::WindowOp,
          loom::ReverseOp, loom::GatherElementsOp, loom::ArgReduceOp, loom::DotGeneralOp>(op))
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
  // Sums of 16-bit floats are widened with all else: what follows reads them before they are
  // rounded.
  for (auto dot : llvm::make_early_inc_range(copy.getBody().front().getOps<loom::DotGeneralOp>()))
    expandContraction(dot, dot.getType().getElementType());
  widenBody(copy);
  for (Operation &op : llvm::make_early_inc_range(copy.getBody().front()))
    expand(&op);
  return copy;
}
