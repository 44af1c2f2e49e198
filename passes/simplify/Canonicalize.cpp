//===- Canonicalize.cpp - loom-canonicalize ------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/Derivatives.h"
#include "passes/simplify/Folding.h"
#include "passes/simplify/Simplify.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Dominance.h"
#include "mlir/Transforms/CSE.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

using namespace mlir;

namespace gridloom {
#define GEN_PASS_DEF_CANONICALIZE
#include "passes/simplify/Passes.h.inc"
} // namespace gridloom

using namespace gridloom;

namespace {

RankedTensorType getTensorType(Value value) { return cast<RankedTensorType>(value.getType()); }

//===----------------------------------------------------------------------===//
// Moves
//===----------------------------------------------------------------------===//

struct DropIdentityBroadcast : OpRewritePattern<loom::BroadcastOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(loom::BroadcastOp op, PatternRewriter &rewriter) const override {
    if (op.getInput().getType() != op.getType())
      return rewriter.notifyMatchFailure(op, "repeats something");
    rewriter.replaceOp(op, op.getInput());
    return success();
  }
};

struct MergeBroadcasts : OpRewritePattern<loom::BroadcastOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(loom::BroadcastOp op, PatternRewriter &rewriter) const override {
    auto inner = op.getInput().getDefiningOp<loom::BroadcastOp>();
    if (!inner)
      return rewriter.notifyMatchFailure(op, "input is no broadcast");
    auto dims =
        llvm::map_to_vector(inner.getDims(), [&](int64_t dim) { return op.getDims()[dim]; });
    rewriter.replaceOpWithNewOp<loom::BroadcastOp>(op, op.getType(), inner.getInput(), dims);
    return success();
  }
};

/// The broadcast can express a reshape that only adds unit dimensions.
struct MergeReshapeIntoBroadcast : OpRewritePattern<loom::BroadcastOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(loom::BroadcastOp op, PatternRewriter &rewriter) const override {
    auto reshape = op.getInput().getDefiningOp<loom::ReshapeOp>();
    if (!reshape)
      return rewriter.notifyMatchFailure(op, "input is no reshape");
    ArrayRef<int64_t> from = getTensorType(reshape.getInput()).getShape();
    ArrayRef<int64_t> to = getTensorType(reshape).getShape();
    SmallVector<int64_t> dims;
    for (auto [i, size] : llvm::enumerate(to)) {
      if (dims.size() < from.size() && from[dims.size()] == size)
        dims.push_back(op.getDims()[i]);
      else if (size != 1)
        return rewriter.notifyMatchFailure(op, "the reshape is more than unit dimensions");
    }
    if (dims.size() != from.size())
      return rewriter.notifyMatchFailure(op, "the reshape removes unit dimensions");
    rewriter.replaceOpWithNewOp<loom::BroadcastOp>(op, op.getType(), reshape.getInput(), dims);
    return success();
  }
};

struct MergeTransposes : OpRewritePattern<loom::TransposeOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(loom::TransposeOp op, PatternRewriter &rewriter) const override {
    auto inner = op.getInput().getDefiningOp<loom::TransposeOp>();
    if (!inner)
      return rewriter.notifyMatchFailure(op, "input is no transpose");
    auto permutation = llvm::map_to_vector(
        op.getPermutation(), [&](int64_t dim) { return inner.getPermutation()[dim]; });
    rewriter.replaceOpWithNewOp<loom::TransposeOp>(op, op.getType(), inner.getInput(), permutation);
    return success();
  }
};

struct DropIdentitySlice : OpRewritePattern<loom::SliceOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(loom::SliceOp op, PatternRewriter &rewriter) const override {
    if (op.getInput().getType() != op.getType())
      return rewriter.notifyMatchFailure(op, "leaves something out");
    rewriter.replaceOp(op, op.getInput());
    return success();
  }
};

