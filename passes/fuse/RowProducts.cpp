//===- RowProducts.cpp - contractions that kernels do best ----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/fuse/RowProducts.h"

#include "passes/fuse/StridedView.h"

using namespace mlir;
using namespace gridloom;

/// True if a value is not in memory as it is: the library would read its source by strides, a
/// kernel would need it written first.
static bool isView(Value value) {
  while (auto reshape = value.getDefiningOp<loom::ReshapeOp>())
    value = reshape.getInput();
  Operation *op = value.getDefiningOp();
  return isa_and_nonnull<loom::TransposeOp, loom::BroadcastOp>(op);
}

/// True for slices that the library reads in place, while a kernel would need a copy.
static bool isStridedSlice(Value value) {
  while (auto reshape = value.getDefiningOp<loom::ReshapeOp>())
    value = reshape.getInput();
  auto slice = value.getDefiningOp<loom::SliceOp>();
  return slice && !isMemoryView(slice) && traceViews(value).size() > 1;
}

static int64_t countElements(Value value, ArrayRef<int64_t> dims) {
  int64_t count = 1;
  for (int64_t dim : dims)
    count *= cast<RankedTensorType>(value.getType()).getDimSize(dim);
  return count;
}

bool gridloom::isRowProduct(loom::DotGeneralOp dot) {
  if (dot.getLhsContract().size() != 1 || isView(dot.getLhs()) || isView(dot.getRhs()) ||
      isStridedSlice(dot.getRhs()))
    return false;
  auto weight = dot.getRhs().getDefiningOp<loom::GetWeightOp>();
  bool isPadded = weight && weight.getLayoutAttr() && weight.getLayoutAttr().getPad() != 0;
  int64_t rows = countElements(dot.getLhs(), dot.getLhsFreeDims());
  int64_t columns = countElements(dot.getRhs(), dot.getRhsFreeDims());
  int64_t depth = countElements(dot.getLhs(), dot.getLhsContract());
  return !isPadded && rows >= 1 && rows <= loom::kMaxProductRows && columns > 1 && depth > 1;
}

/// The only dimension that a broadcast adds to those of its input, which keep their order and
/// sizes; nullopt for other broadcasts.
static std::optional<int64_t> findRepeated(loom::BroadcastOp broadcast) {
  ArrayRef<int64_t> from = broadcast.getInput().getType().getShape(),
                    to = broadcast.getType().getShape(), dims = broadcast.getDims();
  if (from.size() + 1 != to.size())
    return std::nullopt;
  for (auto [size, dim] : llvm::zip_equal(from, dims))
    if (size != to[dim])
      return std::nullopt;
  for (int64_t dim = 0; dim < static_cast<int64_t>(to.size()); ++dim)
    if (!llvm::is_contained(dims, dim))
      return dim;
  return std::nullopt;
}

namespace {
/// A repetition: dimension `dim` of `source`, seen as `shape`, is repeated `times` times.
struct Repeats {
  Value source;
  SmallVector<int64_t> shape;
  int64_t dim, times;
};
} // namespace

/// Matches a broadcast of [.., 1, ..] or [.., ..] to [.., times, ..].
static std::optional<Repeats> matchRepeatedWhole(loom::BroadcastOp broadcast) {
  SmallVector<int64_t> shape(broadcast.getType().getShape());
  SmallVector<bool> isKept(shape.size(), false);
  for (auto [size, dim] :
       llvm::zip_equal(broadcast.getInput().getType().getShape(), broadcast.getDims()))
    isKept[dim] = size == shape[dim];
  Repeats repeats{broadcast.getInput(), {}, -1, 1};
  for (auto [dim, size] : llvm::enumerate(shape)) {
    if (isKept[dim] || size == 1)
      continue;
    if (repeats.dim >= 0)
      return std::nullopt;
    repeats.dim = static_cast<int64_t>(dim);
    repeats.times = size;
  }
  if (repeats.dim < 0)
    return std::nullopt;
  shape[repeats.dim] = 1;
  repeats.shape = std::move(shape);
  return repeats;
}

/// As matchRepeatedWhole, or a repetition of [.., n, ..] as [.., n * times, ..].
static std::optional<Repeats> matchRepeats(Value value) {
  if (auto broadcast = value.getDefiningOp<loom::BroadcastOp>())
    return matchRepeatedWhole(broadcast);
  auto reshape = value.getDefiningOp<loom::ReshapeOp>();
  auto broadcast =
      reshape ? reshape.getInput().getDefiningOp<loom::BroadcastOp>() : loom::BroadcastOp();
  std::optional<int64_t> repeated = broadcast ? findRepeated(broadcast) : std::nullopt;
  if (!repeated || *repeated == 0)
    return std::nullopt;
  // The reshape has to merge the repeated dimension with the one before it.
  SmallVector<int64_t> merged(broadcast.getType().getShape());
  int64_t times = merged[*repeated], dim = *repeated - 1;
  merged[dim] *= times;
  merged.erase(merged.begin() + *repeated);
  if (reshape.getType().getShape() != ArrayRef<int64_t>(merged))
    return std::nullopt;
  return Repeats{broadcast.getInput(),
                 SmallVector<int64_t>(broadcast.getInput().getType().getShape()), dim, times};
}

loom::DotGeneralOp gridloom::mergeRepeats(loom::DotGeneralOp dot) {
  std::optional<Repeats> repeats = matchRepeats(dot.getRhs());
  SmallVector<int64_t> free = dot.getLhsFreeDims();
  if (!repeats || free.size() != 1 || dot.getLhsBatch().empty())
    return dot;
  // Heads that share their matrix become rows of one product: the rows must follow the batch.
  int64_t times = repeats->times, heads = dot.getLhsBatch().back();
  SmallVector<int64_t> left(dot.getLhs().getType().getShape());
  if (dot.getRhsBatch().back() != repeats->dim || free[0] != heads + 1 ||
      times * left[free[0]] > loom::kMaxProductRows)
    return dot;
  left[heads] /= times;
  left[free[0]] *= times;
  SmallVector<int64_t> result(dot.getType().getShape());
  size_t last = dot.getLhsBatch().size() - 1;
  result[last] /= times;
  result[last + 1] *= times;
  OpBuilder builder(dot);
  Type element = dot.getLhs().getType().getElementType();
  Value rows = loom::ReshapeOp::create(builder, dot.getLoc(), RankedTensorType::get(left, element),
                                       dot.getLhs());
  Value matrices = repeats->source;
  if (cast<RankedTensorType>(matrices.getType()).getShape() != ArrayRef<int64_t>(repeats->shape))
    matrices = loom::ReshapeOp::create(builder, dot.getLoc(),
                                       RankedTensorType::get(repeats->shape, element), matrices);
  auto product = loom::DotGeneralOp::create(
      builder, dot.getLoc(), RankedTensorType::get(result, dot.getType().getElementType()), rows,
      matrices, dot.getLhsBatch(), dot.getRhsBatch(), dot.getLhsContract(), dot.getRhsContract(),
      dot.getTf32());
  Value back = loom::ReshapeOp::create(builder, dot.getLoc(), dot.getType(), product.getOutput());
  dot.getOutput().replaceAllUsesWith(back);
  dot.erase();
  return product;
}
