//===- ApplyStrategy.cpp - seeds of data and tensor parallelism -------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/Control.h"
#include "dialects/loom/Derivatives.h"
#include "passes/shard/Bodies.h"
#include "passes/shard/MicroBatches.h"
#include "passes/shard/Shard.h"

#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

namespace gridloom {
#define GEN_PASS_DEF_APPLYSTRATEGY
#include "passes/shard/Passes.h.inc"
} // namespace gridloom

/// Embedding tables below this size are not worth a reduction.
static constexpr int64_t kMinTableBytes = 1 << 20;

namespace {
struct ApplyStrategyPass : public gridloom::impl::ApplyStrategyBase<ApplyStrategyPass> {
  using ApplyStrategyBase::ApplyStrategyBase;

  void runOnOperation() override;

private:
  SmallVector<StringAttr> toAttrs(ArrayRef<std::string> names) {
    return llvm::map_to_vector(
        names, [&](const std::string &name) { return StringAttr::get(&getContext(), name); });
  }
  LogicalResult checkAxes(const Mesh &mesh);
  void seedBatch(Propagation &state, func::FuncOp func, StringAttr axis, StringRef origin);
  void seedColumns(Propagation &state, func::FuncOp func, StringAttr axis);
  void seedTables(Propagation &state, func::FuncOp func, StringAttr axis);
  void seedSequence(Propagation &state, func::FuncOp func, StringAttr axis);
  int64_t chooseMicrobatches(const Mesh &mesh, int64_t most);
};
} // namespace

LogicalResult ApplyStrategyPass::checkAxes(const Mesh &mesh) {
  llvm::StringSet<> seen;
  for (ArrayRef<std::string> list : {ArrayRef<std::string>(dp), ArrayRef<std::string>(tp)})
    for (const std::string &axis : list) {
      if (llvm::none_of(mesh.getAxes(),
                        [&](const Mesh::Axis &known) { return known.name == axis; }))
        return getOperation().emitError("the strategy uses axis '")
               << axis << "', which is not in the mesh";
      if (!seen.insert(axis).second)
        return getOperation().emitError("the strategy uses axis '") << axis << "' twice";
    }
  return success();
}

/// The dimension called batch, or else the leading one.
static int64_t getBatchDim(func::FuncOp func, BlockArgument argument) {
  auto names = func.getArgAttrOfType<ArrayAttr>(argument.getArgNumber(), loom::kDimNames);
  if (names)
    for (auto [dim, name] : llvm::enumerate(names.getAsRange<StringAttr>()))
      if (name.getValue().starts_with_insensitive("batch"))
        return static_cast<int64_t>(dim);
  return 0;
}

void ApplyStrategyPass::seedBatch(Propagation &state, func::FuncOp func, StringAttr axis,
                                  StringRef origin) {
  for (BlockArgument argument : func.getArguments()) {
    auto type = cast<RankedTensorType>(argument.getType());
    if (type.getRank() == 0)
      continue;
    int64_t dim = getBatchDim(func, argument);
    const Sharding &sharding = state.lookup(argument).sharding;
    if (!state.addAxis(argument, dim, axis, origin) && !isMicroAxis(axis) &&
        sharding.dims[dim].open && !sharding.usesAxis(axis) && state.getMesh().getSize(axis) > 1)
      mlir::emitRemark(func.getLoc())
          << "input " << func.getArgAttr(argument.getArgNumber(), loom::kName)
          << " is not split over " << axis << ": its "
          << (dim == 0 ? "leading dimension of " : "batch of ") << type.getDimSize(dim)
          << " is smaller than the axis, which has " << state.getMesh().getSize(axis) << " devices";
  }
  state.run();
}

namespace {
/// A weight whose dimension `column` becomes dimension `made` of the operation's result alone.
struct Columns {
  Value weight;
  int64_t column, made;
};
} // namespace

/// Whether a value is a weight, or each token's of a table of them: an expert's.
static bool isWeight(Value value) {
  if (auto gather = value.getDefiningOp<loom::GatherOp>())
    value = cast<RankedTensorType>(gather.getInput().getType()).getRank() > 2 ? gather.getInput()
                                                                              : Value();
  return value && value.getDefiningOp<loom::GetWeightOp>();
}