struct DropSingleConcatenate : OpRewritePattern<loom::ConcatenateOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(loom::ConcatenateOp op, PatternRewriter &rewriter) const override {
    if (op.getInputs().size() != 1)
      return rewriter.notifyMatchFailure(op, "joins several tensors");
    rewriter.replaceOp(op, op.getInputs().front());
    return success();
  }
};

struct DropEmptyParts : OpRewritePattern<loom::ConcatenateOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(loom::ConcatenateOp op, PatternRewriter &rewriter) const override {
    SmallVector<Value> kept =
        llvm::to_vector(llvm::make_filter_range(op.getInputs(), [](Value part) {
          return cast<RankedTensorType>(part.getType()).getNumElements() > 0;
        }));
    if (kept.empty() || kept.size() == op.getInputs().size())
      return rewriter.notifyMatchFailure(op, "no part, or every part is empty");
    rewriter.replaceOpWithNewOp<loom::ConcatenateOp>(op, op.getType(), kept, op.getDim());
    return success();
  }
};

//===----------------------------------------------------------------------===//
// Elementwise
//===----------------------------------------------------------------------===//

struct DropIdentityConvert : OpRewritePattern<loom::ConvertOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(loom::ConvertOp op, PatternRewriter &rewriter) const override {
    if (op.getInput().getType() != op.getType())
      return rewriter.notifyMatchFailure(op, "changes the type");
    rewriter.replaceOp(op, op.getInput());
    return success();
  }
};

/// x * 1, x / 1, x - 0: exact for every x. (x + 0 turns -0 into 0.)
template <typename OpT, int neutral> struct DropNeutral : OpRewritePattern<OpT> {
  using OpRewritePattern<OpT>::OpRewritePattern;
  LogicalResult matchAndRewrite(OpT op, PatternRewriter &rewriter) const override {
    for (unsigned i : {1u, 0u}) {
      if (i == 0 && !std::is_same_v<OpT, loom::MultiplyOp>)
        break;
      std::optional<double> splat = getSplat(op->getOperand(i));
      if (!splat || *splat != neutral || std::signbit(*splat))
        continue;
      rewriter.replaceOp(op, op->getOperand(1 - i));
      return success();
    }
    return rewriter.notifyMatchFailure(op, "no neutral operand");
  }
};

/// The most operations to look through for a sign.
constexpr int kMostSigns = 8;

/// Whether a float value is certain to be neither negative nor -0, NaN aside.
bool isNeverNegative(Value value, int depth = 0) {
  auto isPositiveSplat = [](Value scale) {
    std::optional<double> splat = getSplat(scale);
    return splat && *splat > 0;
  };
  if (std::optional<double> splat = getSplat(value))
    return !std::signbit(*splat);
  Operation *op = value.getDefiningOp();
  if (!op || depth == kMostSigns)
    return false;
  auto isOperand = [&](unsigned i) { return isNeverNegative(op->getOperand(i), depth + 1); };
  if (isa<loom::ExpOp, loom::AbsOp>(op))
    return true;
  if (auto power = dyn_cast<loom::PowerOp>(op))
    return getSplat(power.getRhs()) == 2;
  if (isa<loom::MultiplyOp>(op) && op->getOperand(0) == op->getOperand(1))
    return true;
  if (isa<loom::MultiplyOp, loom::DivideOp>(op))
    return isOperand(0) && isPositiveSplat(op->getOperand(1));
  if (isa<loom::AddOp>(op))
    return isOperand(0) && isOperand(1);
  if (auto reduce = dyn_cast<loom::ReduceOp>(op))
    return reduce.getKind() == dist::ReductionKind::Sum && isOperand(0);
  return isa<loom::SqrtOp, loom::ReshapeOp, loom::BroadcastOp, loom::TransposeOp, loom::ConvertOp>(
             op) &&
         isOperand(0);
}

