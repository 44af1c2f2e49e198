//===- VerifyFused.cpp - verify the fuse phase ----------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/fuse/Passes.h"
#include "passes/fuse/StridedView.h"

using namespace mlir;

namespace gridloom {
#define GEN_PASS_DEF_VERIFYFUSED
#include "passes/fuse/Passes.h.inc"

namespace {

LogicalResult verifyBody(Block &block) {
  for (Operation &op : block) {
    if (auto slice = dyn_cast<loom::SliceOp>(op); slice && isMemoryView(slice))
      continue;
    if (!isa<plan::CallOp, plan::MatmulOp, plan::ConvolutionOp, plan::AttentionOp,
             loom::GetWeightOp, loom::ConstantOp, loom::ReshapeOp, loom::YieldOp, loom::WhileOp,
             loom::IfOp, dist::AxisIndexOp, dist::StartOp, dist::DoneOp, func::ReturnOp>(op))
      return op.emitError() << op.getName().getStringRef() << " at '"
                            << loom::getNodeName(op.getLoc())
                            << "' is in no kernel, library call or group; run plan-form-kernels";
  }
  return success();
}

LogicalResult verifyKernel(plan::KernelOp kernel) {
  for (Operation &op : kernel.getBody().front())
    if (!isa<loom::LoomDialect>(op.getDialect()) || isa<loom::GetWeightOp, loom::WeightOp>(op))
      return op.emitError() << op.getName().getStringRef() << " cannot be in kernel '"
                            << kernel.getSymName() << "'; pass its value as an argument";
  return success();
}

/// One past the farthest element that the strides reach.
int64_t getExtent(ArrayRef<int64_t> sizes, ArrayRef<int64_t> strides) {
  int64_t last = 0;
  for (auto [size, stride] : llvm::zip_equal(sizes, strides))
    last += (size - 1) * stride;
  return last + 1;
}

LogicalResult verifyOperand(Operation *call, StringRef name, Value value, ArrayRef<int64_t> sizes,
                            ArrayRef<int64_t> strides) {
  ArrayRef<int64_t> shape = cast<RankedTensorType>(value.getType()).getShape();
  int64_t reached = getExtent(sizes, strides), held = getExtent(shape, getMemoryStrides(value));
  if (reached > held)
    return call->emitError() << "strides of " << name << " reach element " << reached
                             << " of a tensor that has " << held;
  return success();
}

LogicalResult verifyMatmul(plan::MatmulOp matmul) {
  plan::MatmulAttr descriptor = matmul.getDescriptor();
  ArrayRef<int64_t> sizes = descriptor.getSizes();
  SmallVector<int64_t> batch(sizes.drop_back(3));
  int64_t m = sizes[sizes.size() - 3], n = sizes[sizes.size() - 2], k = sizes.back();
  auto with = [&](int64_t rows, int64_t columns) {
    SmallVector<int64_t> result(batch);
    result.append({rows, columns});
    return result;
  };
  if (failed(verifyOperand(matmul, "lhs", matmul.getLhs(), with(m, k), descriptor.getLhs())) ||
      failed(verifyOperand(matmul, "rhs", matmul.getRhs(), with(k, n), descriptor.getRhs())) ||
      failed(verifyOperand(matmul, "out", matmul.getOutput(), with(m, n), descriptor.getOut())))
    return failure();
  Type lhs = getElementTypeOrSelf(matmul.getLhs()), rhs = getElementTypeOrSelf(matmul.getRhs()),
       out = getElementTypeOrSelf(matmul.getOutput());
  bool isKnown = lhs == rhs && (lhs.isF32() || lhs.isF16() || lhs.isBF16());
  if (!isKnown || (out != lhs && !out.isF32()))
    return matmul.emitError()
           << "multiplies " << lhs << " and " << rhs << " into " << out
           << "; operands are both f32, f16 or bf16, the result is the same or f32";
  if (Value bias = matmul.getBias(); bias && getElementTypeOrSelf(bias) != out)
    return matmul.emitError() << "adds a bias of " << getElementTypeOrSelf(bias) << " to " << out;
  plan::EpilogueAttr epilogue = descriptor.getEpilogue();
  Value residual = matmul.getResidual();
  if ((residual != nullptr) != epilogue.getResidual())
    return matmul.emitError() << "has " << (residual ? "a" : "no")
                              << " residual and an epilogue with " << (residual ? "none" : "one");
  if (residual && residual.getType() != matmul.getOutput().getType())
    return matmul.emitError() << "adds a residual of " << residual.getType() << " to "
                              << matmul.getOutput().getType();
  bool activates = epilogue.getActivation() != plan::Activation::None;
  if (activates != matmul.getFallback().has_value())
    return matmul.emitError() << "activation "
                              << plan::stringifyActivation(epilogue.getActivation()) << " with "
                              << (matmul.getFallback() ? "a" : "no") << " kernel to fall back to";
  bool hasBias = matmul.getBias() != nullptr;
  if (hasBias != epilogue.getBias())
    return matmul.emitError() << "has " << (hasBias ? "a" : "no") << " bias and an epilogue with "
                              << (hasBias ? "none" : "one");
  return success();
}

LogicalResult verifyConvolution(plan::ConvolutionOp convolution) {
  plan::ConvolutionAttr descriptor = convolution.getDescriptor();
  if (failed(verifyOperand(convolution, "input", convolution.getInput(), descriptor.getInput(),
                           descriptor.getInputStrides())) ||
      failed(verifyOperand(convolution, "weight", convolution.getWeight(), descriptor.getWeight(),
                           descriptor.getWeightStrides())) ||
      failed(verifyOperand(convolution, "output", convolution.getOutput(), descriptor.getOutput(),
                           descriptor.getOutputStrides())))
    return failure();
  if (Value bias = convolution.getBias();
      bias && failed(verifyOperand(convolution, "bias", bias, descriptor.getWeight().front(), 1)))
    return failure();
  Value residual = convolution.getResidual();
  return residual ? verifyOperand(convolution, "residual", residual, descriptor.getOutput(),
                                  descriptor.getOutputStrides())
                  : success();
}

LogicalResult verifyAttention(plan::AttentionOp attention) {
  plan::AttentionAttr descriptor = attention.getDescriptor();
  ArrayRef<int64_t> sizes = descriptor.getSizes();
  auto with = [&](int64_t rows, int64_t columns) {
    return SmallVector<int64_t>{sizes[0], sizes[1], rows, columns};
  };
  int64_t queries = sizes[2], keys = sizes[3], depth = sizes[4], values = sizes[5];
  if (failed(verifyOperand(attention, "query", attention.getQuery(), with(queries, depth),
                           descriptor.getQuery())) ||
      failed(verifyOperand(attention, "key", attention.getKey(), with(keys, depth),
                           descriptor.getKey())) ||
      failed(verifyOperand(attention, "value", attention.getValue(), with(keys, values),
                           descriptor.getValue())) ||
      failed(verifyOperand(attention, "out", attention.getOutput(), with(queries, values),
                           descriptor.getOut())))
    return failure();
  Value mask = attention.getMask();
  return mask ? verifyOperand(attention, "mask", mask, with(queries, keys), descriptor.getMask())
              : success();
}

LogicalResult verifyWeight(loom::GetWeightOp op) {
  if (!op.getLayoutAttr() || op.getLayoutAttr().getPad() == 0)
    return success();
  for (OpOperand &use : op->getUses())
    if (!isa<plan::MatmulOp>(use.getOwner()) || use.getOperandNumber() > 1)
      return op.emitError("weight ") << op.getNameAttr() << " has padded rows but feeds "
                                     << use.getOwner()->getName().getStringRef()
                                     << ", which reads dense tensors; lay it out dense";
  return success();
}

struct VerifyFused : impl::VerifyFusedBase<VerifyFused> {
  void runOnOperation() override {
    for (Operation &op : *getOperation().getBody())
      if (isa<func::FuncOp, loom::DerivedOp>(op) && !op.getRegion(0).empty() &&
          failed(verifyBody(op.getRegion(0).front())))
        return signalPassFailure();
    auto result = getOperation().walk([](Operation *op) -> WalkResult {
      return llvm::TypeSwitch<Operation *, LogicalResult>(op)
          .Case([](plan::KernelOp kernel) { return verifyKernel(kernel); })
          .Case([](plan::MatmulOp matmul) { return verifyMatmul(matmul); })
          .Case([](plan::ConvolutionOp convolution) { return verifyConvolution(convolution); })
          .Case([](plan::AttentionOp attention) { return verifyAttention(attention); })
          .Case([](loom::GetWeightOp weight) { return verifyWeight(weight); })
          .Default([](Operation *) { return success(); });
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }
};

} // namespace
} // namespace gridloom
