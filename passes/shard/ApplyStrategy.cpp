//===- ApplyStrategy.cpp - seeds of data and tensor parallelism -------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/Control.h"
#include "passes/shard/Bodies.h"
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
static constexpr int64_t kLeastTableBytes = 1 << 20;

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
  int64_t chooseMicrobatches(const Mesh &mesh);
  void addMicroAxis(MeshOp meshOp, int64_t count);
};
} // namespace

LogicalResult ApplyStrategyPass::checkAxes(const Mesh &mesh) {
  llvm::StringSet<> seen;
  for (ArrayRef<std::string> list : {ArrayRef<std::string>(dp), ArrayRef<std::string>(tp)})
    for (const std::string &axis : list) {
      if (llvm::none_of(mesh.getAxes(),
                        [&](const Mesh::Axis &known) { return known.name == axis; }))
        return getOperation().emitError("the strategy uses axis '")
               << axis << "', which the mesh has not";
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
    if (!state.addAxis(argument, dim, axis, origin) &&
        !state.lookup(argument).layout.usesAxis(axis) && state.getMesh().getSize(axis) > 1)
      mlir::emitRemark(func.getLoc())
          << "input " << func.getArgAttr(argument.getArgNumber(), loom::kName)
          << " is not split over " << axis << ": its "
          << (dim == 0 ? "leading dimension of " : "batch of ") << type.getDimSize(dim)
          << " has no part for each of the axis' " << state.getMesh().getSize(axis);
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

/// The columns of a weight that is multiplied from the right, of experts the experts first; or the
/// output channels of a convolution. Nothing of other operations.
static SmallVector<Columns> findColumns(Operation *op) {
  if (auto dot = dyn_cast<loom::DotGeneralOp>(op)) {
    if (!dot.getRhs().getDefiningOp<loom::GetWeightOp>())
      return {};
    SmallVector<int64_t> free = dot.getRhsFreeDims();
    int64_t rank = cast<RankedTensorType>(dot.getType()).getRank();
    auto first = rank - static_cast<int64_t>(free.size());
    SmallVector<Columns> columns;
    for (auto [i, dim] : llvm::enumerate(free))
      columns.push_back({dot.getRhs(), dim, first + static_cast<int64_t>(i)});
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

/// True when an operation gives its result over an axis piece by piece: nothing has to be reduced.
static bool worksInPieces(const Propagation &state, Operation *op, StringAttr axis) {
  const ShardingRule &rule = state.getRule(op);
  FactorSplits splits =
      mergeFactors(rule, state.getLayouts(op), getTensorTypes(op), state.getMesh());
  for (auto [kind, list] : llvm::zip_equal(rule.kinds, splits.axes))
    if (kind == FactorKind::Reduction && llvm::is_contained(list, axis))
      return false;
  for (int64_t factor : rule.coupled)
    if (llvm::is_contained(splits.axes[factor], axis))
      return false;
  return true;
}

/// How far an axis cuts into a program's contractions, and how often that needs a reduction.
struct AxisUse {
  int64_t contractions = 0, reductions = 0;
};

static AxisUse countUses(const Propagation &state, StringAttr axis) {
  AxisUse use;
  for (Operation *op : state.getOperations()) {
    const ShardingRule &rule = state.getRule(op);
    bool contracts =
        op->getNumOperands() > 1 && llvm::is_contained(rule.kinds, FactorKind::Reduction);
    bool isSplit = llvm::any_of(state.getLayouts(op),
                                [&](const Layout &layout) { return layout.usesAxis(axis); });
    use.contractions += contracts && isSplit;
    use.reductions += isSplit && !worksInPieces(state, op, axis);
  }
  return use;
}

void ApplyStrategyPass::seedColumns(Propagation &state, func::FuncOp func, StringAttr axis) {
  int64_t reshards = state.countReshards();
  // Results of the model that are split over the axis; seeds must not add any. A state stays where
  // it is.
  auto countReturned = [&] {
    return llvm::count_if(func.front().getTerminator()->getOpOperands(), [&](OpOperand &use) {
      return !func.getResultAttr(use.getOperandNumber(), loom::kState) &&
             state.lookup(use.get()).layout.usesAxis(axis);
    });
  };
  int64_t returned = countReturned();
  AxisUse before = countUses(state, axis);
  func.walk([&](ShardingRuleInterface op) {
    SmallVector<Columns> candidates = findColumns(op);
    if (candidates.empty() || state.lookup(candidates[0].weight).layout.usesAxis(axis) ||
        state.lookup(op->getOperand(0)).layout.usesAxis(axis))
      return;
    // Try it: the seed stays only if no value has to be gathered for it, that is, if a later
    // contraction takes the split dimension by row.
    auto tryGranule = [&](const Columns &columns, int64_t granule) {
      if (!state.addAxis(columns.weight, columns.column, axis,
                         "strategy tp: column of " + loom::getNodeName(op->getLoc()), granule))
        return false;
      state.run();
      int64_t after = state.countReshards();
      if (after > reshards || countReturned() > returned)
        return false;
      // A pair of contractions for a reduction is worth it. What every contraction has to reduce
      // for, as the features of a residual stream, is not.
      AxisUse use = countUses(state, axis);
      if (2 * (use.reductions - before.reductions) > use.contractions - before.contractions + 1)
        return false;
      before = use;
      reshards = after;
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
    if (!table || gather.getDim() != 0 || loom::getByteSize(table.getType()) < kLeastTableBytes)
      return;
    if (!state.addAxis(table, 0, axis, "strategy tp: rows of a table"))
      mlir::emitRemark(gather.getLoc())
          << "table '" << table.getName() << "' is not split over " << axis << ": its "
          << cast<RankedTensorType>(table.getType()).getDimSize(0) << " rows are less than "
          << state.getMesh().getSize(axis);
  });
  state.run();
}

/// Splits dimension 1 of what layer norms make (Korthikanti et al. 2022, section 4.2.2).
void ApplyStrategyPass::seedSequence(Propagation &state, func::FuncOp func, StringAttr axis) {
  func.walk([&](loom::LayerNormOp norm) {
    if (cast<RankedTensorType>(norm.getType()).getRank() == 3)
      state.addAxis(norm.getOutput(), 1, axis, "strategy tp: sequence between contractions");
  });
  state.run();
}

int64_t ApplyStrategyPass::chooseMicrobatches(const Mesh &mesh) {
  // The largest divisor of every specialisation's local batch that is at most the option.
  for (auto func : getOperation().getOps<func::FuncOp>())
    for (BlockArgument argument : func.getArguments())
      if (getBatchDim(func, argument) != 0)
        return 1; // micro-batches are cut along the leading dimension
  int64_t parts = mesh.getSize(toAttrs(dp)), best = 1;
  for (int64_t count = 1; count <= microbatches; ++count) {
    bool fits = true;
    for (auto func : getOperation().getOps<func::FuncOp>())
      for (Type type : func.getArgumentTypes()) {
        auto tensor = cast<RankedTensorType>(type);
        fits &= tensor.getRank() > 0 && tensor.getDimSize(0) % (parts * count) == 0;
      }
    best = fits ? count : best;
  }
  return best;
}

void ApplyStrategyPass::addMicroAxis(MeshOp meshOp, int64_t count) {
  SmallVector<Attribute> axes(meshOp.getAxes().getValue());
  llvm::erase_if(
      axes, [](Attribute axis) { return cast<AxisAttr>(axis).getName() == MeshOp::kMicroAxis; });
  if (count > 1)
    axes.push_back(AxisAttr::get(&getContext(), MeshOp::kMicroAxis, count));
  meshOp.setAxesAttr(ArrayAttr::get(&getContext(), axes));
}

/// The operation that needs the whole batch, or null when the program can run on a piece of it.
static Operation *findMicrobatchObstacle(const Propagation &state, func::FuncOp func,
                                         StringAttr micro) {
  // A state is one thing, not one for every piece.
  for (unsigned i = 0; i < func.getNumArguments(); ++i)
    if (func.getArgAttr(i, loom::kState))
      return func;
  for (Operation *op : state.getOperations()) {
    auto constant = dyn_cast<loom::ConstantOp>(op);
    bool positional =
        isa<loom::IotaOp, loom::GetWeightOp>(op) || (constant && !constant.getValue().isSplat());
    if (loom::isControl(op) || !worksInPieces(state, op, micro))
      return op;
    SmallVector<Layout> required = state.getRequired(op);
    for (auto [index, value] :
         llvm::enumerate(llvm::concat<const Value>(llvm::to_vector_of<Value>(op->getOperands()),
                                                   llvm::to_vector_of<Value>(op->getResults())))) {
      bool has = state.lookup(value).layout.usesAxis(micro);
      if (has != required[index].usesAxis(micro) || (has && positional))
        return op;
    }
  }
  for (Value value : func.front().getTerminator()->getOperands()) {
    const Layout &layout = state.lookup(value).layout;
    if (layout.dims.empty() || layout.dims[0].axes.empty() || layout.dims[0].axes.back() != micro)
      return value.getDefiningOp() ? value.getDefiningOp() : func.getOperation();
  }
  return nullptr;
}

void ApplyStrategyPass::runOnOperation() {
  MeshOp meshOp = getMesh(getOperation());
  if (!meshOp)
    return;
  if (failed(checkAxes(Mesh(meshOp))))
    return signalPassFailure();
  int64_t count = microbatches > 1 ? chooseMicrobatches(Mesh(meshOp)) : 1;
  auto micro = StringAttr::get(&getContext(), MeshOp::kMicroAxis);
  while (true) {
    addMicroAxis(meshOp, count);
    Mesh mesh(meshOp);
    std::vector<Propagation> states;
    Operation *obstacle = nullptr;
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
        state.commit(/*close=*/false);
      return;
    }
    obstacle->emitRemark("the batch is not cut into micro-batches: '")
        << loom::getNodeName(obstacle->getLoc()) << "' needs all of it";
    count = 1;
  }
}
