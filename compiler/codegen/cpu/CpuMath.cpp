//===- CpuMath.cpp - functions as arithmetic ------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// MLIR's approximation of erf chooses the coefficients of four polynomials element by element,
// which takes three times as long as one quotient of polynomials. Its other approximations are used
// unchanged.
//
//===----------------------------------------------------------------------===//
#include "compiler/codegen/cpu/CpuLowering.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

using namespace mlir;
using namespace gridloom;

namespace {

/// x P(x^2) / Q(x^2) for |x| <= 3.92, from where on erf is 1 in f32. The coefficients are those of
/// the least relative error, 1.9e-8, found by Lawson's iteration; with f32 arithmetic it is 3.6e-7.
/// NaN stays NaN, and the sign of zero is kept.
struct ErfAsQuotient final : OpRewritePattern<math::ErfOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(math::ErfOp op, PatternRewriter &rewriter) const override {
    if (!getElementTypeOrSelf(op.getType()).isF32())
      return rewriter.notifyMatchFailure(op, "not of f32");
    static constexpr float above[] = {1.12837911F,    0.190407634F,    0.0527488738F,
                                      0.00376566523F, 0.000284883485F, 2.0500745e-06F};
    static constexpr float below[] = {1.0F,          0.502077103F,   0.114109591F,
                                      0.0149693154F, 0.00116254645F, 3.80916208e-05F};
    Location loc = op.getLoc();
    Value x = clamp(rewriter, loc, op.getOperand(), 3.92F);
    Value square = arith::MulFOp::create(rewriter, loc, x, x);
    Value numerator = arith::MulFOp::create(rewriter, loc, x, horner(rewriter, loc, square, above));
    Value quotient =
        arith::DivFOp::create(rewriter, loc, numerator, horner(rewriter, loc, square, below));
    rewriter.replaceOp(op, clamp(rewriter, loc, quotient, 1.0F));
    return success();
  }

private:
  static Value constant(OpBuilder &builder, Location loc, Type type, float value) {
    TypedAttr number = builder.getF32FloatAttr(value);
    if (auto vector = dyn_cast<VectorType>(type))
      number = DenseElementsAttr::get(vector, value);
    return arith::ConstantOp::create(builder, loc, number);
  }

  /// Within [-bound, bound]; NaN is kept, as comparisons with it are false.
  static Value clamp(OpBuilder &builder, Location loc, Value x, float bound) {
    for (auto [predicate, limit] :
         {std::pair{arith::CmpFPredicate::OLT, -bound}, {arith::CmpFPredicate::OGT, bound}}) {
      Value end = constant(builder, loc, x.getType(), limit);
      Value beyond = arith::CmpFOp::create(builder, loc, predicate, x, end);
      x = arith::SelectOp::create(builder, loc, beyond, end, x);
    }
    return x;
  }

  static Value horner(OpBuilder &builder, Location loc, Value x, ArrayRef<float> coefficients) {
    Value sum = constant(builder, loc, x.getType(), coefficients.back());
    for (float coefficient : llvm::reverse(coefficients.drop_back()))
      sum = math::FmaOp::create(builder, loc, sum, x,
                                constant(builder, loc, x.getType(), coefficient));
    return sum;
  }
};

} // namespace

LogicalResult gridloom::codegen::expandMath(ModuleOp module) {
  RewritePatternSet patterns(module.getContext());
  patterns.add<ErfAsQuotient>(module.getContext(), /*benefit=*/2);
  populateMathPolynomialApproximationPatterns(patterns);
  arith::populateExpandBFloat16Patterns(patterns);
  return applyPatternsGreedily(module, std::move(patterns));
}
