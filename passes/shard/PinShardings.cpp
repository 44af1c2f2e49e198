//===- PinShardings.cpp - shardings as a strategy file says ---------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/dist/RequireMesh.h"
#include "dialects/dist/Splits.h"
#include "passes/shard/FactorNames.h"
#include "passes/shard/MicroBatches.h"
#include "passes/shard/Shard.h"
#include "passes/shard/Spots.h"
#include "passes/shard/StrategyLookup.h"
#include "passes/shard/StrategyWriter.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

namespace gridloom {
#define GEN_PASS_DEF_PINSHARDINGS
#include "passes/shard/Passes.h.inc"
} // namespace gridloom

static constexpr llvm::StringLiteral kFromFile = "strategy file";

namespace {
struct PinShardingsPass : public gridloom::impl::PinShardingsBase<PinShardingsPass> {
  using PinShardingsBase::PinShardingsBase;
  explicit PinShardingsPass(std::shared_ptr<const StrategyFile> given) : given(std::move(given)) {}

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (!given)
      given = readForPass(module, file);
    MeshOp meshOp = given ? requireMesh(module) : MeshOp();
    if (!meshOp)
      return signalPassFailure();
    Mesh mesh(meshOp);
    StrategyLookup lookup(*given, module,
                          {StrategySection::Inputs, StrategySection::Weights,
                           StrategySection::Nodes, StrategySection::Splits,
                           StrategySection::Outputs, StrategySection::Storage});
    for (func::FuncOp func : listSpecialisations(module)) {
      std::string specialisation = nameSpecialisation(func);
      SmallVector<NamedSpot, 0> spots = nameSpots(func);
      for (const NamedSpot &named : spots)
        pin(lookup, specialisation, named, mesh);
      for (const NamedSpot &named : spots) {
        store(lookup, specialisation, named, mesh);
        split(lookup, specialisation, named, mesh);
      }
    }
    checkStates(lookup);
    joinStates(module);
    if (failed(lookup.report()) || failed(checkMicrobatches(mesh)))
      signalPassFailure();
  }

private:
  void pin(StrategyLookup &lookup, StringRef specialisation, const NamedSpot &named,
           const Mesh &mesh);
  void store(StrategyLookup &lookup, StringRef specialisation, const NamedSpot &named,
             const Mesh &mesh);
  void split(StrategyLookup &lookup, StringRef specialisation, const NamedSpot &named,
             const Mesh &mesh);
  void checkStates(StrategyLookup &lookup);
  LogicalResult checkMicrobatches(const Mesh &mesh);

  std::shared_ptr<const StrategyFile> given;
};
} // namespace

static Sharding makeSharding(const StrategyLine &line, MLIRContext *context) {
  Sharding sharding;
  for (const DimSplit &split : line.dims) {
    Sharding::Dim &dim = sharding.dims.emplace_back();
    for (const std::string &axis : split.axes)
      dim.axes.push_back(StringAttr::get(context, axis));
    dim.granule = split.granule;
  }
  for (const std::string &axis : line.unreduced)
    sharding.unreduced.push_back(StringAttr::get(context, axis));
  return sharding;
}

/// Axes of one device cut nothing, on no multiples: the dimension is whole, without padding.
static void dropIdleGranule(Sharding::Dim &dim, const Mesh &mesh) {
  if (mesh.getSize(dim.axes) == 1)
    dim.granule = 1;
}

/// A closed sharding that the user gave besides the file; nullopt if there is none.
static std::optional<Sharding> getPinned(const Spot &spot) {
  ShardingAttr attr = spot.get();
  if (!attr || llvm::any_of(attr.getDims(), [](DimShardingAttr dim) { return dim.getOpen(); }))
    return std::nullopt;
  return Sharding(attr);
}

static Sharding dropMicrobatches(Sharding sharding) {
  for (Sharding::Dim &dim : sharding.dims)
    llvm::erase_if(dim.axes, isMicroAxis);
  return sharding;
}

/// Whether the file and the user agree, apart from micro-batches. A user who says nothing of
/// partial sums leaves open whether they are reduced.
static bool agree(Sharding said, Sharding pinned) {
  if (pinned.unreduced.empty())
    said.unreduced.clear();
  return dropMicrobatches(std::move(said)) == dropMicrobatches(std::move(pinned));
}

