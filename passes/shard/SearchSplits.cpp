//===- SearchSplits.cpp - shardings that a solver chooses -----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/solver/Solver.h"
#include "dialects/dist/RequireMesh.h"
#include "dialects/dist/Splits.h"
#include "passes/shard/SearchBound.h"
#include "passes/shard/SearchLimits.h"
#include "passes/shard/SearchMemo.h"
#include "passes/shard/Shard.h"
#include "passes/shard/SplitProblem.h"
#include "passes/shard/StageAssignment.h"
#include "support/Text.h"

#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

namespace gridloom {
#define GEN_PASS_DEF_SEARCHSPLITS
#include "passes/shard/Passes.h.inc"
} // namespace gridloom

/// The number of times stages are cut, each followed by a search of all splits.
static constexpr int kMostCuts = 3;

/// Rounds to find an assignment to start from.
static constexpr uint64_t kMostRoundsForStart = 20;

namespace {
/// The best splits of the program for one cut into stages.
struct Found {
  std::unique_ptr<SplitProblem> problem;
  solver::Solution solution;
  StageStarts starts;
  SmallVector<StringAttr> batch; ///< axes that split the dimension cut into micro-batches
  double seconds = std::numeric_limits<double>::infinity();
};

struct SearchSplitsPass : public gridloom::impl::SearchSplitsBase<SearchSplitsPass> {
  using SearchSplitsBase::SearchSplitsBase;
  SearchSplitsPass(SearchSplitsOptions options, std::shared_ptr<SearchMemo> memo,
                   std::shared_ptr<SearchLimits> limits, std::shared_ptr<SplitPrices> prices)
      : SearchSplitsBase(std::move(options)), memo(std::move(memo)), limits(std::move(limits)),
        prices(std::move(prices)) {}

  void runOnOperation() override {
    MeshOp meshOp = requireMesh(getOperation());
    if (!meshOp)
      return signalPassFailure();
    Mesh mesh(meshOp);
    SmallVector<StringAttr> over;
    for (const std::string &name : axes)
      if (auto axis = StringAttr::get(&getContext(), name); mesh.getSize(axis) > 1)
        over.push_back(axis);
    if (over.empty())
      return;
    if (failed(verifyGiven(mesh)))
      return signalPassFailure();
    rounds = 0;
    if (!prices)
      prices = std::make_shared<SplitPrices>();
    bool isKnown = memo && memo->isKnown;
    FailureOr<Found> best = isKnown ? recall(over, mesh) : searchStages(over, mesh);
    if (isKnown && succeeded(best) && !best->problem) { // the memo is of a program in another order
      isKnown = false;
      best = searchStages(over, mesh);
    }
    if (failed(best))
      return signalPassFailure();
    if (!best->solution.progress.isFeasible) {
      getOperation().emitError("no way to split the program over ")
          << llvm::join(axes, ", ") << " was found that keeps what has been given"
          << (memory ? " within " + formatBytes(uint64_t(memory)) + " a device" : "") << ": "
          << best->solution.fault;
      return signalPassFailure();
    }
    if (memo && !isKnown)
      keep(*best);
    best->problem->apply(best->solution.assignment, "search");
    remarkUnused(*best->problem, over);
    remarkTime(*best, mesh);
  }

private:
  std::vector<SmallVector<StringAttr>> listBatchAxes(ArrayRef<StringAttr> over, const Mesh &mesh);
  solver::Assignment findUniform(const SplitProblem &problem, const solver::Problem &costs);
  FailureOr<Found> search(const StageStarts &starts, ArrayRef<StringAttr> over, const Mesh &mesh);
  FailureOr<Found> searchStages(ArrayRef<StringAttr> over, const Mesh &mesh);
  FailureOr<Found> recall(ArrayRef<StringAttr> over, const Mesh &mesh);
  void keep(const Found &found);

  std::unique_ptr<SplitProblem> makeProblem(ArrayRef<StringAttr> over, ArrayRef<StringAttr> batch,
                                            const Mesh &mesh) {
    return std::make_unique<SplitProblem>(getOperation(), over, batch, mesh, mostTableBytes,
                                          /*boundsTime=*/false, prices, hiddenShare);
  }

  /// Whether to settle for what has been found, after `more` further rounds.
  bool isOver(uint64_t more = 0) const {
    return limits && (rounds + more >= limits->mostRounds || (limits->isOver && limits->isOver()));
  }

  /// The same between searches; records that the search was cut short.
  bool isCut() {
    if (!isOver())
      return false;
    limits->isCut = true;
    return true;
  }

  /// Requires the splits that operations already have to be allowed by their rules.
  LogicalResult verifyGiven(const Mesh &mesh) {
    auto result = getOperation().walk([&](ShardingRuleInterface op) {
      bool isGood = !op->hasAttr(kSplits) || succeeded(readSplits(op, op.getShardingRule(), mesh));
      return isGood ? WalkResult::advance() : WalkResult::interrupt();
    });
    return failure(result.wasInterrupted());
  }

