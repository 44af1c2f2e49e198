//===- ColumnSeeds.cpp - weights split by column, then by row ---------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/shard/ColumnSeeds.h"

#include "dialects/loom/Derivatives.h"
#include "dialects/loom/Training.h"
#include "passes/shard/MicroBatches.h"
#include "passes/shard/Reasons.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

namespace {
/// A weight whose dimension `column` becomes dimension `made` of the operation's result alone.
struct Columns {
  Value weight;
  int64_t column, made;
  Location loc; ///< of the operation
};
} // namespace

/// Whether a value is a weight, or gathered per token from a table of experts' weights.
static bool isWeight(Value value) {
  if (auto gather = value.getDefiningOp<loom::GatherOp>())
    value = cast<RankedTensorType>(gather.getInput().getType()).getRank() > 2 ? gather.getInput()
                                                                              : Value();
  return value && loom::isWeight(value);
}

/// The columns of a weight that is multiplied, with the experts first if it has any; or the output
/// channels of a convolution. Empty for other operations.
static SmallVector<Columns> findColumns(Operation *op) {
  if (auto dot = dyn_cast<loom::DotGeneralOp>(op)) {
    bool isRight = isWeight(dot.getRhs());
    if (!isRight && !isWeight(dot.getLhs()))
      return {};
    SmallVector<int64_t> free = isRight ? dot.getRhsFreeDims() : dot.getLhsFreeDims();
    int64_t rank = cast<RankedTensorType>(dot.getType()).getRank();
    int64_t first = isRight ? rank - static_cast<int64_t>(free.size()) : dot.getLhsBatch().size();
    SmallVector<Columns> columns;
    for (auto [i, dim] : llvm::enumerate(free))
      columns.push_back({isRight ? dot.getRhs() : dot.getLhs(), dim,
                         first + static_cast<int64_t>(i), op->getLoc()});
    return columns;
  }
  if (auto convolution = dyn_cast<loom::ConvolutionOp>(op))
    if (convolution.getGroups() == 1 && loom::isWeight(convolution.getWeight()))
      return {{convolution.getWeight(), 0, 1, op->getLoc()}};
  return {};
}

namespace {
/// The granules at which columns have to be cut so that the reshapes that follow, such as of
/// columns into heads, can pass the cuts on.
class Granules {
public:
  explicit Granules(const Propagation &state) : state(state) {}
  /// The granule of a dimension of an operation's result; 1 if no reshape follows.
  int64_t find(Value value, int64_t dim) {
    if (known.empty())
      // Backwards, so that readers are known first.
      for (Operation *op : llvm::reverse(state.getOperations()))
        for (Value result : op->getResults()) {
          int64_t rank = cast<RankedTensorType>(result.getType()).getRank();
          SmallVector<int64_t, 4> granules = llvm::map_to_vector<4>(
              llvm::seq(rank), [&](int64_t each) { return look(result, each); });
          known[result] = std::move(granules);
        }
    return known.find(value)->second[dim];
  }

private:
  int64_t look(Value value, int64_t dim) const;

  const Propagation &state;
  llvm::DenseMap<Value, SmallVector<int64_t, 4>> known;
};
} // namespace

/// The granule that the readers ask for, else the one that the readers of their results ask for.
int64_t Granules::look(Value value, int64_t dim) const {
  SmallVector<int64_t> later;
  for (OpOperand &use : value.getUses()) {
    Operation *op = use.getOwner();
    if (!isa<ShardingRuleInterface>(op) || op->getNumResults() != 1)
      continue;
    const ShardingRule &rule = state.getRule(op);
    ArrayRef<int64_t> factors = rule.tensors[use.getOperandNumber()][dim];
    auto major = llvm::find_if(factors, [&](int64_t factor) { return rule.sizes[factor] > 1; });
    if (major == factors.end())
      continue;
    int64_t minor = 1;
    for (int64_t factor : llvm::make_range(major + 1, factors.end()))
      minor *= rule.sizes[factor];
    if (minor > 1)
      return minor;
    for (auto [number, made] : llvm::enumerate(rule.tensors.back()))
      if (made == factors)
        later.push_back(known.find(op->getResult(0))->second[number]);
  }
  auto last = llvm::find_if(llvm::reverse(later), [](int64_t granule) { return granule > 1; });
  return last == later.rend() ? 1 : *last;
}