/// x to the 1, 2, 3, 1/2, -1/2.
struct ExpandPower : OpRewritePattern<loom::PowerOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(loom::PowerOp op, PatternRewriter &rewriter) const override {
    std::optional<double> exponent = getSplat(op.getRhs());
    if (!exponent)
      return rewriter.notifyMatchFailure(op, "exponent is no splat");
    Value x = op.getLhs();
    bool isFloat = isa<FloatType>(getTensorType(x).getElementType());
    auto square = [&] {
      return loom::MultiplyOp::create(rewriter, op.getLoc(), x.getType(), x, x);
    };
    if (*exponent == 1)
      rewriter.replaceOp(op, x);
    else if (*exponent == 2)
      rewriter.replaceOp(op, square());
    else if (*exponent == 3)
      rewriter.replaceOpWithNewOp<loom::MultiplyOp>(op, x.getType(), square(), x);
    else if (*exponent == 0.5 && isFloat)
      rewriter.replaceOp(op, takeRoot<loom::SqrtOp>(op, rewriter));
    else if (*exponent == -0.5 && isFloat)
      rewriter.replaceOp(op, takeRoot<loom::RsqrtOp>(op, rewriter));
    else
      return rewriter.notifyMatchFailure(op, "exponent is not one of those expanded");
    return success();
  }

private:
  /// Roots of -0 are -0 and of -inf NaN, whereas powers of both are those of 0 and inf.
  template <typename RootOp> static Value takeRoot(loom::PowerOp op, PatternRewriter &rewriter) {
    Location loc = op.getLoc();
    Value x = op.getLhs();
    auto type = getTensorType(x);
    if (isNeverNegative(x))
      return RootOp::create(rewriter, loc, type, x);
    auto splat = [&](double number) { return createSplat(rewriter, loc, type, number); };
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    Value added = loom::AddOp::create(rewriter, loc, type, x, splat(0)); // -0 + 0 is 0
    Value isLeast = loom::CompareOp::create(rewriter, loc, type.clone(rewriter.getI1Type()), x,
                                            splat(-kInfinity), loom::Direction::EQ);
    Value root = RootOp::create(rewriter, loc, type, added);
    Value ofLeast = splat(std::is_same_v<RootOp, loom::SqrtOp> ? kInfinity : 0);
    return loom::SelectOp::create(rewriter, loc, type, isLeast, ofLeast, root);
  }
};

template <typename OpT> struct DropInvolution : OpRewritePattern<OpT> {
  using OpRewritePattern<OpT>::OpRewritePattern;
  LogicalResult matchAndRewrite(OpT op, PatternRewriter &rewriter) const override {
    auto inner = op.getInput().template getDefiningOp<OpT>();
    if (!inner)
      return rewriter.notifyMatchFailure(op, "applied once");
    rewriter.replaceOp(op, inner.getInput());
    return success();
  }
};

struct DropConstantSelect : OpRewritePattern<loom::SelectOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(loom::SelectOp op, PatternRewriter &rewriter) const override {
    if (std::optional<double> predicate = getSplat(op.getPredicate()))
      rewriter.replaceOp(op, *predicate != 0 ? op.getOnTrue() : op.getOnFalse());
    else if (op.getOnTrue() == op.getOnFalse())
      rewriter.replaceOp(op, op.getOnTrue());
    else
      return rewriter.notifyMatchFailure(op, "both values can be chosen");
    return success();
  }
};

/// Computes before repeating: f(broadcast(x), broadcast(y), splat) is broadcast(f(x, y, splat)).
struct ComputeBeforeBroadcast : RewritePattern {
  explicit ComputeBeforeBroadcast(MLIRContext *context)
      : RewritePattern(MatchAnyOpTypeTag(), 1, context) {}

