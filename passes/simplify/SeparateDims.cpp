//===- SeparateDims.cpp - loom-separate-dims ------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Follows reshapes that split a dimension to the values that the dimension comes from. If all of
// them can be computed with two dimensions instead, up to reshapes that merged these, they are, and
// neither reshape is needed. A merged dimension could be split over devices only along its major
// part: batch times heads never by heads.
//
//===----------------------------------------------------------------------===//
#include "passes/simplify/Folding.h"
#include "passes/simplify/Simplify.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/TypeSwitch.h"

#include <map>

using namespace mlir;

namespace gridloom {
#define GEN_PASS_DEF_SEPARATEDIMS
#include "passes/simplify/Passes.h.inc"
} // namespace gridloom

using namespace gridloom;

namespace {

/// Dimension `dim` of a value as [size / inner, inner].
struct Cut {
  Value value;
  int64_t dim, inner;

  bool operator<(const Cut &other) const {
    return std::tuple(value.getAsOpaquePointer(), dim, inner) <
           std::tuple(other.value.getAsOpaquePointer(), other.dim, other.inner);
  }
  RankedTensorType getType() const {
    auto type = cast<RankedTensorType>(value.getType());
    SmallVector<int64_t> shape(type.getShape());
    shape[dim] /= inner;
    shape.insert(shape.begin() + dim + 1, inner);
    return type.clone(shape);
  }
};

/// The gain of a cut: impossible, free, or one that removes a merging reshape.
enum class Gain { None, Free, Real };

/// The operands, by number, that must be cut for an operation's result to be cut.
struct Needs {
  Gain gain = Gain::None; ///< without the operands
  SmallVector<std::pair<unsigned, std::pair<int64_t, int64_t>>, 2> operands; ///< (dim, inner)

  static Needs nothing(Gain gain) {
    Needs needs;
    needs.gain = gain;
    return needs;
  }
  void add(unsigned operand, int64_t dim, int64_t inner) {
    gain = std::max(gain, Gain::Free);
    operands.push_back({operand, {dim, inner}});
  }
};

RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }

/// The index of a dimension after another one was cut in two.
int64_t shift(int64_t dim, int64_t cut) { return dim + (dim > cut ? 1 : 0); }

/// The dimensions after `cut` became two, one after the other.
SmallVector<int64_t> widen(ArrayRef<int64_t> dims, int64_t cut) {
  SmallVector<int64_t> result;
  for (int64_t dim : dims) {
    result.push_back(shift(dim, cut));
    if (dim == cut)
      result.push_back(cut + 1);
  }
  return result;
}

SmallVector<int64_t> shiftAll(ArrayRef<int64_t> dims, int64_t cut) {
  return llvm::map_to_vector(dims, [&](int64_t dim) { return shift(dim, cut); });
}

//===----------------------------------------------------------------------===//
// Requirements of a cut
//===----------------------------------------------------------------------===//

/// The reshape's input dimension that contains `factor`, and the elements of the factors minor to
/// it there.
std::pair<int64_t, int64_t> findFactor(const dist::ShardingRule &rule, int64_t factor) {
  for (auto [dim, factors] : llvm::enumerate(rule.tensors[0])) {
    const auto *place = llvm::find(factors, factor);
    if (place == factors.end())
      continue;
    int64_t minor = 1;
    for (int64_t other : llvm::make_range(place + 1, factors.end()))
      minor *= rule.sizes[other];
    return {static_cast<int64_t>(dim), minor};
  }
  return {-1, 1};
}

Needs getNeeds(loom::ReshapeOp op, int64_t dim, int64_t inner) {
  dist::ShardingRule rule = op.getShardingRule();
  Needs needs;
  int64_t under = 1; // elements of the minor factors passed so far
  for (int64_t factor : llvm::reverse(rule.tensors[1][dim])) {
    int64_t size = rule.sizes[factor];
    if (size == 1)
      continue;
    if (rule.kinds[factor] == dist::FactorKind::NeedReplication)
      return needs;
    // Between two factors of one dimension there are always two dimensions on the other side.
    if (under == inner)
      return Needs::nothing(Gain::Real);
    if (inner < under * size) {
      auto [source, minor] = findFactor(rule, factor);
      if (inner % under == 0 && size % (inner / under) == 0 && source >= 0)
        needs.add(0, source, inner / under * minor);
      return needs;
    }
    under *= size;
  }
  return needs;
}