/// The columns of a weight that is multiplied, of experts the experts first; or the output channels
/// of a convolution. Nothing of other operations.
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
      columns.push_back(
          {isRight ? dot.getRhs() : dot.getLhs(), dim, first + static_cast<int64_t>(i)});
    return columns;
  }
  if (auto convolution = dyn_cast<loom::ConvolutionOp>(op))
    if (convolution.getGroups() == 1 && convolution.getWeight().getDefiningOp<loom::GetWeightOp>())
      return {{convolution.getWeight(), 0, 1}};
  return {};
}

/// The number of elements a cut of `value`'s dimension has to be a multiple of so that the reshapes
/// that follow it, as of columns into heads, can pass it on; 1 when there is none.
static int64_t findGranule(const Propagation &state, Value value, int64_t dim) {
  SmallVector<std::pair<Value, int64_t>> pending = {{value, dim}};
  llvm::DenseSet<Value> seen = {value};
  while (!pending.empty()) {
    auto [current, position] = pending.pop_back_val();
    for (OpOperand &use : current.getUses()) {
      Operation *op = use.getOwner();
      if (!isa<ShardingRuleInterface>(op) || op->getNumResults() != 1)
        continue;
      const ShardingRule &rule = state.getRule(op);
      ArrayRef<int64_t> factors = rule.tensors[use.getOperandNumber()][position];
      auto major = llvm::find_if(factors, [&](int64_t factor) { return rule.sizes[factor] > 1; });
      if (major == factors.end())
        continue;
      int64_t minor = 1;
      for (int64_t factor : llvm::make_range(major + 1, factors.end()))
        minor *= rule.sizes[factor];
      if (minor > 1)
        return minor;
      for (auto [number, made] : llvm::enumerate(rule.tensors.back()))
        if (made == factors && seen.insert(op->getResult(0)).second)
          pending.push_back({op->getResult(0), number});
    }
  }
  return 1;
}

/// True for what is an input with rows added or replaced, as the next key-value cache is of the
/// last.
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

namespace {
/// The contractions that an axis splits, and the reductions that this needs.
struct AxisUse {
  int64_t contractions = 0, reductions = 0;
};

/// Counts the uses of an axis, and again only of what changed.
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
    return {contracts, !isParallelOver(state, op, axis)};
  }

  const Propagation &state;
  StringAttr axis;
  SmallVector<AxisUse> uses;
  AxisUse total;
};
} // namespace

/// Notes on a weight why its columns are not split, for those who explain and remark.
static void noteObstacle(Value weight, StringAttr axis, const Twine &reason) {
  auto get = weight.getDefiningOp<loom::GetWeightOp>();
  if (!get)
    return;
  MLIRContext *context = weight.getContext();
  auto text =
      StringAttr::get(context, "split by columns over '" + axis.getValue() + "', " + reason);
  get->setAttr(kObstacle, OriginAttr::get(context, StringAttr(), {}, text, axis));
}

/// The first operation for which values would have to be gathered that were not `before`.
static Operation *findGathering(const Propagation &state, ArrayRef<int64_t> before) {
  for (auto [op, was, now] : llvm::zip_equal(state.getOperations(), before, state.getReshards()))
    if (now > was)
      return op;
  return nullptr;
}

