//===- ContractSums.cpp - fused products of reductions --------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/codegen/ContractSums.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

using namespace mlir;
using namespace gridloom;

namespace {

struct ContractSum final : OpRewritePattern<arith::AddFOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::AddFOp op, PatternRewriter &rewriter) const override {
    if (op.getFastmath() != arith::FastMathFlags::contract)
      return rewriter.notifyMatchFailure(op, "not the sum of a reduction");
    Type element = getElementTypeOrSelf(op.getType());
    if (!element.isF32() && !element.isF64())
      return rewriter.notifyMatchFailure(op, "no such instruction for its type");
    auto product = op.getRhs().getDefiningOp<arith::MulFOp>();
    if (!product)
      return rewriter.notifyMatchFailure(op, "adds no product");
    rewriter.replaceOpWithNewOp<math::FmaOp>(op, product.getLhs(), product.getRhs(), op.getLhs());
    return success();
  }
};

} // namespace

Value gridloom::codegen::addToSum(OpBuilder &builder, Location loc, Value sum, Value value) {
  auto contract =
      arith::FastMathFlagsAttr::get(builder.getContext(), arith::FastMathFlags::contract);
  return arith::AddFOp::create(builder, loc, sum, value, contract);
}

LogicalResult gridloom::codegen::contractSums(ModuleOp module) {
  RewritePatternSet patterns(module.getContext());
  patterns.add<ContractSum>(module.getContext());
  if (failed(applyPatternsGreedily(module, std::move(patterns))))
    return failure();
  // LLVM might fuse the remaining sums.
  module.walk([](arith::AddFOp op) {
    if (op.getFastmath() == arith::FastMathFlags::contract)
      op.setFastmath(arith::FastMathFlags::none);
  });
  return success();
}