/// True for an input with rows added or replaced, such as the next key-value cache.
static bool extendsInput(Value value) {
  auto isInput = [](Value part) {
    auto type = cast<RankedTensorType>(part.getType());
    return isa<BlockArgument>(part) && type.getRank() > 2 && isa<FloatType>(type.getElementType());
  };
  Operation *op = value.getDefiningOp();
  if (auto join = dyn_cast_or_null<loom::ConcatenateOp>(op))
    return llvm::any_of(join.getInputs(), isInput);
  auto scatter = dyn_cast_or_null<loom::ScatterOp>(op);
  return scatter && isInput(scatter.getInput());
}

/// After so many visits to operations, seeds stop early and may name a later obstacle than the
/// first.
static constexpr int64_t kMostExplained = 1 << 20;

namespace {
/// The contractions that an axis splits, and the reductions that this needs.
struct AxisUse {
  int64_t contractions = 0, reductions = 0;
};

/// Counts the uses of an axis, and recounts only what changed.
class UseCounter {
public:
  UseCounter(const Propagation &state, StringAttr axis)
      : state(state), axis(axis), uses(state.getOperations().size()) {
    for (size_t i = 0; i < uses.size(); ++i)
      recount(i);
  }
  void recount(size_t index) {
    AxisUse now = count(state.getOperations()[index]);
    total.contractions += now.contractions - uses[index].contractions;
    total.reductions += now.reductions - uses[index].reductions;
    uses[index] = now;
  }
  AxisUse getTotal() const { return total; }

private:
  AxisUse count(Operation *op) const {
    auto isSplit = [&](Value value) { return state.lookup(value).sharding.usesAxis(axis); };
    if (llvm::none_of(op->getOperands(), isSplit) && llvm::none_of(op->getResults(), isSplit))
      return {};
    bool contracts = op->getNumOperands() > 1 &&
                     llvm::is_contained(state.getRule(op).kinds, FactorKind::Reduction);
    // Reductions to a scalar, such as norms of gradients, cost next to nothing.
    bool isNumber = llvm::all_of(op->getResultTypes(), [](Type type) {
      return cast<RankedTensorType>(type).getNumElements() == 1;
    });
    return {contracts, !isNumber && !isParallelOver(state, op, axis)};
  }

  const Propagation &state;
  StringAttr axis;
  SmallVector<AxisUse> uses;
  AxisUse total;
};

/// Tries seeds of one axis in one function.
class ColumnSeeds {
public:
  ColumnSeeds(Propagation &state, func::FuncOp func, StringAttr axis, bool explains)
      : state(state), axis(axis), uses(state, axis), explains(explains) {
    // States, and caches that the caller feeds back, stay split as they are; a gradient may be
    // split as its weight is.
    for (OpOperand &use : func.front().getTerminator()->getOpOperands())
      if (unsigned number = use.getOperandNumber(); !func.getResultAttr(number, loom::kState) &&
                                                    !func.getResultAttr(number, loom::kGradient) &&
                                                    !extendsInput(use.get()))
        results.push_back(use.get());
    count();
    before = {reshards, countReturned(), uses.getTotal()};
  }

  /// Tries to split these columns at multiples of the granule; returns whether the split stays.
  bool attempt(const Columns &columns, int64_t granule) {
    former.clear();
    bool stays = state.attempt([&] { return tryOne(columns, granule); });
    // Also recounts what was undone, so that it is not taken for the next seed's change.
    count();
    return stays;
  }

private:
  /// The criteria by which seeds are compared.
  struct Score {
    int64_t reshards, returned;
    AxisUse uses;
  };