/// Notes that a line has another number of dimensions than its value.
static void noteRank(StrategyLookup &lookup, const StrategyLine &line, const NamedSpot &named) {
  int64_t rank = named.spot.getType().getRank();
  lookup.note(line.line, "'" + named.full + "' has " + Twine(rank) + " dimension" +
                             (rank == 1 ? "" : "s") + " in the program, " +
                             Twine(line.dims.size()) + " here");
}

/// Notes that a line cuts a dimension on multiples of more elements than it has.
static void noteGranule(StrategyLookup &lookup, const StrategyLine &line, const NamedSpot &named,
                        int64_t granule, int64_t size) {
  lookup.note(line.line, "'" + named.full + "' is cut on multiples of " + Twine(granule) +
                             " elements along a dimension of " + Twine(size) + "; write at most " +
                             Twine(size) + " after the axes, or nothing");
}

void PinShardingsPass::pin(StrategyLookup &lookup, StringRef specialisation, const NamedSpot &named,
                           const Mesh &mesh) {
  const StrategyLine *line = lookup.find(named.section, specialisation, named.full, named.base);
  if (!line)
    return;
  RankedTensorType type = named.spot.getType();
  std::string name = "'" + named.full + "'";
  bool fits = static_cast<int64_t>(line->dims.size()) == type.getRank();
  // At other sizes a node may consist of other operations than those that the file numbers.
  if (!fits && named.section == StrategySection::Nodes && StringRef(named.full).contains(':'))
    return;
  if (!fits)
    return noteRank(lookup, *line, named);
  Sharding sharding = makeSharding(*line, &getContext());
  for (auto [dim, size] : llvm::zip_equal(sharding.dims, type.getShape())) {
    if (dim.granule > 1 && dim.granule > size)
      return noteGranule(lookup, *line, named, dim.granule, size);
    int64_t parts = mesh.getSize(dim.axes) * dim.granule;
    if (llvm::any_of(dim.axes, isMicroAxis) && size % parts != 0)
      return lookup.note(line->line, name + " has " + Twine(size) +
                                         " rows, which cannot be cut evenly in " + Twine(parts) +
                                         " for " + Twine(given->microbatches) +
                                         " micro-batches; change 'microbatches', or the size");
    dropIdleGranule(dim, mesh);
  }
  if (named.section == StrategySection::Outputs && sharding.getMicroDim() != 0 &&
      mesh.getSize(StringAttr::get(&getContext(), MeshOp::kMicroAxis)) > 1)
    return lookup.note(line->line, name + " is " + line->text + ", not cut into the " +
                                       Twine(given->microbatches) +
                                       " micro-batches; write 'micro' as the last axis of its "
                                       "first dimension");
  if (std::optional<Sharding> pinned = getPinned(named.spot); pinned && !agree(sharding, *pinned)) {
    std::string origin = named.spot.getOrigin();
    return lookup.note(line->line, name + " is " + line->text + ", but " + printSharding(*pinned) +
                                       " by " + (origin == "user" ? "--shard" : "the " + origin) +
                                       "; keep one of them");
  }
  named.spot.set(sharding.getAttr(mesh), kFromFile);
}

/// Sets how a weight or state lies in memory.
void PinShardingsPass::store(StrategyLookup &lookup, StringRef specialisation,
                             const NamedSpot &named, const Mesh &mesh) {
  auto argument = dyn_cast_or_null<BlockArgument>(named.spot.value);
  auto func = argument ? dyn_cast<func::FuncOp>(argument.getOwner()->getParentOp()) : nullptr;
  bool isState = func && func.getArgAttr(argument.getArgNumber(), loom::kState);
  if (named.section != StrategySection::Weights && !isState)
    return;
  const StrategyLine *line =
      lookup.find(StrategySection::Storage, specialisation, named.full, named.base);
  if (!line)
    return;
  if (static_cast<int64_t>(line->dims.size()) != named.spot.getType().getRank())
    return noteRank(lookup, *line, named);
  Sharding stored = makeSharding(*line, &getContext());
  for (auto [dim, size] : llvm::zip_equal(stored.dims, named.spot.getType().getShape())) {
    if (dim.granule > 1 && dim.granule > size)
      return noteGranule(lookup, *line, named, dim.granule, size);
    dropIdleGranule(dim, mesh);
  }
  ShardingAttr storage = stored.getAttr(mesh);
  if (ShardingAttr before = getStorage(named.spot.value); before && before != storage)
    return lookup.note(line->line, "'" + named.full + "' is stored as " + line->text + ", but " +
                                       printSharding(Sharding(before)) +
                                       " by --shard; keep one of them");
  setStorage(named.spot.value, storage);
}