Needs getNeeds(loom::DotGeneralOp op, int64_t dim, int64_t inner) {
  Needs needs;
  int64_t batch = op.getLhsBatch().size();
  SmallVector<int64_t> lhs = op.getLhsFreeDims(), rhs = op.getRhsFreeDims();
  int64_t rows = batch + static_cast<int64_t>(lhs.size());
  if (dim < batch) {
    needs.add(0, op.getLhsBatch()[dim], inner);
    needs.add(1, op.getRhsBatch()[dim], inner);
  } else if (dim < rows) {
    needs.add(0, lhs[dim - batch], inner);
  } else {
    needs.add(1, rhs[dim - rows], inner);
  }
  return needs;
}

Needs getNeeds(loom::BroadcastOp op, int64_t dim, int64_t inner) {
  Needs needs = Needs::nothing(Gain::Free);
  for (auto [i, to] : llvm::enumerate(op.getDims()))
    if (to == dim && typeOf(op.getInput()).getDimSize(i) != 1)
      needs.add(0, i, inner);
  return needs;
}

Needs getNeeds(loom::GatherOp op, int64_t dim, int64_t inner) {
  Needs needs;
  int64_t at = op.getDim(), rank = typeOf(op.getIndices()).getRank();
  if (dim < at)
    needs.add(0, dim, inner);
  else if (dim < at + rank)
    needs.add(1, dim - at, inner);
  else
    needs.add(0, dim - rank + 1, inner);
  return needs;
}

Needs getNeeds(loom::SliceOp op, int64_t dim, int64_t inner) {
  Needs needs;
  if (typeOf(op.getInput()).getDimSize(dim) == op.getType().getDimSize(dim) &&
      op.getStrides()[dim] == 1)
    needs.add(0, dim, inner);
  return needs;
}

Needs getNeeds(loom::ReduceOp op, int64_t dim, int64_t inner) {
  Needs needs;
  int64_t next = 0;
  for (int64_t i = 0, rank = typeOf(op.getInput()).getRank(); i < rank; ++i)
    if (!llvm::is_contained(op.getDims(), i) && next++ == dim)
      needs.add(0, i, inner);
  return needs;
}

/// Requires a cut of all operands along one dimension.
Needs needAll(Operation *op, int64_t dim, int64_t inner) {
  Needs needs;
  for (unsigned i = 0; i < op->getNumOperands(); ++i)
    needs.add(i, dim, inner);
  return needs;
}

bool isElementwise(Operation *op) {
  auto isAlike = [&](Type type) {
    return cast<RankedTensorType>(type).getShape() == typeOf(op->getResult(0)).getShape();
  };
  return isa<loom::KernelBodyInterface>(op) && op->getNumResults() == 1 &&
         llvm::all_of(op->getOperandTypes(), isAlike);
}

Needs getNeeds(Operation *op, int64_t dim, int64_t inner) {
  if (isa<loom::ConstantOp, loom::GetWeightOp, loom::IotaOp>(op))
    return Needs::nothing(Gain::Free);
  if (isElementwise(op))
    return needAll(op, dim, inner);
  return llvm::TypeSwitch<Operation *, Needs>(op)
      .Case<loom::ReshapeOp, loom::DotGeneralOp, loom::BroadcastOp, loom::GatherOp, loom::SliceOp,
            loom::ReduceOp>([&](auto each) { return getNeeds(each, dim, inner); })
      .Case([&](loom::TransposeOp each) {
        Needs needs;
        needs.add(0, each.getPermutation()[dim], inner);
        return needs;
      })
      .Case([&](loom::ConcatenateOp each) {
        return dim == static_cast<int64_t>(each.getDim()) ? Needs() : needAll(each, dim, inner);
      })
      .Case([&](loom::SoftmaxOp each) {
        return dim == static_cast<int64_t>(each.getDim()) ? Needs() : needAll(each, dim, inner);
      })
      .Case<loom::LayerNormOp, loom::RmsNormOp>([&](auto each) {
        Needs needs;
        if (dim + 1 != each.getType().getRank())
          needs.add(0, dim, inner);
        return needs;
      })
      .Default(Needs());
}

//===----------------------------------------------------------------------===//
// Cutting
//===----------------------------------------------------------------------===//