  /// Remarks on axes that split nothing: their devices repeat each other's work.
  void remarkUnused(SplitProblem &problem, ArrayRef<StringAttr> over) {
    llvm::DenseSet<StringAttr> used = problem.getUsedAxes();
    for (StringAttr axis : over)
      if (!used.contains(axis))
        getOperation().emitRemark("axis '")
            << axis.getValue() << "' splits nothing: whatever it split, communication would take "
            << "longer than the work it saves; fewer devices are as fast";
  }

  void remarkTime(const Found &found, const Mesh &mesh) {
    int64_t stages = mesh.getSize(StringAttr::get(&getContext(), stageAxis));
    const solver::Progress &progress = found.solution.progress;
    double cost = found.seconds * 1e3;
    double bound = found.problem->getStepBound(progress.lowerBound) * 1e3;
    if (hiddenShare == 0)
      setSearchBound(getOperation(), {cost, bound});
    std::string how = "on a device, one operation after another";
    if (stages > 1)
      how = llvm::formatv("in {0} stages, micro-batches: {1}", stages,
                          mesh.getSize(StringAttr::get(&getContext(), MeshOp::kMicroAxis)));
    std::string least = "the search was ended before it had a bound";
    if (bound > 0)
      least = llvm::formatv("no choice of splits takes less than {0:F3} ms{1}", bound,
                            stages > 1 ? " with these stages" : "");
    if (hiddenShare > 0)
      how += llvm::formatv(", with {0:F0} % less for messages beside work", hiddenShare * 100);
    getOperation().emitRemark(
        llvm::formatv("search: the program takes {0:F3} ms {1}; {2}", cost, how, least));
  }

  std::shared_ptr<SearchMemo> memo;
  std::shared_ptr<SearchLimits> limits;
  std::shared_ptr<SplitPrices> prices;
  uint64_t rounds = 0; ///< of the solver
};
} // namespace

/// Every subset of `over` that can split the batch of all inputs evenly within micro-batches; only
/// the empty one without micro-batches.
std::vector<SmallVector<StringAttr>> SearchSplitsPass::listBatchAxes(ArrayRef<StringAttr> over,
                                                                     const Mesh &mesh) {
  std::vector<SmallVector<StringAttr>> all(1);
  auto fits = [&](ArrayRef<StringAttr> batch) {
    for (auto func : getOperation().getOps<func::FuncOp>())
      for (BlockArgument argument : func.getArguments()) {
        Sharding whole = getWholeInTime(argument);
        int64_t dim = whole.getMicroDim();
        if (dim < 0 || cast<RankedTensorType>(argument.getType()).getDimSize(dim) %
                               (mesh.getSize(batch) * mesh.getSize(whole.dims[dim].axes)) !=
                           0)
          return false;
      }
    return true;
  };
  for (StringAttr axis : over)
    for (size_t i = 0, count = all.size(); i < count; ++i) {
      SmallVector<StringAttr> longer = all[i];
      longer.push_back(axis);
      if (fits(longer))
        all.push_back(longer);
    }
  return all;
}

/// The best of the few assignments that split each operation along one factor alone, if any is
/// found.
solver::Assignment SearchSplitsPass::findUniform(const SplitProblem &problem,
                                                 const solver::Problem &costs) {
  std::vector<std::vector<uint32_t>> kept = problem.listUniform();
  solver::Options options;
  options.work = std::min(work / 4, kMostRoundsForStart);
  options.gap = kSearchGap;
  options.isEnough = [&](const solver::Progress &progress) { return isOver(progress.work); };
  solver::Solution solution = solver::solve(solver::keepStrategies(costs, kept), options);
  rounds += solution.progress.work;
  if (limits)
    limits->rounds += solution.progress.work;
  if (!solution.progress.isFeasible)
    return {};
  for (size_t node = 0; node < kept.size(); ++node)
    solution.assignment[node] = kept[node][solution.assignment[node]];
  return std::move(solution.assignment);
}

/// The best result of one search for each choice of the batch's axes.
FailureOr<Found> SearchSplitsPass::search(const StageStarts &starts, ArrayRef<StringAttr> over,
                                          const Mesh &mesh) {
  Found best;
  best.solution.fault = "an operation has no way to be split";
  solver::Cost bound = solver::infiniteCost;
  solver::Options options;
  options.work = work;
  options.gap = kSearchGap;
  options.isEnough = [&](const solver::Progress &progress) { return isOver(progress.work); };
  for (const SmallVector<StringAttr> &batch : listBatchAxes(over, mesh)) {
    if (best.solution.progress.isFeasible && isCut()) {
      bound = 0; // the remaining choices are unknown
      break;
    }
    Found found;
    found.starts = starts;
    found.batch = batch;
    found.problem = makeProblem(over, batch, mesh);
    if (!found.problem->hasChoices())
      continue;
    found.problem->connect();
    if (found.problem->isTooLarge())
      return getOperation().emitError("a search over ")
             << llvm::join(axes, ", ") << " needs tables of "
             << formatBytes(found.problem->getTableBytes()) << ", the most are "
             << formatBytes(mostTableBytes)
             << "; search over fewer axes, as x=4 in place of a=2,b=2";
    solver::Problem costs = found.problem->makeProblem(memory);
    // With little memory it has been a worse place to start from: whole weights have no room.
    if (memory == 0)
      options.suggestStart = [&] { return findUniform(*found.problem, costs); };
    found.solution = solver::solve(costs, options);
    rounds += found.solution.progress.work;
    if (limits) {
      limits->rounds += found.solution.progress.work;
      limits->isCut |= found.solution.isCut;
    }
    if (!found.solution.isProvenInfeasible)
      bound = std::min(bound, found.solution.progress.lowerBound);
    if (found.solution.progress.isFeasible)
      found.seconds = found.problem->getStepSeconds(found.solution.assignment);
    if (!best.problem || found.seconds < best.seconds)
      best = std::move(found);
  }
  best.solution.progress.lowerBound = bound;
  return best;
}

