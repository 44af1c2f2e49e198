//===- UnpackWeights.cpp - weights that hold several, unpacked ------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Query, key and value, or gate and up, are often one product whose result is sliced. A device's
// share of heads is a stretch of each part but not of the whole, so splitting the whole over
// devices would mean fetching most of it from others. The layout phase merges the parts again on
// each device.
//
//===----------------------------------------------------------------------===//
#include "dialects/dist/Sharding.h"
#include "dialects/dist/Splits.h"
#include "passes/shard/NamePatterns.h"
#include "passes/shard/Shard.h"
#include "passes/shard/Spots.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

#include <map>

using namespace mlir;
using namespace gridloom;

namespace gridloom {
#define GEN_PASS_DEF_UNPACKWEIGHTS
#include "passes/shard/Passes.h.inc"
} // namespace gridloom

namespace {

RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }

/// Elements [start, stop) of dimension `dim` of a value.
struct Stretch {
  Value value;
  int64_t dim = 0, start = 0, stop = 0;

  bool operator<(const Stretch &other) const {
    return std::tuple(value.getAsOpaquePointer(), dim, start, stop) <
           std::tuple(other.value.getAsOpaquePointer(), other.dim, other.start, other.stop);
  }
  RankedTensorType getType() const {
    SmallVector<int64_t> shape(typeOf(value).getShape());
    shape[dim] = stop - start;
    return typeOf(value).clone(shape);
  }
  bool isWhole() const { return stop - start == typeOf(value).getDimSize(dim); }
};

/// The stretch that a slice takes, if it cuts one dimension and has no gaps.
std::optional<Stretch> matchSlice(loom::SliceOp slice) {
  ArrayRef<int64_t> whole = typeOf(slice.getInput()).getShape();
  std::optional<Stretch> stretch;
  for (size_t i = 0; i < whole.size(); ++i) {
    if (whole[i] == slice.getType().getDimSize(i))
      continue;
    if (stretch || slice.getStrides()[i] != 1 || slice.getType().getNumElements() == 0)
      return std::nullopt;
    stretch = {slice.getInput(), static_cast<int64_t>(i), slice.getStarts()[i],
               slice.getLimits()[i]};
  }
  return stretch;
}

/// The stretch of a reshape's input that becomes a stretch of its result, if there is one.
std::optional<Stretch> getSource(loom::ReshapeOp op, const Stretch &stretch) {
  dist::ShardingRule rule = op.getShardingRule();
  auto isReal = [&](int64_t factor) { return rule.sizes[factor] != 1; };
  auto out = llvm::filter_to_vector(rule.tensors[1][stretch.dim], isReal);
  if (out.size() != 1 || rule.kinds[out[0]] == dist::FactorKind::NeedReplication)
    return std::nullopt;
  for (auto [dim, factors] : llvm::enumerate(rule.tensors[0])) {
    auto in = llvm::filter_to_vector(factors, isReal);
    if (in.empty() || in.front() != out[0])
      continue;
    int64_t under = 1;
    for (int64_t factor : ArrayRef(in).drop_front())
      under *= rule.sizes[factor];
    return Stretch{op.getInput(), static_cast<int64_t>(dim), stretch.start * under,
                   stretch.stop * under};
  }
  return std::nullopt;
}

/// The operand of a contraction, and its stretch, that a stretch of the result is computed from.
std::optional<std::pair<unsigned, Stretch>> getSource(loom::DotGeneralOp op,
                                                      const Stretch &stretch) {
  auto batch = static_cast<int64_t>(op.getLhsBatch().size());
  SmallVector<int64_t> lhs = op.getLhsFreeDims(), rhs = op.getRhsFreeDims();
  int64_t rows = batch + static_cast<int64_t>(lhs.size());
  if (stretch.dim < batch)
    return std::nullopt;
  if (stretch.dim < rows)
    return std::pair(0u,
                     Stretch{op.getLhs(), lhs[stretch.dim - batch], stretch.start, stretch.stop});
  return std::pair(1u, Stretch{op.getRhs(), rhs[stretch.dim - rows], stretch.start, stretch.stop});
}

bool isElementwise(Operation *op) {
  return isa<loom::KernelBodyInterface>(op) && op->getNumResults() == 1 &&
         llvm::all_of(op->getOperandTypes(), [&](Type type) {
           return cast<RankedTensorType>(type).getShape() == typeOf(op->getResult(0)).getShape();
         });
}

/// True for values that cost nothing at any stretch, such as a broadcast bias.
bool isRepeated(Value value) {
  auto constant = value.getDefiningOp<loom::ConstantOp>();
  return value.getDefiningOp<loom::BroadcastOp>() ||
         (constant && isa<SplatElementsAttr>(constant.getValue()));
}

