//===- FoldConstants.cpp - loom-fold-constants ---------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/simplify/Folding.h"
#include "passes/simplify/Simplify.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;

namespace gridloom {
#define GEN_PASS_DEF_FOLDCONSTANTS
#include "passes/simplify/Passes.h.inc"
} // namespace gridloom

using namespace gridloom;

namespace {
struct FoldConstantsPass : gridloom::impl::FoldConstantsBase<FoldConstantsPass> {
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      for (Block &block : function.getBody())
        if (failed(foldBlock(block)))
          return signalPassFailure();
  }

  /// Operands come before their users, so one walk folds whole chains.
  LogicalResult foldBlock(Block &block) {
    for (Operation &op : llvm::make_early_inc_range(block)) {
      FailureOr<DenseElementsAttr> value = foldOperation(&op);
      if (failed(value))
        return failure();
      if (!*value)
        continue;
      OpBuilder builder(&op);
      op.getResult(0).replaceAllUsesWith(loom::ConstantOp::create(builder, op.getLoc(), *value));
      op.erase();
      ++numFolded;
    }
    for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
      if (isa<loom::ConstantOp>(op) && op.use_empty())
        op.erase();
    return success();
  }
};
} // namespace
