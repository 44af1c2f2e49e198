//===- DecomposeConvolutions.cpp - composites without a kernel ------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/LoomWindow.h"
#include "dialects/loom/Training.h"
#include "passes/layout/ConvolutionPhases.h"
#include "passes/layout/Passes.h"

using namespace mlir;

namespace gridloom {
#define GEN_PASS_DEF_DECOMPOSECONVOLUTIONS
#include "passes/layout/Passes.h.inc"

namespace {

bool isInLibrary(loom::ConvolutionOp op) {
  auto type = cast<RankedTensorType>(op.getOutput().getType());
  Type element = type.getElementType();
  auto isOne = [](int64_t dilation) { return dilation == 1; };
  return op->getParentOfType<func::FuncOp>() &&
         (element.isF32() || element.isF16() || element.isBF16()) && type.getRank() <= 5 &&
         type.getNumElements() > 0 &&
         cast<RankedTensorType>(op.getInput().getType()).getNumElements() > 0 &&
         cast<RankedTensorType>(op.getWeight().getType()).getNumElements() > 0 &&
         llvm::all_of(op.getInputDilations(), isOne);
}

/// What oneDNN computes faster than the product of columns.
bool isForward(loom::ConvolutionOp op) {
  auto type = cast<RankedTensorType>(op.getOutput().getType());
  ArrayRef<int64_t> window = cast<RankedTensorType>(op.getWeight().getType()).getShape();
  return isInLibrary(op) && type.getElementType().isF32() &&
         loom::computeProduct(window.drop_front(2)) <=
             loom::computeProduct(type.getShape().drop_front(2)) &&
         !loom::isTrainStep(op->getParentOfType<func::FuncOp>());
}

struct DecomposeConvolutions : impl::DecomposeConvolutionsBase<DecomposeConvolutions> {
  using DecomposeConvolutionsBase::DecomposeConvolutionsBase;

  void runOnOperation() override {
    splitDilated();
    getOperation().walk([&](loom::DecomposeInterface op) {
      if (!isa<loom::ConvolutionOp, loom::ReduceWindowOp>(op))
        return;
      if (auto convolution = dyn_cast<loom::ConvolutionOp>(*op);
          convolution &&
          ((keepLibrary && isInLibrary(convolution)) || (keepForward && isForward(convolution))))
        return;
      OpBuilder builder(op);
      op->replaceAllUsesWith(op.decompose(builder));
      op->erase();
    });
  }

  /// Convolutions of inputs with zeros between elements become several without.
  void splitDilated() {
    SmallVector<loom::ConvolutionOp> convolutions;
    getOperation().walk([&](loom::ConvolutionOp op) { convolutions.push_back(op); });
    for (loom::ConvolutionOp op : convolutions) {
      OpBuilder builder(op);
      if (Value result = splitIntoPhases(op, builder)) {
        op.getOutput().replaceAllUsesWith(result);
        op.erase();
      }
    }
  }
};

} // namespace
} // namespace gridloom