void ApplyStrategyPass::seedColumns(Propagation &state, func::FuncOp func, StringAttr axis) {
  int64_t reshards = state.countReshards();
  SmallVector<int64_t> reshardsOf(state.getReshards());
  // Results of the model that are split over the axis; seeds must not add any. A state stays where
  // it is, and so does a cache that goes round outside; a gradient may lie as its weight does.
  auto countReturned = [&] {
    return llvm::count_if(func.front().getTerminator()->getOpOperands(), [&](OpOperand &use) {
      unsigned number = use.getOperandNumber();
      return !func.getResultAttr(number, loom::kState) &&
             !func.getResultAttr(number, loom::kGradient) && !extendsInput(use.get()) &&
             state.lookup(use.get()).sharding.usesAxis(axis);
    });
  };
  int64_t returned = countReturned();
  UseCounter uses(state, axis);
  AxisUse before = uses.getTotal();
  func.walk([&](ShardingRuleInterface op) {
    SmallVector<Columns> candidates = findColumns(op);
    if (candidates.empty() || llvm::any_of(op->getOperands().take_front(2), [&](Value operand) {
          return state.lookup(operand).sharding.usesAxis(axis);
        }))
      return;
    // Try it: the seed stays only if no value has to be gathered for it, that is, if a later
    // contraction takes the split dimension by row.
    auto tryGranule = [&](const Columns &columns, int64_t granule) {
      if (!state.addAxis(columns.weight, columns.column, axis,
                         "strategy tp: column of " + loom::getNodeName(op->getLoc()), granule))
        return false;
      state.run();
      int64_t after = state.countReshards([&](size_t index) { uses.recount(index); });
      if (after > reshards) {
        if (Operation *op = findGathering(state, reshardsOf))
          noteObstacle(columns.weight, axis,
                       "its product would have to be gathered for '" +
                           loom::getNodeName(op->getLoc()) + "'");
        return false;
      }
      if (countReturned() > returned) {
        noteObstacle(columns.weight, axis, "a result of the model would be split");
        return false;
      }
      // A pair of contractions for a reduction is worth it. What every contraction has to reduce
      // for, as the features of a residual stream, is not.
      AxisUse use = uses.getTotal();
      if (2 * (use.reductions - before.reductions) > use.contractions - before.contractions + 1) {
        noteObstacle(columns.weight, axis, "nearly every product after it would need a reduction");
        return false;
      }
      before = use;
      reshards = after;
      reshardsOf.assign(state.getReshards().begin(), state.getReshards().end());
      return true;
    };
    for (const Columns &columns : candidates) {
      if (state.attempt([&] { return tryGranule(columns, 1); }))
        return;
      // Columns that do not come out even are cut between heads.
      int64_t granule = findGranule(state, op->getResult(0), columns.made);
      if (granule > 1 && state.attempt([&] { return tryGranule(columns, granule); }))
        return;
    }
  });
}

void ApplyStrategyPass::seedTables(Propagation &state, func::FuncOp func, StringAttr axis) {
  func.walk([&](loom::GatherOp gather) {
    auto table = gather.getInput().getDefiningOp<loom::GetWeightOp>();
    if (!table || gather.getDim() != 0 || loom::getByteSize(table.getType()) < kMinTableBytes)
      return;
    if (!state.addAxis(table, 0, axis, "strategy tp: rows of a table"))
      mlir::emitRemark(gather.getLoc())
          << "table '" << table.getName() << "' is not split over " << axis << ": its "
          << cast<RankedTensorType>(table.getType()).getDimSize(0) << " rows are less than "
          << state.getMesh().getSize(axis);
  });
  state.run();
}

/// Splits dimension 1 of what norms make (Korthikanti et al. 2022, section 4.2.2).
void ApplyStrategyPass::seedSequence(Propagation &state, func::FuncOp func, StringAttr axis) {
  func.walk([&](Operation *op) {
    if (op->hasTrait<loom::NormalizesRows>() &&
        cast<RankedTensorType>(op->getResult(0).getType()).getRank() == 3)
      state.addAxis(op->getResult(0), 1, axis, "strategy tp: sequence between contractions");
  });
  state.run();
}

int64_t ApplyStrategyPass::chooseMicrobatches(const Mesh &mesh, int64_t most) {
  // The largest divisor of every specialisation's local batch that is at most `most`.
  for (auto func : getOperation().getOps<func::FuncOp>())
    for (BlockArgument argument : func.getArguments())
      if (getBatchDim(func, argument) != 0)
        return 1; // micro-batches are cut along the leading dimension
  // The strategy does not change the user's shardings of inputs.
  auto countParts = [&](BlockArgument argument) {
    ShardingAttr sharding = getSharding(argument);
    if (!sharding || sharding.getDims()[0].getOpen())
      return mesh.getSize(toAttrs(dp));
    DimShardingAttr dim = sharding.getDims()[0];
    return mesh.getSize(dim.getAxes()) * dim.getGranule();
  };
  int64_t best = 1;
  for (int64_t count = 1; count <= most; ++count) {
    bool fits = true;
    for (auto func : getOperation().getOps<func::FuncOp>())
      for (BlockArgument argument : func.getArguments()) {
        auto tensor = cast<RankedTensorType>(argument.getType());
        fits = fits && tensor.getRank() > 0 &&
               tensor.getDimSize(0) % (countParts(argument) * count) == 0;
      }
    best = fits ? count : best;
  }
  return best;
}