/// Sets how an operation, named by its first result, is split. Whether its operands stay partial
/// sums is for their own lines to say.
void PinShardingsPass::split(StrategyLookup &lookup, StringRef specialisation,
                             const NamedSpot &named, const Mesh &mesh) {
  auto result = dyn_cast_or_null<OpResult>(named.spot.value);
  if (named.section != StrategySection::Nodes || !result || result.getResultNumber() > 0)
    return;
  const StrategyLine *line =
      lookup.find(StrategySection::Splits, specialisation, named.full, named.base);
  if (!line)
    return;
  Operation *op = result.getOwner();
  ShardingRule rule = cast<ShardingRuleInterface>(op).getShardingRule();
  std::vector<std::string> names = getFactorNames(op, rule);
  OpSplits splits;
  splits.factors = FactorSplits(names.size());
  for (const FactorSplit &factor : line->factors) {
    size_t index = llvm::find(names, factor.name) - names.begin();
    if (index == names.size() && mayHaveFactor(op, factor.name))
      return lookup.noteIdle(line->line, "the work of '" + named.full + "' has no '" + factor.name +
                                             "' at this size; it has " + llvm::join(names, ", ") +
                                             ", and is split as its operands and result are");
    if (index == names.size())
      return lookup.note(line->line, "the work of '" + named.full + "' has no '" + factor.name +
                                         "'; it has " + llvm::join(names, ", "));
    if (int64_t size = rule.sizes[index]; factor.split.granule > std::max<int64_t>(size, 1))
      return lookup.note(line->line, "'" + named.full + "' cuts factor '" + factor.name + "', of " +
                                         Twine(size) + " elements, on multiples of " +
                                         Twine(factor.split.granule));
    for (const std::string &axis : factor.split.axes)
      splits.factors.axes[index].push_back(StringAttr::get(&getContext(), axis));
    splits.factors.granules[index] = factor.split.granule;
  }
  if (std::string fault = findFault(rule, splits.factors, mesh); !fault.empty())
    return lookup.note(line->line, "'" + named.full + "' " + fault + "; its factors are " +
                                       llvm::join(names, ", "));
  for (Value operand : op->getOperands())
    if (ShardingAttr sharding = operand.getDefiningOp() ? getSharding(operand) : ShardingAttr();
        sharding && splits.unreduced.empty())
      splits.unreduced.assign(sharding.getUnreduced().begin(), sharding.getUnreduced().end());
  op->setAttr(kSplits, splits.getAttr(&getContext()));
}

/// Notes a state whose input and output have different shardings.
void PinShardingsPass::checkStates(StrategyLookup &lookup) {
  std::optional<StateConflict> conflict = findStateConflict(getOperation());
  if (!conflict)
    return;
  auto describe = [](const std::string &name, const Spot &spot) {
    return name + " is " + printSharding(Sharding(spot.get()));
  };
  lookup.note(0, "state '" + conflict->state + "' has one split, but " +
                     describe(conflict->firstName, conflict->first) + " and " +
                     describe(conflict->secondName, conflict->second) + "; make them agree");
}

/// Micro-batches do not communicate: every operation has to have its part of the batch.
LogicalResult PinShardingsPass::checkMicrobatches(const Mesh &mesh) {
  if (given->microbatches == 1 || getTrainedParts(getOperation()))
    return success();
  auto micro = StringAttr::get(&getContext(), MeshOp::kMicroAxis);
  for (func::FuncOp func : listSpecialisations(getOperation())) {
    Propagation state(func, mesh);
    state.run();
    if (auto obstacle = findMicrobatchObstacle(state, func, micro))
      return emitError(obstacle->loc)
             << "the strategy " << given->locate(0) << " cuts the batch into "
             << given->microbatches << " micro-batches: " << obstacle->reason;
  }
  return success();
}

std::unique_ptr<Pass> gridloom::createPinShardings(std::shared_ptr<const StrategyFile> given) {
  return std::make_unique<PinShardingsPass>(std::move(given));
}