/// The operand, and its stretch, that a stretch of an elementwise result or a move comes from.
std::optional<Stretch> getSource(Operation *op, const Stretch &stretch) {
  if (auto reshape = dyn_cast<loom::ReshapeOp>(op))
    return getSource(reshape, stretch);
  if (auto transpose = dyn_cast<loom::TransposeOp>(op))
    return Stretch{transpose.getInput(), transpose.getPermutation()[stretch.dim], stretch.start,
                   stretch.stop};
  if (!isElementwise(op))
    return std::nullopt;
  std::optional<Stretch> source;
  for (Value operand : op->getOperands()) {
    if (isRepeated(operand))
      continue;
    if (source && source->value != operand)
      return std::nullopt;
    source = Stretch{operand, stretch.dim, stretch.start, stretch.stop};
  }
  return source;
}

/// The weight, and its stretch, that a contraction's operand is or is gathered from.
std::optional<Stretch> findWeight(Stretch stretch) {
  while (Operation *op = stretch.value.getDefiningOp()) {
    if (isa<loom::GetWeightOp>(op))
      return stretch;
    if (auto gather = dyn_cast<loom::GatherOp>(op)) {
      int64_t at = gather.getDim(), rank = typeOf(gather.getIndices()).getRank();
      if (stretch.dim >= at && stretch.dim < at + rank)
        return std::nullopt;
      stretch.dim -= stretch.dim < at ? 0 : rank - 1;
      stretch.value = gather.getInput();
    } else if (isa<loom::ReshapeOp, loom::TransposeOp>(op)) {
      std::optional<Stretch> source = getSource(op, stretch);
      if (!source)
        return std::nullopt;
      stretch = *source;
    } else {
      return std::nullopt;
    }
  }
  return std::nullopt;
}

/// The slices of one contraction's result, and the values between it and them.
struct Pack {
  Stretch weight;
  SmallVector<std::pair<loom::SliceOp, Stretch>> slices; ///< with the stretch of the weight
  llvm::SetVector<Value> between;                        ///< the contraction's result included
};

/// Rebuilds what leads to a value for a stretch of it alone.
class PartBuilder {
public:
  Value build(const Stretch &stretch);

private:
  Value buildOn(Operation *op, const Stretch &stretch, OpBuilder &builder);

  std::map<Stretch, Value> made;
};

} // namespace

Value PartBuilder::buildOn(Operation *op, const Stretch &stretch, OpBuilder &builder) {
  RankedTensorType type = stretch.getType();
  SmallVector<Value> operands(op->getOperands());
  if (auto dot = dyn_cast<loom::DotGeneralOp>(op)) {
    auto source = getSource(dot, stretch);
    operands[source->first] = build(source->second);
  } else if (auto gather = dyn_cast<loom::GatherOp>(op)) {
    int64_t rank = typeOf(gather.getIndices()).getRank();
    int64_t dim =
        stretch.dim - (stretch.dim < static_cast<int64_t>(gather.getDim()) ? 0 : rank - 1);
    operands[0] = build({gather.getInput(), dim, stretch.start, stretch.stop});
  } else if (auto broadcast = dyn_cast<loom::BroadcastOp>(op)) {
    for (auto [i, dim] : llvm::enumerate(broadcast.getDims()))
      if (dim == stretch.dim && typeOf(operands[0]).getDimSize(i) != 1)
        operands[0] =
            build({broadcast.getInput(), static_cast<int64_t>(i), stretch.start, stretch.stop});
  } else if (isElementwise(op)) {
    for (Value &operand : operands)
      operand = build({operand, stretch.dim, stretch.start, stretch.stop});
  } else {
    operands[0] = build(*getSource(op, stretch));
  }
  Operation *copy = builder.clone(*op);
  copy->setOperands(operands);
  copy->getResult(0).setType(type);
  // The node's result is the whole, which no longer exists.
  copy->setAttr(dist::kPart, builder.getUnitAttr());
  return copy->getResult(0);
}

Value PartBuilder::build(const Stretch &stretch) {
  if (stretch.isWhole())
    return stretch.value;
  if (auto it = made.find(stretch); it != made.end())
    return it->second;
  Operation *op = stretch.value.getDefiningOp();
  OpBuilder builder(stretch.value.getContext());
  builder.setInsertionPointAfterValue(stretch.value);
  RankedTensorType type = stretch.getType();
  if (auto constant = dyn_cast_or_null<loom::ConstantOp>(op))
    if (auto splat = dyn_cast<SplatElementsAttr>(constant.getValue()))
      return made[stretch] =
                 loom::ConstantOp::create(builder, op->getLoc(), splat.resizeSplat(type));
  bool isRebuilt = op && (isa<loom::DotGeneralOp, loom::GatherOp, loom::BroadcastOp>(op) ||
                          (isElementwise(op) && getSource(op, stretch)) ||
                          (isa<loom::ReshapeOp, loom::TransposeOp>(op) && getSource(op, stretch)));
  if (isRebuilt)
    return made[stretch] = buildOn(op, stretch, builder);
  SmallVector<int64_t> starts(type.getRank(), 0), limits(typeOf(stretch.value).getShape()),
      strides(type.getRank(), 1);
  starts[stretch.dim] = stretch.start;
  limits[stretch.dim] = stretch.stop;
  // An input has no node: takes its reader's.
  Location loc = (op ? op : *stretch.value.getUsers().begin())->getLoc();
  if (auto weight = dyn_cast_or_null<loom::GetWeightOp>(op))
    loc = NameLoc::get(builder.getStringAttr(weight.getName() + "[" + Twine(stretch.start) + ":" +
                                             Twine(stretch.stop) + "]"));
  return made[stretch] =
             loom::SliceOp::create(builder, loc, type, stretch.value, starts, limits, strides);
}

