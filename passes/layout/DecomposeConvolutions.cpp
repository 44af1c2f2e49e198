//===- DecomposeConvolutions.cpp - composites without a kernel ------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/layout/Passes.h"

using namespace mlir;

namespace gridloom {
#define GEN_PASS_DEF_DECOMPOSECONVOLUTIONS
#include "passes/layout/Passes.h.inc"

namespace {

struct DecomposeConvolutions : impl::DecomposeConvolutionsBase<DecomposeConvolutions> {
  void runOnOperation() override {
    getOperation().walk([](loom::DecomposeInterface op) {
      if (!isa<loom::ConvolutionOp, loom::ReduceWindowOp>(op))
        return;
      OpBuilder builder(op);
      op->replaceAllUsesWith(op.decompose(builder));
      op->erase();
    });
  }
};

} // namespace
} // namespace gridloom