class Separator {
public:
  explicit Separator(func::FuncOp function) : function(function) {}

  /// Returns whether anything changed.
  bool run();

private:
  Gain probe(const Cut &cut, int depth = 0);
  Value take(const Cut &cut);
  Value build(const Cut &cut, Operation *op, const Needs &needs);
  bool separate(loom::ReshapeOp &reshape);

  func::FuncOp function;
  std::map<Cut, Gain> known;
  std::map<Cut, Value> made;
};

} // namespace

Gain Separator::probe(const Cut &cut, int depth) {
  constexpr int kDeepest = 1000;
  Operation *op = cut.value.getDefiningOp();
  if (!op)
    return Gain::Free;
  if (depth > kDeepest)
    return Gain::None;
  if (auto it = known.find(cut); it != known.end())
    return it->second;
  Needs needs = getNeeds(op, cut.dim, cut.inner);
  Gain gain = needs.gain;
  for (auto [operand, part] : needs.operands) {
    Gain found = probe({op->getOperand(operand), part.first, part.second}, depth + 1);
    gain = found == Gain::None || gain == Gain::None ? Gain::None : std::max(gain, found);
  }
  return known[cut] = gain;
}

/// Rebuilds `op` on operands that are cut as needed.
Value Separator::build(const Cut &cut, Operation *op, const Needs &needs) {
  SmallVector<Value> operands(op->getOperands());
  for (auto [operand, part] : needs.operands)
    operands[operand] = take({op->getOperand(operand), part.first, part.second});
  OpBuilder builder(op);
  Location loc = op->getLoc();
  RankedTensorType type = cut.getType();
  int64_t dim = cut.dim;
  if (auto reshape = dyn_cast<loom::ReshapeOp>(op))
    return loom::ReshapeOp::create(builder, loc, type, operands[0]);
  if (auto transpose = dyn_cast<loom::TransposeOp>(op))
    return loom::TransposeOp::create(
        builder, loc, type, operands[0],
        widen(transpose.getPermutation(), transpose.getPermutation()[dim]));
  if (auto broadcast = dyn_cast<loom::BroadcastOp>(op)) {
    auto dims = needs.operands.empty() ? shiftAll(broadcast.getDims(), dim)
                                       : widen(broadcast.getDims(), dim);
    return loom::BroadcastOp::create(builder, loc, type, operands[0], dims);
  }
  if (auto slice = dyn_cast<loom::SliceOp>(op)) {
    SmallVector<int64_t> starts(slice.getStarts()), limits(type.getShape()),
        strides(slice.getStrides());
    for (size_t i = 0; i < slice.getLimits().size(); ++i)
      if (static_cast<int64_t>(i) != dim)
        limits[shift(i, dim)] = slice.getLimits()[i];
    starts.insert(starts.begin() + dim + 1, 0);
    strides.insert(strides.begin() + dim + 1, 1);
    return loom::SliceOp::create(builder, loc, type, operands[0], starts, limits, strides);
  }
  if (auto dot = dyn_cast<loom::DotGeneralOp>(op)) {
    SmallVector<int64_t> lists[] = {
        SmallVector<int64_t>(dot.getLhsBatch()), SmallVector<int64_t>(dot.getRhsBatch()),
        SmallVector<int64_t>(dot.getLhsContract()), SmallVector<int64_t>(dot.getRhsContract())};
    for (auto [operand, part] : needs.operands) {
      lists[operand] = widen(lists[operand], part.first);
      lists[2 + operand] = shiftAll(lists[2 + operand], part.first);
    }
    return loom::DotGeneralOp::create(builder, loc, type, operands[0], operands[1], lists[0],
                                      lists[1], lists[2], lists[3], dot.getTf32());
  }
  Operation *copy = builder.clone(*op);
  copy->setOperands(operands);
  copy->getResult(0).setType(type);
  if (auto concatenate = dyn_cast<loom::ConcatenateOp>(copy))
    concatenate.setDim(shift(concatenate.getDim(), dim));
  else if (auto softmax = dyn_cast<loom::SoftmaxOp>(copy))
    softmax.setDim(shift(softmax.getDim(), dim));
  else if (auto gather = dyn_cast<loom::GatherOp>(copy); gather && needs.operands[0].first == 0)
    gather.setDim(shift(gather.getDim(), needs.operands[0].second.first));
  else if (auto reduce = dyn_cast<loom::ReduceOp>(copy))
    reduce.setDims(shiftAll(reduce.getDims(), needs.operands[0].second.first));
  return copy->getResult(0);
}

