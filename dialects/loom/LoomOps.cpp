//===- LoomOps.cpp - folders and queries ----------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/Loom.h"

#include "mlir/IR/PatternMatch.h"

using namespace mlir;
using namespace gridloom::loom;

#define GET_OP_CLASSES
#include "dialects/loom/LoomOps.cpp.inc"

OpFoldResult ConstantOp::fold(FoldAdaptor) { return getValue(); }

OpFoldResult ReshapeOp::fold(FoldAdaptor) {
  if (getInput().getType() == getType())
    return getInput();
  if (auto inner = getInput().getDefiningOp<ReshapeOp>()) {
    if (inner.getInput().getType() == getType())
      return inner.getInput();
    setOperand(inner.getInput());
    return getResult();
  }
  return {};
}

OpFoldResult TransposeOp::fold(FoldAdaptor) {
  if (llvm::equal(getPermutation(), llvm::seq<int64_t>(0, getPermutation().size())))
    return getInput();
  return {};
}

/// (start, step) if constant indices are start, start + step, ... with a positive step; their count
/// and shape are the indices'.
static std::optional<std::pair<int64_t, int64_t>> matchRange(Value indices) {
  auto constant = indices.getDefiningOp<ConstantOp>();
  auto values = constant ? dyn_cast<DenseIntElementsAttr>(constant.getValue()) : nullptr;
  if (!values || values.empty())
    return std::nullopt;
  auto numbers = values.getValues<APInt>();
  bool isUnsigned = values.getElementType().isUnsignedInteger();
  auto at = [&](int64_t i) {
    APInt number = *(numbers.begin() + i);
    return isUnsigned ? static_cast<int64_t>(number.getZExtValue()) : number.getSExtValue();
  };
  int64_t count = values.getNumElements(), start = at(0), step = count > 1 ? at(1) - start : 1;
  if (step <= 0)
    return std::nullopt;
  for (int64_t i = 2; i < count; ++i)
    if (at(i) != start + i * step)
      return std::nullopt;
  return std::pair(start, step);
}

namespace {
/// A lookup at constant, evenly spaced places is a slice, such as the first token's row, or one of
/// query, key and value.
struct GatherOfRange : OpRewritePattern<GatherOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(GatherOp op, PatternRewriter &rewriter) const override {
    auto range = matchRange(op.getIndices());
    if (!range)
      return rewriter.notifyMatchFailure(op, "not at known places in order");
    auto [start, step] = *range;
    RankedTensorType type = op.getInput().getType();
    int64_t dim = op.getDim(), count = op.getIndices().getType().getNumElements();
    int64_t limit = start + (count - 1) * step + 1;
    if (start < 0 || limit > type.getDimSize(dim))
      return rewriter.notifyMatchFailure(op, "outside");
    SmallVector<int64_t> starts(type.getRank(), 0), limits(type.getShape()),
        strides(type.getRank(), 1), part(type.getShape());
    starts[dim] = start;
    limits[dim] = limit;
    strides[dim] = step;
    part[dim] = count;
    Value slice = SliceOp::create(rewriter, op.getLoc(), type.clone(part), op.getInput(), starts,
                                  limits, strides);
    rewriter.replaceOpWithNewOp<ReshapeOp>(op, op.getType(), slice);
    return success();
  }
};
} // namespace

void GatherOp::getCanonicalizationPatterns(RewritePatternSet &patterns, MLIRContext *context) {
  patterns.add<GatherOfRange>(context);
}

static SmallVector<int64_t> getFreeDims(Type type, ArrayRef<int64_t> batch,
                                        ArrayRef<int64_t> contract) {
  SmallVector<int64_t> dims;
  for (int64_t i = 0, rank = cast<RankedTensorType>(type).getRank(); i < rank; ++i)
    if (!llvm::is_contained(batch, i) && !llvm::is_contained(contract, i))
      dims.push_back(i);
  return dims;
}

SmallVector<int64_t> DotGeneralOp::getLhsFreeDims() {
  return getFreeDims(getLhs().getType(), getLhsBatch(), getLhsContract());
}

SmallVector<int64_t> DotGeneralOp::getRhsFreeDims() {
  return getFreeDims(getRhs().getType(), getRhsBatch(), getRhsContract());
}