  bool tryOne(const Columns &columns, int64_t granule);
  bool isHopeless();
  /// Recounts what has changed.
  void count() {
    reshards = state.countReshards([&](size_t index, int64_t was) {
      uses.recount(index);
      former.try_emplace(index, was);
    });
  }
  /// The number of the model's results that are split over the axis.
  int64_t countReturned() const {
    return llvm::count_if(
        results, [&](Value result) { return state.lookup(result).sharding.usesAxis(axis); });
  }
  void noteGathering(Value weight) const;
  /// Notes on a weight why its columns are not split, for explanations and remarks.
  void noteObstacle(Value weight, const Twine &reason) const;

  Propagation &state;
  StringAttr axis;
  UseCounter uses;
  bool explains;
  int64_t visited = 0;        ///< operations, by all seeds
  SmallVector<Value> results; ///< of the model, where seeds must not add any split
  int64_t reshards = 0;
  Score before; ///< with all seeds kept so far
  /// The former reshard counts of the operations recounted for this seed.
  llvm::DenseMap<size_t, int64_t> former;
};
} // namespace

/// Whether this seed cannot stay, however far it spreads: propagation only adds splits.
bool ColumnSeeds::isHopeless() {
  count();
  return state.getLeastReshards() > before.reshards || countReturned() > before.returned;
}

/// The seed stays only if no value has to be gathered for it, that is, if a later contraction takes
/// the split dimension by row.
bool ColumnSeeds::tryOne(const Columns &columns, int64_t granule) {
  if (!state.addAxis(columns.weight, columns.column, axis,
                     "strategy tp: column of " + loom::getNodeName(columns.loc), granule))
    return false;
  bool isThorough = explains && visited < kMostExplained; // propagates fully
  visited += state.run([&] { return !isThorough && isHopeless(); });
  count();
  if (reshards > before.reshards) {
    noteGathering(columns.weight);
    return false;
  }
  int64_t returned = countReturned();
  if (returned > before.returned) {
    noteObstacle(columns.weight, "a result of the model would be split");
    return false;
  }
  // A pair of contractions is worth a reduction. A split that makes every contraction reduce, as of
  // the features of a residual stream, is not.
  AxisUse use = uses.getTotal();
  if (2 * (use.reductions - before.uses.reductions) >
      use.contractions - before.uses.contractions + 1) {
    noteObstacle(columns.weight, "nearly every product after it would need a reduction");
    return false;
  }
  before = {reshards, returned, use};
  return true;
}

/// Names the first operation for which values would have to be gathered that were not before.
void ColumnSeeds::noteGathering(Value weight) const {
  std::optional<size_t> first;
  for (auto [index, was] : former)
    if (state.getReshards(index) > was && (!first || index < *first))
      first = index;
  if (first)
    noteObstacle(weight, "its product would have to be gathered for '" +
                             loom::getNodeName(state.getOperations()[*first]->getLoc()) + "'");
}

void ColumnSeeds::noteObstacle(Value weight, const Twine &reason) const {
  if (!explains)
    return;
  MLIRContext *context = weight.getContext();
  auto text =
      StringAttr::get(context, "split by columns over '" + axis.getValue() + "', " + reason);
  setObstacle(weight, OriginAttr::get(context, StringAttr(), {}, text, axis));
}

void gridloom::seedColumns(Propagation &state, func::FuncOp func, StringAttr axis, bool explains) {
  ColumnSeeds seeds(state, func, axis, explains);
  Granules granules(state);
  func.walk([&](ShardingRuleInterface op) {
    SmallVector<Columns> candidates = findColumns(op);
    if (candidates.empty() || llvm::any_of(op->getOperands().take_front(2), [&](Value operand) {
          return state.lookup(operand).sharding.usesAxis(axis);
        }))
      return;
    for (const Columns &columns : candidates) {
      if (seeds.attempt(columns, 1))
        return;
      // Columns that do not divide evenly are cut between heads.
      int64_t granule = granules.find(op->getResult(0), columns.made);
      if (granule > 1 && seeds.attempt(columns, granule))
        return;
    }
  });
}
