//===- NormalizeViews.cpp - move views out of fusion's way ----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/fuse/Passes.h"
#include "passes/fuse/StridedView.h"

#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

using namespace mlir;

namespace gridloom {
#define GEN_PASS_DEF_NORMALIZEVIEWS
#include "passes/fuse/Passes.h.inc"

namespace {

ArrayRef<int64_t> getShape(Value value) {
  return cast<RankedTensorType>(value.getType()).getShape();
}

RankedTensorType withShape(Value value, ArrayRef<int64_t> shape) {
  return RankedTensorType::get(shape, cast<RankedTensorType>(value.getType()).getElementType());
}

SmallVector<int64_t> withoutUnits(ArrayRef<int64_t> shape) {
  return llvm::filter_to_vector(shape, [](int64_t size) { return size != 1; });
}

/// True if two shapes differ in unit dimensions only.
bool differInUnits(ArrayRef<int64_t> a, ArrayRef<int64_t> b) {
  return withoutUnits(a) == withoutUnits(b);
}

/// For each dimension of `from` its place in `to`, which differs in unit dimensions only; -1 for
/// unit dimensions.
SmallVector<int64_t> mapDims(ArrayRef<int64_t> from, ArrayRef<int64_t> to) {
  SmallVector<int64_t> map;
  int64_t next = 0;
  for (int64_t size : from) {
    if (size == 1) {
      map.push_back(-1);
      continue;
    }
    while (to[next] == 1)
      ++next;
    map.push_back(next++);
  }
  return map;
}

/// Any view of a splat is a splat.
struct SplatOfView : OpTraitRewritePattern<OpTrait::OneResult> {
  using OpTraitRewritePattern::OpTraitRewritePattern;

  LogicalResult matchAndRewrite(Operation *op, PatternRewriter &rewriter) const override {
    if (!isa<loom::BroadcastOp, loom::ReshapeOp, loom::TransposeOp, loom::SliceOp>(op))
      return rewriter.notifyMatchFailure(op, "no view");
    auto constant = op->getOperand(0).getDefiningOp<loom::ConstantOp>();
    auto splat = constant ? dyn_cast<SplatElementsAttr>(constant.getValue()) : nullptr;
    if (!splat)
      return rewriter.notifyMatchFailure(op, "not of a splat");
    auto type = cast<RankedTensorType>(op->getResult(0).getType());
    rewriter.replaceOpWithNewOp<loom::ConstantOp>(op, splat.resizeSplat(type));
    return success();
  }
};

/// Drops unit dimensions that a broadcast repeats by a reshape, which costs nothing.
struct SqueezeBroadcast : OpRewritePattern<loom::BroadcastOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(loom::BroadcastOp op, PatternRewriter &rewriter) const override {
    SmallVector<int64_t> shape, dims;
    for (auto [size, dim] : llvm::zip_equal(getShape(op.getInput()), op.getDims())) {
      if (size == 1 && getShape(op.getOutput())[dim] != 1)
        continue;
      shape.push_back(size);
      dims.push_back(dim);
    }
    if (shape.size() == op.getDims().size())
      return rewriter.notifyMatchFailure(op, "repeats no unit dimension");
    Value squeezed = loom::ReshapeOp::create(rewriter, op.getLoc(), withShape(op.getInput(), shape),
                                             op.getInput());
    rewriter.replaceOpWithNewOp<loom::BroadcastOp>(op, op.getType(), squeezed, dims);
    return success();
  }
};

/// Removes broadcasts to the same shape, of broadcasts, and those that only add unit dimensions.
struct MergeBroadcast : OpRewritePattern<loom::BroadcastOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(loom::BroadcastOp op, PatternRewriter &rewriter) const override {
    if (op.getInput().getType() == op.getType()) {
      rewriter.replaceOp(op, op.getInput());
      return success();
    }
    if (differInUnits(getShape(op.getInput()), getShape(op.getOutput()))) {
      rewriter.replaceOpWithNewOp<loom::ReshapeOp>(op, op.getType(), op.getInput());
      return success();
    }
    auto inner = op.getInput().getDefiningOp<loom::BroadcastOp>();
    if (!inner)
      return rewriter.notifyMatchFailure(op, "not of a broadcast");
    auto dims =
        llvm::map_to_vector(inner.getDims(), [&](int64_t dim) { return op.getDims()[dim]; });
    rewriter.replaceOpWithNewOp<loom::BroadcastOp>(op, op.getType(), inner.getInput(), dims);
    return success();
  }
};