/// Follows a slice up to the contraction whose result it takes a part of; null if there is none.
static loom::DotGeneralOp trace(loom::SliceOp slice, llvm::SetVector<Value> &between,
                                Stretch &weight) {
  std::optional<Stretch> stretch = matchSlice(slice);
  while (stretch) {
    Operation *op = stretch->value.getDefiningOp();
    if (!op)
      return {};
    between.insert(stretch->value);
    if (auto dot = dyn_cast<loom::DotGeneralOp>(op)) {
      auto source = getSource(dot, *stretch);
      std::optional<Stretch> found = source ? findWeight(source->second) : std::nullopt;
      if (!found)
        return {};
      weight = *found;
      return dot;
    }
    stretch = getSource(op, *stretch);
  }
  return {};
}

static bool hasSharding(Value value) { return dist::getSharding(value) || dist::getStorage(value); }

/// Whether an operand of `op`, or what it is broadcast or moved from, has a given sharding.
static bool readsSharded(Operation *op) {
  return llvm::any_of(op->getOperands(), [](Value value) {
    while (!hasSharding(value) &&
           isa_and_nonnull<loom::BroadcastOp, loom::ReshapeOp, loom::TransposeOp, loom::ConvertOp>(
               value.getDefiningOp()))
      value = value.getDefiningOp()->getOperand(0);
    return value.getDefiningOp<loom::GetWeightOp>() && hasSharding(value);
  });
}

/// Whether the slices are the only readers of the product and take at least two parts of it that do
/// not overlap, and neither the whole nor a weight of it has a given sharding.
static bool isPacked(const Pack &pack) {
  llvm::DenseSet<Operation *> readers;
  for (const auto &[slice, stretch] : pack.slices)
    readers.insert(slice);
  for (Value value : pack.between)
    readers.insert(value.getDefiningOp());
  for (Value value : pack.between)
    if (hasSharding(value) || readsSharded(value.getDefiningOp()) ||
        !llvm::all_of(value.getUsers(), [&](Operation *user) { return readers.contains(user); }))
      return false;
  if (hasSharding(pack.weight.value))
    return false;
  auto parts = llvm::map_to_vector(pack.slices, [](const auto &slice) {
    return std::pair(slice.second.start, slice.second.stop);
  });
  llvm::sort(parts);
  parts.erase(llvm::unique(parts), parts.end());
  for (size_t i = 1; i < parts.size(); ++i)
    if (parts[i].first < parts[i - 1].second)
      return false;
  return parts.size() > 1;
}

namespace {
struct UnpackWeightsPass : public gridloom::impl::UnpackWeightsBase<UnpackWeightsPass> {
  using UnpackWeightsBase::UnpackWeightsBase;

  void runOnOperation() override {
    llvm::SetVector<Attribute> unpacked;
    for (auto func : getOperation().getOps<func::FuncOp>())
      unpack(func, unpacked);
    if (!unpacked.empty())
      getOperation()->setAttr(kUnpacked, ArrayAttr::get(&getContext(), unpacked.getArrayRef()));
  }

private:
  void unpack(func::FuncOp func, llvm::SetVector<Attribute> &unpacked);
  bool isAskedFor(StringRef node) const {
    return only.empty() || llvm::any_of(only, [&](const std::string &pattern) {
             return pattern == node || matchesPattern(pattern, node);
           });
  }
};
} // namespace

void UnpackWeightsPass::unpack(func::FuncOp func, llvm::SetVector<Attribute> &unpacked) {
  llvm::MapVector<Operation *, Pack> packs;
  for (auto slice : func.getOps<loom::SliceOp>()) {
    llvm::SetVector<Value> between;
    Stretch weight;
    loom::DotGeneralOp dot = trace(slice, between, weight);
    if (!dot)
      continue;
    Pack &pack = packs[dot];
    pack.weight = weight;
    pack.slices.push_back({slice, weight});
    pack.between.insert_range(between);
  }
  for (auto &[dot, pack] : packs) {
    std::string node = getFirstNode(dot);
    if (!isPacked(pack) || !isAskedFor(node))
      continue;
    unpacked.insert(StringAttr::get(&getContext(), node));
    PartBuilder builder;
    for (auto &[slice, weight] : pack.slices) {
      Value part = builder.build(*matchSlice(slice));
      slice.getOutput().replaceAllUsesWith(part);
      slice.erase();
    }
  }
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(func.front())))
    if (isOpTriviallyDead(&op))
      op.erase();
}