  LogicalResult matchAndRewrite(Operation *op, PatternRewriter &rewriter) const override {
    if (!isa<loom::KernelBodyInterface>(op) || op->getNumResults() != 1)
      return rewriter.notifyMatchFailure(op, "not elementwise");
    loom::BroadcastOp first;
    for (Value operand : op->getOperands()) {
      if (getSplat(operand))
        continue;
      auto broadcast = operand.getDefiningOp<loom::BroadcastOp>();
      if (!broadcast)
        return rewriter.notifyMatchFailure(op, "an operand is no broadcast");
      if (first && (first.getDims() != broadcast.getDims() ||
                    getTensorType(first.getInput()).getShape() !=
                        getTensorType(broadcast.getInput()).getShape()))
        return rewriter.notifyMatchFailure(op, "operands are repeated differently");
      if (!first)
        first = broadcast;
    }
    if (!first)
      return rewriter.notifyMatchFailure(op, "no operand is a broadcast");
    ArrayRef<int64_t> shape = getTensorType(first.getInput()).getShape();
    SmallVector<Value> operands;
    for (Value operand : op->getOperands()) {
      if (DenseElementsAttr constant = getConstant(operand))
        operands.push_back(loom::ConstantOp::create(
            rewriter, operand.getLoc(), constant.resizeSplat(getTensorType(operand).clone(shape))));
      else
        operands.push_back(operand.getDefiningOp<loom::BroadcastOp>().getInput());
    }
    OperationState state(op->getLoc(), op->getName());
    state.addOperands(operands);
    state.addTypes(getTensorType(op->getResult(0)).clone(shape));
    state.propertiesAttr = op->getPropertiesAsAttribute();
    state.addAttributes(llvm::to_vector(op->getDiscardableAttrs()));
    Operation *small = rewriter.create(state);
    rewriter.replaceOpWithNewOp<loom::BroadcastOp>(op, op->getResult(0).getType(),
                                                   small->getResult(0), first.getDims());
    return success();
  }
};

/// In commutative operations, constants go last, broadcasts before them.
template <typename OpT> struct OrderOperands : OpRewritePattern<OpT> {
  using OpRewritePattern<OpT>::OpRewritePattern;
  static int rank(Value value) {
    return getConstant(value) ? 2 : value.getDefiningOp<loom::BroadcastOp>() ? 1 : 0;
  }
  LogicalResult matchAndRewrite(OpT op, PatternRewriter &rewriter) const override {
    Value lhs = op.getLhs(), rhs = op.getRhs();
    if (rank(lhs) <= rank(rhs))
      return rewriter.notifyMatchFailure(op, "in order");
    rewriter.modifyOpInPlace(op, [&] {
      op->setOperands({rhs, lhs});
      if (auto ties = op->template getAttrOfType<StringAttr>(loom::kTies))
        op->setAttr(loom::kTies,
                    rewriter.getStringAttr(ties.getValue() == loom::kTiesToLhs ? loom::kTiesToRhs
                                                                               : loom::kTiesToLhs));
    });
    return success();
  }
};

//===----------------------------------------------------------------------===//
// Contractions
//===----------------------------------------------------------------------===//

/// A contraction names its dimensions, so it absorbs a transpose of an operand unless that changes
/// the order of the free dimensions.
struct MergeTransposeIntoDot : OpRewritePattern<loom::DotGeneralOp> {
  using OpRewritePattern::OpRewritePattern;

  /// Replaces the operand by its transpose's input, with dimensions renamed; false if it stays.
  static bool absorb(Value &operand, SmallVectorImpl<int64_t> &batch,
                     SmallVectorImpl<int64_t> &contracted, ArrayRef<int64_t> free) {
    auto transpose = operand.getDefiningOp<loom::TransposeOp>();
    if (!transpose)
      return false;
    ArrayRef<int64_t> permutation = transpose.getPermutation();
    auto renamed = llvm::map_to_vector(free, [&](int64_t dim) { return permutation[dim]; });
    if (!llvm::is_sorted(renamed))
      return false;
    for (SmallVectorImpl<int64_t> *dims : {&batch, &contracted})
      for (int64_t &dim : *dims)
        dim = permutation[dim];
    operand = transpose.getInput();
    return true;
  }