/// A transpose that moves only dimensions of one element is a reshape.
struct TransposeOfUnits : OpRewritePattern<loom::TransposeOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(loom::TransposeOp op, PatternRewriter &rewriter) const override {
    if (!loom::keepsOrder(op.getPermutation(), getShape(op.getInput())))
      return rewriter.notifyMatchFailure(op, "moves elements");
    rewriter.replaceOpWithNewOp<loom::ReshapeOp>(op, op.getType(), op.getInput());
    return success();
  }
};

/// Merges unit dimensions that are added or removed into the broadcast or iota before them.
struct ReshapeOfGenerator : OpRewritePattern<loom::ReshapeOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(loom::ReshapeOp op, PatternRewriter &rewriter) const override {
    ArrayRef<int64_t> from = getShape(op.getInput()), to = getShape(op.getOutput());
    if (!differInUnits(from, to))
      return rewriter.notifyMatchFailure(op, "changes more than unit dimensions");
    SmallVector<int64_t> map = mapDims(from, to);
    if (auto iota = op.getInput().getDefiningOp<loom::IotaOp>()) {
      int64_t dim = map[iota.getDim()];
      if (dim < 0)
        return rewriter.notifyMatchFailure(op, "counts along a unit dimension");
      rewriter.replaceOpWithNewOp<loom::IotaOp>(op, op.getType(), dim);
      return success();
    }
    auto broadcast = op.getInput().getDefiningOp<loom::BroadcastOp>();
    if (!broadcast)
      return rewriter.notifyMatchFailure(op, "not of a broadcast or iota");
    SmallVector<int64_t> shape, dims;
    for (auto [size, dim] : llvm::zip_equal(getShape(broadcast.getInput()), broadcast.getDims())) {
      if (map[dim] < 0)
        continue;
      shape.push_back(size);
      dims.push_back(map[dim]);
    }
    Value input = broadcast.getInput();
    if (shape.size() != broadcast.getDims().size())
      input = loom::ReshapeOp::create(rewriter, op.getLoc(), withShape(input, shape), input);
    rewriter.replaceOpWithNewOp<loom::BroadcastOp>(op, op.getType(), input, dims);
    return success();
  }
};

/// Moves a reshape between two operations of a kernel before the first.
struct HoistReshape : OpRewritePattern<loom::ReshapeOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(loom::ReshapeOp op, PatternRewriter &rewriter) const override {
    Operation *producer = op.getInput().getDefiningOp();
    if (!producer || !producer->hasOneUse())
      return rewriter.notifyMatchFailure(op, "the unshaped value has other readers");
    ArrayRef<int64_t> from = getShape(op.getInput()), to = getShape(op.getOutput());
    bool sameRows = loom::isRowWise(producer) && !to.empty() && from.back() == to.back();
    if (!isa<loom::KernelBodyInterface>(producer) && !sameRows)
      return rewriter.notifyMatchFailure(op, "not of an elementwise operation");
    if (!llvm::all_of(op->getUsers(), [](Operation *user) {
          return isa<loom::KernelBodyInterface, loom::BroadcastOp>(user) || loom::isRowWise(user);
        }))
      return rewriter.notifyMatchFailure(op, "no kernel reads the reshaped value");
    Operation *moved = rewriter.clone(*producer);
    // Only the rows of a row-wise operation change shape, not its scale and bias.
    unsigned numShaped = sameRows ? 1 : moved->getNumOperands();
    for (OpOperand &operand : moved->getOpOperands().take_front(numShaped))
      operand.set(insertBefore(rewriter, moved, operand.get(), to));
    moved->getResult(0).setType(op.getType());
    if (auto softmax = dyn_cast<loom::SoftmaxOp>(moved))
      softmax.setDim(to.size() - 1);
    rewriter.replaceOp(op, moved);
    // Otherwise its operands would have two readers, and the reshape would wait for the next round.
    rewriter.eraseOp(producer);
    return success();
  }

  static Value insertBefore(PatternRewriter &rewriter, Operation *op, Value value,
                            ArrayRef<int64_t> shape) {
    OpBuilder::InsertionGuard guard(rewriter);
    rewriter.setInsertionPoint(op);
    return loom::ReshapeOp::create(rewriter, op->getLoc(), withShape(value, shape), value);
  }
};

/// Whether a conversion widens floats: readers convert at less cost than writing the result.
bool isWidening(loom::ConvertOp op) {
  Type from = getElementTypeOrSelf(op.getInput()), to = getElementTypeOrSelf(op.getOutput());
  return isa<FloatType>(from) && isa<FloatType>(to) &&
         from.getIntOrFloatBitWidth() < to.getIntOrFloatBitWidth();
}

/// Lets readers convert widened values that are repeated or sliced afterwards.
struct MoveOfConvert : OpTraitRewritePattern<OpTrait::OneResult> {
  using OpTraitRewritePattern::OpTraitRewritePattern;

