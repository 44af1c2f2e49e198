//===- DecomposeConvolutions.cpp - composites without a kernel ------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/Kernels.h"
#include "passes/layout/ConvolutionPhases.h"
#include "passes/layout/Passes.h"

using namespace mlir;

namespace gridloom {
#define GEN_PASS_DEF_DECOMPOSECONVOLUTIONS
#include "passes/layout/Passes.h.inc"

namespace {

struct DecomposeConvolutions : impl::DecomposeConvolutionsBase<DecomposeConvolutions> {
  using DecomposeConvolutionsBase::DecomposeConvolutionsBase;

  void runOnOperation() override {
    if (!keepLibrary) // on GPUs more launches take longer than multiplying zeros
      splitDilated();
    auto library = keepLibrary   ? loom::ConvolutionLibrary::All
                   : keepForward ? loom::ConvolutionLibrary::Forward
                                 : loom::ConvolutionLibrary::None;
    getOperation().walk([&](loom::DecomposeInterface op) {
      if (!isa<loom::ConvolutionOp, loom::ReduceWindowOp>(op))
        return;
      if (auto convolution = dyn_cast<loom::ConvolutionOp>(*op);
          convolution && isLibraryConvolution(convolution, library))
        return;
      OpBuilder builder(op);
      op->replaceAllUsesWith(op.decompose(builder));
      op->erase();
    });
  }

  /// Replaces convolutions of inputs with zeros between elements by several without.
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
