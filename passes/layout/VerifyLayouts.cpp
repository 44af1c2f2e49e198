//===- VerifyLayouts.cpp - verify the layout phase ------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/layout/Passes.h"

using namespace mlir;

namespace gridloom {
#define GEN_PASS_DEF_VERIFYLAYOUTS
#include "passes/layout/Passes.h.inc"

namespace {

LogicalResult verifyOrder(loom::GetWeightOp op) {
  loom::LayoutAttr layout = op.getLayoutAttr();
  if (!layout)
    return op.emitError("weight ") << op.getNameAttr() << " has no layout; run loom-assign-layouts";
  SmallVector<int64_t> order(layout.getOrder());
  llvm::sort(order);
  if (!llvm::equal(order, llvm::seq<int64_t>(0, op.getType().getRank())))
    return op.emitError("layout ")
           << layout << " of weight " << op.getNameAttr() << " is not a permutation of "
           << op.getType().getRank() << " dimensions";
  if (layout.getPad() < 0)
    return op.emitError("layout ")
           << layout << " of weight " << op.getNameAttr() << " has a negative pad";
  return success();
}

/// Kernels read dense tensors; only matrix multiplications take a row stride.
LogicalResult verifyPaddedUses(loom::GetWeightOp op) {
  if (op.getLayoutAttr().getPad() == 0)
    return success();
  for (Operation *user : op->getUsers())
    if (!isa<loom::DotGeneralOp, plan::MatmulOp>(user))
      return op.emitError("weight ")
             << op.getNameAttr() << " has padded rows but feeds " << user->getName().getStringRef()
             << ", which reads dense tensors; lay it out dense";
  return success();
}

/// All but weights must be dense and row-major, without a layout or encoding.
LogicalResult verifyDense(Operation *op) {
  if (isa<loom::GetWeightOp>(op))
    return success();
  for (NamedAttribute attribute : op->getAttrs())
    if (isa<loom::LayoutAttr>(attribute.getValue()))
      return op->emitError() << "has layout " << attribute.getValue()
                             << "; only weights have one, all else is dense";
  for (Type type : op->getResultTypes())
    if (auto tensor = dyn_cast<RankedTensorType>(type); tensor && tensor.getEncoding())
      return op->emitError() << "gives " << type << ", whose encoding no later phase reads";
  return success();
}

struct VerifyLayouts : impl::VerifyLayoutsBase<VerifyLayouts> {
  void runOnOperation() override {
    llvm::DenseMap<std::pair<Attribute, Attribute>, loom::GetWeightOp> first;
    auto result = getOperation().walk([](Operation *op) {
      return failed(verifyDense(op)) ? WalkResult::interrupt() : WalkResult::advance();
    });
    if (result.wasInterrupted())
      return signalPassFailure();
    result = getOperation().walk([&](loom::GetWeightOp op) {
      if (failed(verifyOrder(op)) || failed(verifyPaddedUses(op)))
        return WalkResult::interrupt();
      if (op->getParentOfType<loom::DerivedOp>())
        return WalkResult::advance();
      auto [it, isNew] = first.try_emplace({op.getNameAttr(), op.getShardingAttr()}, op);
      if (isNew || it->second.getLayoutAttr() == op.getLayoutAttr())
        return WalkResult::advance();
      op.emitError("weight ") << op.getNameAttr() << " has layout " << op.getLayoutAttr()
                              << " here and " << it->second.getLayoutAttr()
                              << " elsewhere; a plan has one";
      return WalkResult::interrupt();
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }
};

} // namespace
} // namespace gridloom
