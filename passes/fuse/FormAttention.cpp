//===- FormAttention.cpp - products around a softmax as a call ------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/fuse/Passes.h"
#include "passes/fuse/StridedView.h"

using namespace mlir;

namespace gridloom {
#define GEN_PASS_DEF_FORMATTENTION
#include "passes/fuse/Passes.h.inc"

namespace {

RankedTensorType getType(Value value) { return cast<RankedTensorType>(value.getType()); }

bool isHalf(Type element) { return element.isF16() || element.isBF16(); }

/// An operand: its memory, and the strides of [batch, heads, rows, columns] from `offset` on.
struct Operand {
  Value base;
  SmallVector<int64_t> strides;
  int64_t offset = 0;
  double scale = 1;
};

/// softmax(scale * query * key^T + mask) * value, as matched in the program.
struct Attention {
  loom::DotGeneralOp scores, product;
  Value mask; // added to the scores; null if there is none
  Value seen; // where false, `fill` replaces the score; null: true everywhere
  double fill = 0;
  bool causal = false; // moreover, a query sees only keys up to its own index
  double scale = 1;
  Operand query, key, value;
  SmallVector<int64_t> sizes; // batch, heads, queries, keys, depth, value depth
  /// Query heads per key head; if above 1, their single queries become queries of one head.
  int64_t group = 1;
  /// The value that the call replaces, its strides, and the operations that become dead.
  Value result;
  SmallVector<int64_t> out;
  SmallVector<Operation *> path;
};

/// The value before conversions that nothing else reads; adds them to `path`.
Value skipConversions(Value value, SmallVector<Operation *> &path) {
  while (auto convert = value.getDefiningOp<loom::ConvertOp>()) {
    Type from = getType(convert.getInput()).getElementType();
    if (!isHalf(from) && !from.isF32())
      break;
    path.push_back(convert);
    value = convert.getInput();
  }
  return value;
}

/// Matches an operand of a product through conversions and factors, as strides over `element`, a
/// 16-bit float. `batch` (at most two), `rows` and `columns` are dimensions of the value.
std::optional<Operand> matchOperand(Value value, ArrayRef<int64_t> batch, int64_t rows,
                                    int64_t columns, Type element) {
  double scale = 1;
  while (getType(value).getElementType() != element) {
    Operation *op = value.getDefiningOp();
    auto factor = op && value.hasOneUse() ? matchScale(op) : std::nullopt;
    if (factor && isModerate(scale * factor->second)) {
      scale *= factor->second;
      value = factor->first;
    } else if (auto convert = dyn_cast_or_null<loom::ConvertOp>(op);
               convert && getType(convert.getInput()).getElementType() == element) {
      value = convert.getInput();
    } else {
      return std::nullopt;
    }
  }
  for (const StridedView &view : traceViews(value)) {
    if (getType(view.base).getElementType() != element)
      continue;
    auto shape = getType(value).getShape();
    SmallVector<int64_t> strides(2 - batch.size(), 1);
    bool fits = true;
    auto add = [&](int64_t dim) {
      // A dimension of one element can have any stride; others must not repeat elements.
      strides.push_back(shape[dim] == 1 ? 1 : view.strides[dim]);
      fits &= strides.back() > 0;
    };
    for (int64_t dim : batch)
      add(dim);
    add(rows);
    add(columns);
    if (fits && strides.back() == 1)
      return Operand{view.base, strides, view.offset, scale * view.scale};
  }
  return std::nullopt;
}

/// Keys or values [batch, heads, rows, columns] before each head was repeated `group` times; null
/// if they were not repeated.
Value matchRepeated(Value value, int64_t &group) {
  auto reshape = value.getDefiningOp<loom::ReshapeOp>();
  auto broadcast =
      reshape ? reshape.getInput().getDefiningOp<loom::BroadcastOp>() : loom::BroadcastOp();
  if (!broadcast || broadcast.getDims() != ArrayRef<int64_t>{0, 1, 3, 4})
    return {};
  ArrayRef<int64_t> from = getType(broadcast.getInput()).getShape(),
                    to = getType(broadcast.getOutput()).getShape(),
                    shape = getType(value).getShape();
  if (to.size() != 5 || shape.size() != 4 || shape[1] != to[1] * to[2] ||
      from != ArrayRef<int64_t>{shape[0], to[1], shape[2], shape[3]} || shape[0] != to[0])
    return {};
  group = to[2];
  return broadcast.getInput();
}

/// Whether a constant of [..., queries, keys] lets each query see all keys, or those up to its own
/// index; nullopt if it does neither.
enum class Pattern { All, Causal };
std::optional<Pattern> matchPattern(Value seen) {
  auto constant = seen.getDefiningOp<loom::ConstantOp>();
  auto values = constant ? dyn_cast<DenseElementsAttr>(constant.getValue()) : DenseElementsAttr();
  if (!values || !getType(seen).getElementType().isInteger(1))
    return std::nullopt;
  ArrayRef<int64_t> shape = getType(seen).getShape();
  int64_t queries = shape[shape.size() - 2], keys = shape.back();
  bool isAll = true, isCausal = true;
  for (auto [i, isSeen] : llvm::enumerate(values.getValues<bool>())) {
    int64_t query = static_cast<int64_t>(i) / keys % queries, key = static_cast<int64_t>(i) % keys;
    isAll &= isSeen;
    isCausal &= isSeen == (key <= query);
  }
  if (isAll)
    return Pattern::All;
  return isCausal ? std::optional(Pattern::Causal) : std::nullopt;
}

/// Matches a select between the scores and a number that makes their weight vanish.
bool matchHidden(loom::SelectOp select, Attention &attention) {
  constexpr double vanishes = -1000;
  std::optional<double> fill = getFloatSplat(select.getOnFalse());
  if (!fill || !(*fill <= vanishes) || attention.scale != 1)
    return false;
  std::optional<Pattern> pattern = matchPattern(select.getPredicate());
  if (pattern) {
    attention.causal |= *pattern == Pattern::Causal;
    return true;
  }
  if (attention.mask || attention.seen)
    return false;
  attention.seen = select.getPredicate();
  attention.fill = *fill;
  return true;
}

/// Matches the scores as a product of query and key, followed by factors and at most one mask that
/// is added or hides.
bool matchScores(Value value, Attention &attention) {
  while (value.hasOneUse()) {
    value = skipConversions(value, attention.path);
    Operation *op = value.getDefiningOp();
    if (!op || !value.hasOneUse())
      return false;
    if (auto dot = dyn_cast<loom::DotGeneralOp>(op)) {
      attention.scores = dot;
      return true;
    }
    attention.path.push_back(op);
    if (auto factor = matchScale(op); factor && isModerate(attention.scale * factor->second)) {
      attention.scale *= factor->second;
      value = factor->first;
      continue;
    }
    if (auto select = dyn_cast<loom::SelectOp>(op)) {
      if (!matchHidden(select, attention))
        return false;
      value = select.getOnTrue();
      continue;
    }
    auto add = dyn_cast<loom::AddOp>(op);
    // A factor after the mask would scale the mask, too.
    if (!add || attention.mask || attention.seen || attention.scale != 1)
      return false;
    auto isProduct = [](Value side) {
      SmallVector<Operation *> path;
      Operation *from = skipConversions(side, path).getDefiningOp();
      while (from && (matchScale(from) || isa<loom::ConvertOp>(from)))
        from = (isa<loom::ConvertOp>(from) ? from->getOperand(0) : matchScale(from)->first)
                   .getDefiningOp();
      return isa_and_nonnull<loom::DotGeneralOp>(from);
    };
    bool left = isProduct(add.getLhs());
    value = left ? add.getLhs() : add.getRhs();
    attention.mask = left ? add.getRhs() : add.getLhs();
  }
  return false;
}

/// If the result is transposed afterwards, the call writes it transposed.
void matchResult(Attention &attention) {
  Value result = attention.product.getOutput();
  if (result.hasOneUse() && getType(result).getElementType().isF32())
    if (auto convert = dyn_cast<loom::ConvertOp>(*result.getUsers().begin()))
      result = convert.getOutput();
  SmallVector<int64_t> strides = getMemoryStrides(result);
  if (auto transpose = result.hasOneUse() ? dyn_cast<loom::TransposeOp>(*result.getUsers().begin())
                                          : loom::TransposeOp();
      transpose && transpose.getPermutation().back() == getType(result).getRank() - 1) {
    SmallVector<int64_t> after = getMemoryStrides(transpose.getOutput());
    for (auto [i, dim] : llvm::enumerate(transpose.getPermutation()))
      strides[dim] = after[i];
    result = transpose.getOutput();
  }
  attention.result = result;
  attention.out.assign(4 - strides.size(), 1);
  llvm::append_range(attention.out, strides);
}

/// Changes strides of [batch, heads, 1, columns] to [batch, heads / group, group, columns].
void groupHeads(MutableArrayRef<int64_t> strides, int64_t group) {
  strides[2] = strides[1];
  strides[1] *= group;
}

std::optional<Attention> match(loom::DotGeneralOp product) {
  Attention attention;
  attention.product = product;
  auto softmax = skipConversions(product.getLhs(), attention.path).getDefiningOp<loom::SoftmaxOp>();
  int64_t rank = getType(product.getLhs()).getRank();
  if (!softmax || rank < 2 || rank > 4 || !loom::isPlainProduct(product, rank) ||
      !llvm::is_sorted(product.getLhsBatch()) ||
      product.getLhsContract() != ArrayRef<int64_t>{rank - 1} ||
      product.getLhsFreeDims()[0] != rank - 2 ||
      static_cast<int64_t>(softmax.getDim()) != rank - 1 || !softmax.getOutput().hasOneUse() ||
      !matchScores(softmax.getInput(), attention) || !loom::isPlainProduct(attention.scores, rank))
    return std::nullopt;
  for (Operation *op : attention.path)
    if (!op->hasOneUse())
      return std::nullopt;
  matchResult(attention);
  Type element = getType(attention.result).getElementType();
  if (!isHalf(element))
    return std::nullopt;

  loom::DotGeneralOp scores = attention.scores;
  auto query = matchOperand(scores.getLhs(), scores.getLhsBatch(), scores.getLhsFreeDims()[0],
                            scores.getLhsContract()[0], element);
  // Single queries of heads that share keys become queries of one head, which reads its keys once.
  Value keys = scores.getRhs(), values = product.getRhs();
  int64_t group = 1, valueGroup = 1;
  Value ownKeys = matchRepeated(keys, group), ownValues = matchRepeated(values, valueGroup);
  auto isInOrder = [](ArrayRef<int64_t> dims) { return dims == ArrayRef<int64_t>{0, 1}; };
  if (ownKeys && ownValues && group == valueGroup && !attention.causal &&
      isInOrder(scores.getRhsBatch()) && isInOrder(product.getRhsBatch()) &&
      getType(softmax.getOutput()).getDimSize(2) == 1) {
    keys = ownKeys;
    values = ownValues;
    attention.group = group;
  }
  auto key = matchOperand(keys, scores.getRhsBatch(), scores.getRhsFreeDims()[0],
                          scores.getRhsContract()[0], element);
  auto value = matchOperand(values, product.getRhsBatch(), product.getRhsContract()[0],
                            product.getRhsFreeDims()[0], element);
  if (!query || !key || !value || value->scale != 1)
    return std::nullopt;
  attention.query = *query;
  attention.key = *key;
  attention.value = *value;
  attention.scale *= query->scale * key->scale;
  ArrayRef<int64_t> shape = getType(softmax.getOutput()).getShape();
  attention.sizes.assign(4 - rank, 1);
  llvm::append_range(attention.sizes, shape);
  attention.sizes.push_back(getType(scores.getLhs()).getDimSize(scores.getLhsContract()[0]));
  attention.sizes.push_back(getType(product.getOutput()).getShape().back());
  if (attention.group > 1) {
    attention.sizes[1] /= attention.group;
    attention.sizes[2] = attention.group;
    groupHeads(attention.query.strides, attention.group);
    groupHeads(attention.out, attention.group);
  }
  return attention;
}

/// Whether cuDNN's engines for sm_80 and newer support the attention.
bool isInLibrary(const Attention &attention) {
  return llvm::all_of(ArrayRef(attention.sizes).take_back(2), loom::isAttentionDepth) &&
         llvm::all_of(attention.sizes, [](int64_t size) { return size > 0; });
}

/// The mask as 16-bit floats. Values that hide a key in f32 still hide it and stay finite, so that
/// a row that sees nothing still has weights. Flash attention multiplies by log2(e) in f32, where
/// the lowest bf16 overflows.
Value narrowMask(OpBuilder &builder, Value mask, Type element) {
  RankedTensorType type = getType(mask);
  if (type.getElementType() == element && !element.isBF16())
    return mask;
  constexpr double leastOfF16 = -65504, leastOfBF16 = -1e30;
  double least = element.isBF16() ? leastOfBF16 : leastOfF16;
  auto splat = SplatElementsAttr::get(type, builder.getFloatAttr(type.getElementType(), least));
  Value floor = loom::ConstantOp::create(builder, mask.getLoc(), type, splat);
  Value raised = loom::MaximumOp::create(builder, mask.getLoc(), mask, floor);
  return type.getElementType() == element
             ? raised
             : loom::ConvertOp::create(builder, mask.getLoc(), type.clone(element), raised)
                   .getOutput();
}

struct FormAttention : impl::FormAttentionBase<FormAttention> {
  void runOnOperation() override {
    SmallVector<loom::DotGeneralOp> dots;
    getOperation().walk([&](loom::DotGeneralOp dot) {
      if (dot->getParentOfType<func::FuncOp>())
        dots.push_back(dot);
    });
    llvm::SmallDenseSet<Operation *> taken;
    for (loom::DotGeneralOp dot : dots) {
      if (taken.contains(dot))
        continue;
      std::optional<Attention> attention = match(dot);
      if (!attention || !isInLibrary(*attention))
        continue;
      taken.insert(attention->scores);
      convert(*attention);
    }
    getOperation().walk([](func::FuncOp func) {
      for (Operation &op : llvm::make_early_inc_range(llvm::reverse(func.front())))
        if (isOpTriviallyDead(&op))
          op.erase();
    });
  }

