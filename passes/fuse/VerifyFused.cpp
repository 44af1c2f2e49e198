//===- VerifyFused.cpp - what the fuse phase guarantees -------------------===//
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
  for (Operation &op : block)
    if (!isa<plan::CallOp, plan::MatmulOp, loom::GetWeightOp, loom::ConstantOp, loom::ReshapeOp,
             loom::YieldOp, loom::WhileOp, loom::IfOp, dist::AxisIndexOp, dist::StartOp,
             dist::DoneOp, func::ReturnOp>(op))
      return op.emitError() << op.getName().getStringRef() << " at '"
                            << loom::getNodeName(op.getLoc())
                            << "' is in no kernel, library call or group; run plan-form-kernels";
  return success();
}

LogicalResult verifyKernel(plan::KernelOp kernel) {
  for (Operation &op : kernel.getBody().front())
    if (!isa<loom::LoomDialect>(op.getDialect()) || isa<loom::GetWeightOp, loom::WeightOp>(op))
      return op.emitError() << op.getName().getStringRef() << " cannot be in kernel '"
                            << kernel.getSymName() << "'; pass its value as an argument";
  return success();
}

/// One past the farthest element that strides reach.
int64_t getExtent(ArrayRef<int64_t> sizes, ArrayRef<int64_t> strides) {
  int64_t last = 0;
  for (auto [size, stride] : llvm::zip_equal(sizes, strides))
    last += (size - 1) * stride;
  return last + 1;
}

LogicalResult verifyOperand(plan::MatmulOp matmul, StringRef name, Value value,
                            ArrayRef<int64_t> sizes, ArrayRef<int64_t> strides) {
  ArrayRef<int64_t> shape = cast<RankedTensorType>(value.getType()).getShape();
  int64_t reached = getExtent(sizes, strides), held = getExtent(shape, getMemoryStrides(value));
  if (reached > held)
    return matmul.emitError() << "strides of " << name << " reach element " << reached
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
  bool hasBias = descriptor.getEpilogue() == plan::Epilogue::Bias;
  if (hasBias != (matmul.getBias() != nullptr))
    return matmul.emitError() << "epilogue " << plan::stringifyEpilogue(descriptor.getEpilogue())
                              << " with " << (hasBias ? "no bias" : "a bias");
  return success();
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
          .Case([](loom::GetWeightOp weight) { return verifyWeight(weight); })
          .Default([](Operation *) { return success(); });
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }
};

} // namespace
} // namespace gridloom
