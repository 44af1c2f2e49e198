//===- RaiseComposites.cpp - loom-raise-composites -----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/simplify/RaiseComposites.h"

#include "passes/simplify/Folding.h"
#include "passes/simplify/Simplify.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

#include <cmath>

using namespace mlir;

namespace gridloom {
#define GEN_PASS_DEF_RAISECOMPOSITES
#include "passes/simplify/Passes.h.inc"
} // namespace gridloom

using namespace gridloom;

Location gridloom::fuseLocations(OpBuilder &builder, Location root, ArrayRef<Operation *> parts) {
  SmallVector<Location> locations{root};
  SmallVector<Operation *> ordered(parts);
  llvm::sort(ordered, [](Operation *a, Operation *b) { return a != b && a->isBeforeInBlock(b); });
  for (Operation *part : ordered)
    locations.push_back(part->getLoc());
  return builder.getFusedLoc(locations);
}

namespace {

/// x / c is x * (1 / c) exactly when c is a power of two whose inverse is normal.
struct MultiplyByInverse : OpRewritePattern<loom::DivideOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(loom::DivideOp op, PatternRewriter &rewriter) const override {
    auto type = cast<RankedTensorType>(op.getType());
    std::optional<double> divisor = getSplat(op.getRhs());
    int exponent = 0;
    if (!divisor || !isa<FloatType>(type.getElementType()) ||
        std::abs(std::frexp(*divisor, &exponent)) != 0.5 || std::abs(exponent) > 14)
      return rewriter.notifyMatchFailure(op, "divisor is no small power of two");
    Value inverse = createSplat(rewriter, op.getRhs().getLoc(), type, 1 / *divisor);
    rewriter.replaceOpWithNewOp<loom::MultiplyOp>(op, type, op.getLhs(), inverse);
    return success();
  }
};

struct RaiseCompositesPass : gridloom::impl::RaiseCompositesBase<RaiseCompositesPass> {
  LogicalResult initialize(MLIRContext *context) override {
    RewritePatternSet set(context);
    populateRaiseGeluPatterns(set);
    populateRaiseNormalizationPatterns(set);
    populateRaiseUpdatePatterns(set);
    composites = FrozenRewritePatternSet(std::move(set));
    RewritePatternSet rest(context);
    rest.add<MultiplyByInverse>(context);
    divisions = FrozenRewritePatternSet(std::move(rest));
    return success();
  }

  void runOnOperation() override {
    GreedyRewriteConfig config;
    config.enableConstantCSE(false).setRegionSimplificationLevel(
        GreedySimplifyRegionLevel::Disabled);
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (failed(applyPatternsGreedily(function, composites, config)) ||
          failed(applyPatternsGreedily(function, divisions, config))) {
        function.emitError("raising composites does not end");
        return signalPassFailure();
      }
  }

  FrozenRewritePatternSet composites, divisions;
};

} // namespace
