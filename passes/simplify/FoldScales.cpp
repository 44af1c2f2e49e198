//===- FoldScales.cpp - fold channels' factors into weights ---------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/simplify/Simplify.h"

#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

using namespace mlir;

namespace gridloom {
#define GEN_PASS_DEF_FOLDSCALES
#include "passes/simplify/Passes.h.inc"
} // namespace gridloom

using namespace gridloom;

namespace {

RankedTensorType getTensorType(Value value) { return cast<RankedTensorType>(value.getType()); }

/// True if a value depends on weights and constants only, and so is computed at load.
bool isFixed(Value value) {
  SmallVector<Value> pending{value};
  llvm::SmallPtrSet<Operation *, 16> seen;
  while (!pending.empty()) {
    Operation *op = pending.pop_back_val().getDefiningOp();
    if (!op || !isPure(op))
      return false;
    if (isa<loom::GetWeightOp, loom::ConstantOp>(op) || !seen.insert(op).second)
      continue;
    if (op->getNumOperands() == 0)
      return false;
    llvm::append_range(pending, op->getOperands());
  }
  return true;
}

/// `value` if it repeats one fixed number per channel, which is dimension 1; else null.
loom::BroadcastOp getPerChannel(Value value) {
  auto broadcast = value.getDefiningOp<loom::BroadcastOp>();
  if (!broadcast || !llvm::is_contained(broadcast.getDims(), 1) || !isFixed(broadcast.getInput()))
    return {};
  int64_t channels = getTensorType(value).getDimSize(1);
  for (auto [size, dim] :
       llvm::zip_equal(getTensorType(broadcast.getInput()).getShape(), broadcast.getDims()))
    if (size != (dim == 1 ? channels : 1))
      return {};
  return broadcast;
}

/// The numbers of getPerChannel, as a vector.
Value getVector(loom::BroadcastOp perChannel, PatternRewriter &rewriter) {
  RankedTensorType type = getTensorType(perChannel.getInput());
  if (type.getRank() == 1)
    return perChannel.getInput();
  auto vector = RankedTensorType::get({type.getNumElements()}, type.getElementType());
  return loom::ReshapeOp::create(rewriter, perChannel.getLoc(), vector, perChannel.getInput());
}

/// A convolution with fixed weights whose result has no other use; else null.
loom::ConvolutionOp getConvolution(Value value) {
  auto convolution = value.getDefiningOp<loom::ConvolutionOp>();
  if (!convolution || !convolution->hasOneUse() || !isFixed(convolution.getWeight()) ||
      !isa<FloatType>(getTensorType(value).getElementType()))
    return {};
  return convolution;
}

/// The operands of a commutative operation, one that `match` accepts first.
template <typename MatchT>
std::optional<std::pair<Value, Value>> splitOperands(Operation *op, MatchT match) {
  for (auto [x, y] : {std::pair(op->getOperand(0), op->getOperand(1)),
                      std::pair(op->getOperand(1), op->getOperand(0))})
    if (match(x))
      return std::pair(x, y);
  return std::nullopt;
}

Value repeat(PatternRewriter &rewriter, Location loc, Value vector, Type type, int64_t dim) {
  return loom::BroadcastOp::create(rewriter, loc, type, vector, dim);
}

/// (x * w) s = x * (w s), for a factor per output channel.
struct ScaleOfConvolution : OpRewritePattern<loom::MultiplyOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(loom::MultiplyOp op, PatternRewriter &rewriter) const override {
    auto sides = splitOperands(op, getConvolution);
    loom::BroadcastOp scale = sides ? getPerChannel(sides->second) : nullptr;
    if (!scale)
      return rewriter.notifyMatchFailure(op, "no convolution times a number per channel");
    loom::ConvolutionOp convolution = getConvolution(sides->first);
    Value weight = convolution.getWeight();
    Value scaled = loom::MultiplyOp::create(
        rewriter, op.getLoc(), weight.getType(), weight,
        repeat(rewriter, op.getLoc(), getVector(scale, rewriter), weight.getType(), 0));
    auto result = cast<loom::ConvolutionOp>(rewriter.clone(*convolution));
    result.getWeightMutable().assign(scaled);
    rewriter.replaceOp(op, result);
    return success();
  }
};

/// An addition to a convolution; null if it has several uses.
loom::AddOp getBiased(Value value) {
  auto add = value.getDefiningOp<loom::AddOp>();
  return add && add->hasOneUse() && splitOperands(add, getConvolution) ? add : loom::AddOp();
}

/// (convolution + bias) combined with another number per channel.
struct Biased {
  Value convolution, other;
  loom::BroadcastOp bias, perChannel; // perChannel makes `other`
};

template <typename Op> std::optional<Biased> matchBiased(Op op) {
  auto sides = splitOperands(op, getBiased);
  loom::BroadcastOp perChannel = sides ? getPerChannel(sides->second) : nullptr;
  auto terms = perChannel ? splitOperands(getBiased(sides->first), getConvolution) : std::nullopt;
  loom::BroadcastOp bias = terms ? getPerChannel(terms->second) : nullptr;
  if (!bias)
    return std::nullopt;
  return Biased{terms->first, sides->second, bias, perChannel};
}

/// (c + b) s = c s + b s.
struct ScaleOfBias : OpRewritePattern<loom::MultiplyOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(loom::MultiplyOp op, PatternRewriter &rewriter) const override {
    std::optional<Biased> match = matchBiased(op);
    if (!match)
      return rewriter.notifyMatchFailure(op, "no convolution with bias times a number per channel");
    Location loc = op.getLoc();
    Value product =
        loom::MultiplyOp::create(rewriter, loc, op.getType(), match->convolution, match->other);
    Value numbers = getVector(match->bias, rewriter);
    Value shift = loom::MultiplyOp::create(rewriter, loc, numbers.getType(), numbers,
                                           getVector(match->perChannel, rewriter));
    rewriter.replaceOpWithNewOp<loom::AddOp>(op, op.getType(), product,
                                             repeat(rewriter, loc, shift, op.getType(), 1));
    return success();
  }
};

/// (c + a) + b = c + (a + b).
struct BiasOfBias : OpRewritePattern<loom::AddOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(loom::AddOp op, PatternRewriter &rewriter) const override {
    std::optional<Biased> match = matchBiased(op);
    if (!match)
      return rewriter.notifyMatchFailure(op, "no convolution with two numbers per channel");
    Value numbers = getVector(match->bias, rewriter);
    Value sum = loom::AddOp::create(rewriter, op.getLoc(), numbers.getType(), numbers,
                                    getVector(match->perChannel, rewriter));
    rewriter.replaceOpWithNewOp<loom::AddOp>(op, op.getType(), match->convolution,
                                             repeat(rewriter, op.getLoc(), sum, op.getType(), 1));
    return success();
  }
};

struct FoldScalesPass : gridloom::impl::FoldScalesBase<FoldScalesPass> {
  void runOnOperation() override {
    RewritePatternSet set(&getContext());
    set.add<ScaleOfConvolution, ScaleOfBias, BiasOfBias>(&getContext());
    FrozenRewritePatternSet patterns(std::move(set));
    GreedyRewriteConfig config;
    config.enableConstantCSE(false).setRegionSimplificationLevel(
        GreedySimplifyRegionLevel::Disabled);
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (failed(applyPatternsGreedily(function, patterns, config))) {
        function.emitError("folding scales does not end");
        return signalPassFailure();
      }
  }
};

} // namespace