/// The value with its dimension cut; probe must have found that possible.
Value Separator::take(const Cut &cut) {
  if (auto it = made.find(cut); it != made.end())
    return it->second;
  Operation *op = cut.value.getDefiningOp();
  OpBuilder builder(function.getContext());
  builder.setInsertionPointAfterValue(cut.value);
  if (DenseElementsAttr constant = getConstant(cut.value)) {
    DenseElementsAttr value =
        constant.isSplat() ? constant.resizeSplat(cut.getType()) : constant.reshape(cut.getType());
    return made[cut] = loom::ConstantOp::create(builder, op->getLoc(), value);
  }
  if (auto iota = dyn_cast_or_null<loom::IotaOp>(op);
      iota && static_cast<int64_t>(iota.getDim()) != cut.dim)
    return made[cut] = loom::IotaOp::create(builder, op->getLoc(), cut.getType(),
                                            shift(iota.getDim(), cut.dim));
  Needs needs = op ? getNeeds(op, cut.dim, cut.inner) : Needs();
  if (!op || isa<loom::ConstantOp, loom::GetWeightOp, loom::IotaOp>(op)) {
    Location loc = op ? op->getLoc() : (*cut.value.getUsers().begin())->getLoc();
    return made[cut] = loom::ReshapeOp::create(builder, loc, cut.getType(), cut.value);
  }
  auto reshape = dyn_cast<loom::ReshapeOp>(op);
  if (reshape && needs.gain == Gain::Real)
    return made[cut] =
               loom::ReshapeOp::create(builder, op->getLoc(), cut.getType(), reshape.getInput());
  Value result = build(cut, op, needs);
  // Readers of the whole value merge it again, so that it is not computed twice.
  builder.setInsertionPointAfterValue(result);
  Value merged = loom::ReshapeOp::create(builder, op->getLoc(), cut.value.getType(), result);
  Value(cut.value).replaceAllUsesWith(merged);
  return made[cut] = result;
}

/// Cuts the value that `reshape` splits if that makes a merging reshape unnecessary. `reshape`
/// becomes what is left of it.
bool Separator::separate(loom::ReshapeOp &reshape) {
  dist::ShardingRule rule = reshape.getShardingRule();
  for (auto [dim, factors] : llvm::enumerate(rule.tensors[0])) {
    int64_t under = 1;
    for (int64_t factor : llvm::reverse(factors)) {
      if (rule.kinds[factor] == dist::FactorKind::NeedReplication)
        break;
      under *= rule.sizes[factor];
      int64_t size = typeOf(reshape.getInput()).getDimSize(dim);
      if (under == 1 || under == size || size == 0)
        continue;
      Cut cut{reshape.getInput(), static_cast<int64_t>(dim), under};
      // Values with more dimensions are an image's windows, which stay as they are written.
      constexpr int64_t kHighestRank = 5;
      if (cut.getType().getRank() > kHighestRank || probe(cut) != Gain::Real)
        continue;
      Value parts = take(cut);
      OpBuilder builder(reshape);
      auto rest = loom::ReshapeOp::create(builder, reshape.getLoc(), reshape.getType(), parts);
      reshape.replaceAllUsesWith(rest.getOutput());
      reshape.erase();
      reshape = rest;
      known.clear();
      made.clear();
      return true;
    }
  }
  return false;
}

bool Separator::run() {
  SmallVector<loom::ReshapeOp> reshapes(function.getOps<loom::ReshapeOp>());
  bool changed = false;
  for (loom::ReshapeOp reshape : reshapes) {
    if (reshape.use_empty())
      continue;
    while (separate(reshape))
      changed = true;
  }
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(function.front())))
    if (isOpTriviallyDead(&op))
      op.erase();
  return changed;
}

namespace {
struct SeparateDimsPass : gridloom::impl::SeparateDimsBase<SeparateDimsPass> {
  void runOnOperation() override {
    // One rewritten reshape may enable another.
    constexpr int kMaxRounds = 4;
    for (auto function : getOperation().getOps<func::FuncOp>())
      for (int round = 0; round < kMaxRounds && Separator(function).run(); ++round)
        ;
  }
};
} // namespace