/// Writes onto a function where it is cut in time, and nothing else that has been spread: what has
/// not been given is for a search to decide.
static void commitCuts(const Propagation &state) {
  state.forEachValue([&](Value value) {
    Propagation::Entry entry = state.lookup(value);
    ShardingAttr given = getSharding(value);
    Sharding kept = given ? Sharding(given)
                          : Sharding::replicated(static_cast<int64_t>(entry.sharding.dims.size()),
                                                 /*open=*/true);
    for (auto [dim, spread] : llvm::zip_equal(kept.dims, entry.sharding.dims)) {
      if (spread.axes.empty() || !isMicroAxis(spread.axes.back()) ||
          llvm::is_contained(dim.axes, spread.axes.back()))
        continue;
      dim.granule = spread.granule;
      dim.axes.push_back(spread.axes.back());
    }
    llvm::erase_if(entry.origins, [&](const auto &origin) { return !kept.usesAxis(origin.first); });
    setSharding(value, kept.getAttr(state.getMesh()), entry.getOrigin(value.getContext()));
  });
}

/// Cuts into micro-batches what a user asks for of results.
static void cutPinnedResults(func::FuncOp func, const Mesh &mesh, StringAttr micro) {
  for (unsigned i = 0; i < func.getNumResults(); ++i)
    if (auto pinned = func.getResultAttrOfType<ShardingAttr>(i, kSharding))
      func.setResultAttr(i, kSharding, cutInTime(pinned, micro).getAttr(mesh));
}

void ApplyStrategyPass::runOnOperation() {
  MeshOp meshOp = getMesh(getOperation());
  if (!meshOp)
    return;
  if (failed(checkAxes(Mesh(meshOp))))
    return signalPassFailure();
  int64_t count = chooseMicrobatches(Mesh(meshOp), microbatches);
  auto micro = StringAttr::get(&getContext(), MeshOp::kMicroAxis);
  while (true) {
    setMicrobatches(meshOp, count);
    Mesh mesh(meshOp);
    std::vector<Propagation> states;
    std::optional<MicrobatchObstacle> obstacle;
    for (auto func : getOperation().getOps<func::FuncOp>()) {
      if (loom::isBody(func))
        continue;
      Propagation state(func, mesh);
      state.run();
      for (StringAttr axis : toAttrs(dp))
        seedBatch(state, func, axis, "strategy dp: batch");
      if (count > 1)
        seedBatch(state, func, micro, "micro-batches");
      for (StringAttr axis : toAttrs(tp)) {
        seedColumns(state, func, axis);
        if (vocab)
          seedTables(state, func, axis);
        if (sequence)
          seedSequence(state, func, axis);
      }
      if (count > 1 && !obstacle)
        obstacle = findMicrobatchObstacle(state, func, micro);
      std::vector<BodyState> bodies = growThroughBodies(state, func);
      states.push_back(std::move(state));
      for (BodyState &body : bodies) {
        for (StringAttr axis : toAttrs(tp))
          seedColumns(body.state, body.body, axis);
        states.push_back(std::move(body.state));
      }
    }
    if (!obstacle) {
      for (const Propagation &state : states)
        onlyGiven ? commitCuts(state) : state.commit(/*close=*/false);
      if (count > 1)
        for (auto func : getOperation().getOps<func::FuncOp>())
          cutPinnedResults(func, mesh, micro);
      return;
    }
    count = obstacle->isSize ? chooseMicrobatches(Mesh(meshOp), count - 1) : 1;
    if (count == 1)
      mlir::emitRemark(obstacle->loc)
          << "the batch is not cut into micro-batches: " << obstacle->reason;
  }
}