  LogicalResult matchAndRewrite(Operation *op, PatternRewriter &rewriter) const override {
    if (!isa<loom::BroadcastOp, loom::SliceOp>(op) || feedsLibrary(op->getResult(0)))
      return rewriter.notifyMatchFailure(op, "no view for kernels");
    auto convert = op->getOperand(0).getDefiningOp<loom::ConvertOp>();
    if (!convert || !isWidening(convert) || !isInMemory(convert.getInput()))
      return rewriter.notifyMatchFailure(op, "not of a conversion of what lies in memory");
    auto type = cast<RankedTensorType>(op->getResult(0).getType());
    Operation *moved = rewriter.clone(*op);
    moved->setOperand(0, convert.getInput());
    moved->getResult(0).setType(type.clone(getElementTypeOrSelf(convert.getInput())));
    rewriter.replaceOpWithNewOp<loom::ConvertOp>(op, type, moved->getResult(0));
    return success();
  }
};

/// A reshape of a slice becomes a slice of a reshape, if that cuts the dimension into whole parts:
/// then the slice is next to its readers.
struct ReshapeOfSlice : OpRewritePattern<loom::ReshapeOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(loom::ReshapeOp op, PatternRewriter &rewriter) const override {
    auto slice = op.getInput().getDefiningOp<loom::SliceOp>();
    if (!slice || !slice->hasOneUse() || !isReadWhole(slice.getInput()) ||
        !isInMemory(slice.getInput()))
      return rewriter.notifyMatchFailure(op, "not of a slice of what lies in memory");
    ArrayRef<int64_t> whole = getShape(slice.getInput()), part = getShape(slice.getOutput());
    std::optional<size_t> dim = findOnlyCut(whole, part, slice.getStrides());
    if (!dim)
      return rewriter.notifyMatchFailure(op, "cuts several dimensions, or leaves gaps");
    ArrayRef<int64_t> to = getShape(op.getOutput());
    std::optional<size_t> major = findMajor(part, *dim, to);
    if (!major)
      return rewriter.notifyMatchFailure(op, "merges the dimension that is cut");
    int64_t parts = to[*major], step = part[*dim] / parts, start = slice.getStarts()[*dim];
    if (start % step != 0 || whole[*dim] % step != 0)
      return rewriter.notifyMatchFailure(op, "cuts through parts");
    SmallVector<int64_t> shape(to), starts(to.size(), 0), limits(to), strides(to.size(), 1);
    shape[*major] = whole[*dim] / step;
    starts[*major] = start / step;
    limits[*major] = start / step + parts;
    Value input = loom::ReshapeOp::create(rewriter, op.getLoc(), withShape(slice.getInput(), shape),
                                          slice.getInput());
    rewriter.replaceOpWithNewOp<loom::SliceOp>(op, op.getType(), input, starts, limits, strides);
    return success();
  }

  /// The only dimension that a slice without gaps shortens; nullopt if there are several.
  static std::optional<size_t> findOnlyCut(ArrayRef<int64_t> whole, ArrayRef<int64_t> part,
                                           ArrayRef<int64_t> strides) {
    std::optional<size_t> cut;
    for (size_t i = 0; i < whole.size(); ++i) {
      if (part[i] == 0 || strides[i] != 1 || (whole[i] != part[i] && cut))
        return std::nullopt;
      if (whole[i] != part[i])
        cut = i;
    }
    return cut;
  }

  /// The first of the dimensions of `to` that dimension `dim` of `from` becomes; nullopt if it
  /// merges with others.
  static std::optional<size_t> findMajor(ArrayRef<int64_t> from, size_t dim, ArrayRef<int64_t> to) {
    int64_t before = 1, size = 1;
    for (int64_t each : from.take_front(dim))
      before *= each;
    size_t i = 0;
    for (int64_t passed = 1; i < to.size() && (passed < before || (to[i] == 1 && from[dim] > 1));
         ++i) {
      passed *= to[i];
      if (passed > before)
        return std::nullopt;
    }
    for (size_t j = i; j < to.size() && size < from[dim]; ++j)
      size *= to[j];
    // A dimension of one element stays itself.
    bool isFound = i < to.size() && size == from[dim] && (from[dim] > 1 || to[i] == 1);
    return isFound ? std::optional(i) : std::nullopt;
  }
};

struct NormalizeViews : impl::NormalizeViewsBase<NormalizeViews> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns
        .add<SqueezeBroadcast, MergeBroadcast, TransposeOfUnits, ReshapeOfGenerator, HoistReshape>(
            &getContext());
    patterns.add<SplatOfView, MoveOfConvert, ReshapeOfSlice>(&getContext());
    loom::GatherOp::getCanonicalizationPatterns(patterns, &getContext());
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }
};

} // namespace
} // namespace gridloom