  static void convert(Attention attention) {
    OpBuilder builder(attention.result.getDefiningOp());
    Type element = getType(attention.result).getElementType();
    Value mask;
    SmallVector<int64_t> maskStrides;
    if (Value given = attention.mask ? attention.mask : attention.seen) {
      StridedView view = traceMask(given);
      Value numbers = attention.mask ? view.base : makeMask(builder, view.base, attention.fill);
      mask = narrowMask(builder, numbers, element);
      maskStrides.assign(4 - view.strides.size(), 0);
      llvm::append_range(maskStrides, view.strides);
      if (attention.group > 1)
        groupHeads(maskStrides, attention.group);
    }
    auto descriptor = plan::AttentionAttr::get(
        builder.getContext(), attention.sizes, attention.query.strides, attention.key.strides,
        attention.value.strides, attention.out, maskStrides,
        builder.getF64FloatAttr(attention.scale), attention.causal);
    SmallVector<Location> locs{attention.scores.getLoc()};
    for (Operation *op : llvm::reverse(attention.path))
      locs.push_back(op->getLoc());
    locs.push_back(attention.product.getLoc());
    auto read = [&](const Operand &operand) {
      return makeViewBase(builder, operand.base, operand.offset);
    };
    auto call = plan::AttentionOp::create(
        builder, builder.getFusedLoc(locs), attention.result.getType(), read(attention.query),
        read(attention.key), read(attention.value), mask, descriptor);
    Value result = attention.result;
    result.replaceAllUsesWith(call.getOutput());
  }

  /// 0 where `seen`, else `fill`.
  static Value makeMask(OpBuilder &builder, Value seen, double fill) {
    RankedTensorType type = getType(seen).clone(builder.getF32Type());
    auto splat = [&](double value) {
      auto attr = SplatElementsAttr::get(type, builder.getF32FloatAttr(static_cast<float>(value)));
      return loom::ConstantOp::create(builder, seen.getLoc(), type, attr).getOutput();
    };
    return loom::SelectOp::create(builder, seen.getLoc(), type, seen, splat(0), splat(fill));
  }

  /// The mask before it was repeated to the shape of the scores. Factors and conversions stay.
  static StridedView traceMask(Value mask) {
    for (const StridedView &view : traceViews(mask))
      if (view.scale == 1 && view.offset == 0)
        return view;
    return traceViews(mask).back();
  }
};

} // namespace
} // namespace gridloom
