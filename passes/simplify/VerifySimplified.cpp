//===- VerifySimplified.cpp - loom-verify-simplified ---------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/Control.h"
#include "passes/simplify/Folding.h"
#include "passes/simplify/Prologue.h"
#include "passes/simplify/Simplify.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;

namespace gridloom {
#define GEN_PASS_DEF_VERIFYSIMPLIFIED
#include "passes/simplify/Passes.h.inc"
} // namespace gridloom

using namespace gridloom;

/// F-G1.
static LogicalResult verifyFolded(Operation &op) {
  if (op.getNumOperands() == 0 || !canFold(&op) ||
      !llvm::all_of(op.getOperands(), [](Value operand) { return bool(getConstant(operand)); }))
    return success();
  int64_t bytes = loom::getByteSize(op.getResult(0).getType());
  if (bytes > kMaxFoldedBytes)
    return success();
  return op.emitOpError("has constant operands and ")
         << bytes << " bytes of result, but is not folded";
}

namespace {
struct VerifySimplifiedPass : gridloom::impl::VerifySimplifiedBase<VerifySimplifiedPass> {
  void runOnOperation() override {
    if (failed(verify(getOperation())))
      signalPassFailure();
    markAllAnalysesPreserved();
  }

  static LogicalResult verify(ModuleOp module) {
    if (failed(verifyImported(module)))
      return failure();
    for (auto function : module.getOps<func::FuncOp>()) {
      for (Operation &op : function.front())
        if (failed(verifyFolded(op)))
          return failure();
      for (Operation *op : getHoistable(function.front())) // F-G2
        return op->emitOpError("depends on weights alone, but is not in the prologue");
    }
    for (Operation *op : getUnusedWeights(module)) // F-G3
      return op->emitOpError("is not used");
    for (func::FuncOp body : loom::getUnusedBodies(module)) // F-G4
      return body.emitOpError("is the body of nothing");
    return success();
  }
};
} // namespace