/// The bytes that one device of a stage sends if all its devices share the values that cross a cut:
/// a search may split values so at any cut.
static std::function<double(Value)> getPartBytes(int64_t devices, const Mesh &mesh) {
  return [devices, &mesh](Value value) {
    RankedTensorType local =
        getLocalType(cast<RankedTensorType>(value.getType()), getWholeInTime(value), mesh);
    return static_cast<double>(loom::getByteSize(local)) / static_cast<double>(devices);
  };
}

/// Cuts by work divided evenly among a stage's devices first, then by the costs of the splits
/// found, as long as that is faster.
FailureOr<Found> SearchSplitsPass::searchStages(ArrayRef<StringAttr> over, const Mesh &mesh) {
  auto axis = StringAttr::get(&getContext(), stageAxis);
  if (mesh.getSize(axis) == 1)
    return search({}, over, mesh);
  StageAssignment stages(getOperation(), axis);
  int64_t devices = mesh.getSize(over);
  double pieces = double(mesh.getSize(StringAttr::get(&getContext(), MeshOp::kMicroAxis)));
  StageCosts costs = getUnsplitCosts(mesh);
  costs.seconds = [&, whole = costs.seconds](Operation *op) {
    return whole(op) / (double(devices) * pieces);
  };
  costs.bytes = getPartBytes(devices, mesh);
  costs.occupiesSender = true; // as SplitProblem counts it
  FailureOr<StageStarts> starts = stages.choose(costs);
  if (failed(starts) || failed(stages.apply(*starts)))
    return failure();
  FailureOr<Found> first = search(*starts, over, mesh);
  if (failed(first))
    return failure();
  Found best = std::move(*first);
  for (int cut = 1; cut < kMostCuts && stages.isFree() && best.solution.progress.isFeasible;
       ++cut) {
    if (isCut())
      break;
    costs = best.problem->getStageCosts(best.solution.assignment);
    costs.bytes = getPartBytes(devices, mesh);
    costs.occupiesSender = true;
    starts = stages.choose(costs);
    if (failed(starts))
      return failure();
    if (*starts == best.starts)
      break;
    if (failed(stages.apply(*starts)))
      return failure();
    FailureOr<Found> next = search(*starts, over, mesh);
    if (failed(next))
      return failure();
    if (next->seconds < best.seconds) {
      best = std::move(*next);
      continue;
    }
    if (failed(stages.apply(best.starts)))
      return failure();
    // The same problem again, in the same order.
    best.problem = makeProblem(over, best.batch, mesh);
    break;
  }
  return best;
}

void SearchSplitsPass::keep(const Found &found) {
  memo->isKnown = true;
  memo->order = found.problem->describeOrder();
  memo->batch.clear();
  memo->starts = found.starts;
  for (StringAttr axis : found.batch)
    memo->batch.push_back(axis.str());
  memo->solution = found.solution;
  memo->seconds = found.seconds;
}

/// Restores the memo's result; `problem` is null if the memo is of a program in another order.
FailureOr<Found> SearchSplitsPass::recall(ArrayRef<StringAttr> over, const Mesh &mesh) {
  Found found;
  found.starts = memo->starts;
  for (const std::string &axis : memo->batch)
    found.batch.push_back(StringAttr::get(&getContext(), axis));
  found.solution = memo->solution;
  found.seconds = memo->seconds;
  auto axis = StringAttr::get(&getContext(), stageAxis);
  if (mesh.getSize(axis) > 1 && failed(StageAssignment(getOperation(), axis).apply(memo->starts)))
    return failure();
  found.problem = makeProblem(over, found.batch, mesh);
  if (found.problem->describeOrder() != memo->order)
    found.problem.reset();
  return found;
}

std::unique_ptr<Pass> gridloom::createSearchSplits(SearchSplitsOptions options,
                                                   std::shared_ptr<SearchMemo> memo,
                                                   std::shared_ptr<SearchLimits> limits,
                                                   std::shared_ptr<SplitPrices> prices) {
  return std::make_unique<SearchSplitsPass>(std::move(options), std::move(memo), std::move(limits),
                                            std::move(prices));
}