  LogicalResult matchAndRewrite(loom::DotGeneralOp op, PatternRewriter &rewriter) const override {
    Value lhs = op.getLhs(), rhs = op.getRhs();
    SmallVector<int64_t> lhsBatch(op.getLhsBatch()), rhsBatch(op.getRhsBatch());
    SmallVector<int64_t> lhsContract(op.getLhsContract()), rhsContract(op.getRhsContract());
    bool changed = absorb(lhs, lhsBatch, lhsContract, op.getLhsFreeDims());
    changed |= absorb(rhs, rhsBatch, rhsContract, op.getRhsFreeDims());
    if (!changed)
      return rewriter.notifyMatchFailure(op, "no transpose that can be absorbed");
    rewriter.replaceOpWithNewOp<loom::DotGeneralOp>(op, op.getType(), lhs, rhs, lhsBatch, rhsBatch,
                                                    lhsContract, rhsContract, op.getTf32());
    return success();
  }
};

struct CanonicalizePass : gridloom::impl::CanonicalizeBase<CanonicalizePass> {
  LogicalResult initialize(MLIRContext *context) override {
    RewritePatternSet set(context);
    set.add<DropIdentityBroadcast, MergeBroadcasts, MergeReshapeIntoBroadcast, MergeTransposes,
            DropIdentitySlice, DropSingleConcatenate, DropEmptyParts, DropIdentityConvert,
            DropNeutral<loom::MultiplyOp, 1>, DropNeutral<loom::DivideOp, 1>,
            DropNeutral<loom::SubtractOp, 0>, ExpandPower, DropInvolution<loom::NegateOp>,
            DropInvolution<loom::NotOp>, OrderOperands<loom::AddOp>,
            OrderOperands<loom::MultiplyOp>, OrderOperands<loom::MaximumOp>,
            OrderOperands<loom::MinimumOp>, OrderOperands<loom::AndOp>, OrderOperands<loom::OrOp>,
            DropConstantSelect, ComputeBeforeBroadcast, MergeTransposeIntoDot>(context);
    for (RegisteredOperationName op : context->getRegisteredOperations())
      if (op.getDialectNamespace() == loom::LoomDialect::getDialectNamespace())
        op.getCanonicalizationPatterns(set, context);
    patterns = FrozenRewritePatternSet(std::move(set));
    return success();
  }

  void runOnOperation() override {
    GreedyRewriteConfig config;
    // Constants moved to the front would lose their locations.
    config.enableConstantCSE(false).setRegionSimplificationLevel(
        GreedySimplifyRegionLevel::Disabled);
    IRRewriter rewriter(&getContext());
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      // Patterns recognise equal operands only if they are one value.
      DominanceInfo dominance(function);
      eliminateCommonSubExpressions(rewriter, dominance, function);
      if (failed(applyPatternsGreedily(function, patterns, config))) {
        function.emitError("canonicalisation does not end");
        return signalPassFailure();
      }
      eliminateCommonSubExpressions(rewriter, dominance, function);
      separateBroadcasts(function);
    }
  }

  /// Gives every user its own broadcast. A shared one would keep the large tensor, not the small
  /// one, alive and send it between pipeline stages.
  static void separateBroadcasts(func::FuncOp function) {
    SmallVector<loom::BroadcastOp> broadcasts(function.getOps<loom::BroadcastOp>());
    for (loom::BroadcastOp broadcast : broadcasts) {
      llvm::SetVector<Operation *> users(broadcast->user_begin(), broadcast->user_end());
      for (Operation *user : users) {
        if (users.size() == 1 || isa<func::ReturnOp>(user))
          continue;
        OpBuilder builder(user);
        Operation *copy = builder.clone(*broadcast);
        copy->setLoc(user->getLoc());
        user->replaceUsesOfWith(broadcast, copy->getResult(0));
      }
      if (broadcast->use_empty())
        broadcast->erase();
    }
  }

  FrozenRewritePatternSet patterns;
};

} // namespace
