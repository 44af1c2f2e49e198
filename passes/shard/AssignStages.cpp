//===- AssignStages.cpp - pipeline stage cuts -------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/shard/Shard.h"

#include "dialects/loom/Control.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

namespace gridloom {
#define GEN_PASS_DEF_ASSIGNSTAGES
#include "passes/shard/Passes.h.inc"
} // namespace gridloom

/// Work is counted in floating-point operations; a byte of memory traffic and a byte sent to
/// another stage stand for about this many.
static constexpr double kFlopsPerByte = 2;
static constexpr double kFlopsPerSentByte = 25;

/// Operations that belong to whoever reads them: repeating them in every stage is cheaper than
/// sending what they make.
static bool isFloating(Operation *op) {
  return op->getNumOperands() == 0 || isa<loom::BroadcastOp>(op);
}

namespace {
/// One function's operations by position, with work and what crosses each position.
struct Profile {
  SmallVector<Operation *> anchored;
  SmallVector<double> work;     // prefix sums
  SmallVector<double> crossing; // bytes alive just before position i

  explicit Profile(func::FuncOp func);
  double between(size_t from, size_t to) const { return work[to] - work[from]; }
};

struct AssignStagesPass : public gridloom::impl::AssignStagesBase<AssignStagesPass> {
  using AssignStagesBase::AssignStagesBase;

  void runOnOperation() override {
    MeshOp mesh = getMesh(getOperation());
    int64_t stages = mesh ? mesh.getAxisSize(axis) : 1;
    if (stages > 1)
      getOperation()->setAttr(kStageAxis, StringAttr::get(&getContext(), axis));
    for (auto func : getOperation().getOps<func::FuncOp>()) {
      if (loom::isBody(func))
        continue;
      if (failed(assign(func, stages)))
        return signalPassFailure();
      // A loop or branch is in one stage.
      loom::forEachBody(func, [](Operation *op, func::FuncOp body) {
        for (Operation &inner : body.front())
          inner.setAttr(kStage, op->getAttr(kStage));
      });
    }
  }

private:
  LogicalResult assign(func::FuncOp func, int64_t stages);
};
} // namespace

/// The last position that reads `value`, through floating operations.
static int64_t getLastUse(Value value, const llvm::DenseMap<Operation *, int64_t> &position) {
  int64_t last = -1;
  for (Operation *user : value.getUsers()) {
    if (auto it = position.find(user); it != position.end())
      last = std::max(last, it->second);
    else if (isFloating(user))
      last = std::max(last, getLastUse(user->getResult(0), position));
  }
  return last;
}

Profile::Profile(func::FuncOp func) {
  llvm::DenseMap<Operation *, int64_t> position;
  work.push_back(0);
  for (Operation &op : func.front().without_terminator()) {
    if (isFloating(&op))
      continue;
    position[&op] = anchored.size();
    anchored.push_back(&op);
    double cost = 0;
    if (auto costed = dyn_cast<loom::CostInterface>(op))
      cost = costed.getFlops() + kFlopsPerByte * costed.getMemoryBytes();
    work.push_back(work.back() + cost);
  }
  SmallVector<double> change(anchored.size() + 1, 0);
  for (auto [i, op] : llvm::enumerate(anchored))
    for (Value result : op->getResults())
      if (int64_t last = getLastUse(result, position); last > static_cast<int64_t>(i)) {
        change[i + 1] += loom::getByteSize(result.getType());
        change[last + 1] -= loom::getByteSize(result.getType());
      }
  double alive = 0;
  for (double delta : change)
    crossing.push_back(alive += delta);
}

/// Cut positions 0 = c0 < c1 < ... < c_stages = n that minimise the slowest stage, then the bytes
/// sent. Returns the starts of the stages.
static SmallVector<size_t> chooseCuts(const Profile &profile, size_t stages) {
  size_t n = profile.anchored.size();
  using Cost = std::pair<double, double>;
  constexpr double infinite = std::numeric_limits<double>::infinity();
  std::vector<std::vector<Cost>> best(stages + 1, std::vector<Cost>(n + 1, {infinite, infinite}));
  std::vector<std::vector<size_t>> from(stages + 1, std::vector<size_t>(n + 1, 0));
  best[0][0] = {0, 0};
  for (size_t stage = 1; stage <= stages; ++stage)
    for (size_t end = stage; end <= n; ++end)
      for (size_t start = stage - 1; start < end; ++start) {
        const Cost &before = best[stage - 1][start];
        double sent = start ? kFlopsPerSentByte * profile.crossing[start] : 0;
        double slowest = std::max(before.first, profile.between(start, end) + sent);
        Cost cost = {slowest, before.second + sent};
        if (cost < best[stage][end]) {
          best[stage][end] = cost;
          from[stage][end] = start;
        }
      }
  SmallVector<size_t> starts(stages);
  for (size_t stage = stages, end = n; stage > 0; --stage)
    starts[stage - 1] = end = from[stage][end];
  return starts;
}

/// The latest stage that makes something the operation reads, through floating operations.
static int64_t getEarliestStage(Operation *op) {
  int64_t earliest = 0;
  for (Value operand : op->getOperands())
    if (Operation *producer = operand.getDefiningOp()) {
      auto stage = producer->getAttrOfType<IntegerAttr>(kStage);
      earliest = std::max(earliest, isFloating(producer) ? getEarliestStage(producer)
                                    : stage              ? stage.getInt()
                                                         : 0);
    }
  return earliest;
}

/// Stages as the model says; what it leaves open goes with what it reads.
static LogicalResult followAnnotations(ArrayRef<Operation *> anchored, int64_t stages) {
  SmallVector<int64_t> count(stages, 0);
  for (Operation *op : anchored) {
    int64_t earliest = getEarliestStage(op);
    auto given = op->getAttrOfType<IntegerAttr>(kStage);
    if (given && (given.getInt() < earliest || given.getInt() >= stages))
      return op->emitError("'") << loom::getNodeName(op->getLoc()) << "' is annotated with stage "
                                << given.getInt() << " of " << stages
                                << ", but reads a value of stage " << earliest;
    int64_t stage = given ? given.getInt() : earliest;
    op->setAttr(kStage, Builder(op->getContext()).getI64IntegerAttr(stage));
    ++count[stage];
  }
  for (auto [stage, size] : llvm::enumerate(count))
    if (size == 0)
      return anchored.front()->emitError("the model's annotations leave stage ")
             << stage << " of " << stages << " without an operation";
  return success();
}

LogicalResult AssignStagesPass::assign(func::FuncOp func, int64_t stages) {
  Profile profile(func);
  if (stages > 1 && static_cast<int64_t>(profile.anchored.size()) < stages)
    return func.emitError("cannot cut ") << profile.anchored.size() << " operations into " << stages
                                         << " stages; use a smaller '" << axis << "' axis";
  OpBuilder builder(&getContext());
  auto setStage = [&](Operation *op, int64_t stage) {
    op->setAttr(kStage, builder.getI64IntegerAttr(stage));
  };
  bool annotated = stages > 1 && llvm::any_of(profile.anchored,
                                              [](Operation *op) { return op->hasAttr(kStage); });
  if (annotated) {
    if (failed(followAnnotations(profile.anchored, stages)))
      return failure();
  } else {
    SmallVector<size_t> starts = stages > 1 ? chooseCuts(profile, stages) : SmallVector<size_t>{0};
    for (auto [i, op] : llvm::enumerate(profile.anchored))
      setStage(op, std::distance(starts.begin(), llvm::upper_bound(starts, i)) - 1);
  }
  setStage(func.front().getTerminator(), stages - 1);

  // Floating operations go where they are read, one copy per stage; later ones first, since a
  // floating operation may read another.
  SmallVector<Operation *> floating;
  for (Operation &op : func.front().without_terminator())
    if (isFloating(&op))
      floating.push_back(&op);
  for (Operation *op : llvm::reverse(floating)) {
    llvm::MapVector<int64_t, SmallVector<OpOperand *>> uses;
    for (OpOperand &use : op->getUses())
      uses[use.getOwner()->getAttrOfType<IntegerAttr>(kStage).getInt()].push_back(&use);
    if (uses.empty())
      setStage(op, 0);
    for (auto [i, entry] : llvm::enumerate(uses)) {
      Operation *copy = i == 0 ? op : OpBuilder(op).clone(*op);
      setStage(copy, entry.first);
      for (OpOperand *use : entry.second)
        use->set(copy->getResult(0));
    }
  }
  return success();
}
