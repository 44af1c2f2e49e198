//===- AssignStages.cpp - pipeline stage cuts -------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/shard/Shard.h"
#include "passes/shard/StageCuts.h"

#include "dialects/loom/Control.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

namespace gridloom {
#define GEN_PASS_DEF_ASSIGNSTAGES
#include "passes/shard/Passes.h.inc"
} // namespace gridloom

namespace {
struct AssignStagesPass : public gridloom::impl::AssignStagesBase<AssignStagesPass> {
  using AssignStagesBase::AssignStagesBase;

  void runOnOperation() override {
    MeshOp mesh = getMesh(getOperation());
    stages = mesh ? mesh.getAxisSize(axis) : 1;
    if (stages > 1)
      getOperation()->setAttr(kStageAxis, StringAttr::get(&getContext(), axis));
    SmallVector<func::FuncOp> functions;
    for (auto func : getOperation().getOps<func::FuncOp>())
      if (!loom::isBody(func))
        functions.push_back(func);
    if (failed(assign(functions)))
      return signalPassFailure();
    for (func::FuncOp func : functions) {
      settle(func);
      // A loop or branch is in one stage.
      loom::forEachBody(func, [](Operation *op, func::FuncOp body) {
        for (Operation &inner : body.front())
          inner.setAttr(kStage, op->getAttr(kStage));
      });
    }
    if (stages > 1)
      placeStates(functions);
  }

private:
  LogicalResult assign(ArrayRef<func::FuncOp> functions);
  LogicalResult cut(ArrayRef<StageProfile> profiles);
  void settle(func::FuncOp func);
  void placeStates(ArrayRef<func::FuncOp> functions);
  void setStage(Operation *op, int64_t stage) {
    op->setAttr(kStage, Builder(op->getContext()).getI64IntegerAttr(stage));
  }

  int64_t stages = 1;
};
} // namespace

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

/// Stages as the model or a strategy file says; what is left open goes with what it reads.
static LogicalResult followGiven(ArrayRef<Operation *> anchored, int64_t stages) {
  SmallVector<int64_t> count(stages, 0);
  for (Operation *op : anchored) {
    int64_t earliest = getEarliestStage(op);
    auto given = op->getAttrOfType<IntegerAttr>(kStage);
    if (given && (given.getInt() < earliest || given.getInt() >= stages))
      return op->emitError("'") << loom::getNodeName(op->getLoc()) << "' is given stage "
                                << given.getInt() << " of " << stages
                                << ", but reads a value of stage " << earliest;
    int64_t stage = given ? given.getInt() : earliest;
    op->setAttr(kStage, Builder(op->getContext()).getI64IntegerAttr(stage));
    ++count[stage];
  }
  for (auto [stage, size] : llvm::enumerate(count))
    if (size == 0)
      return anchored.front()->emitError("stage ")
             << stage << " of " << stages << " is given to no operation";
  return success();
}

/// Refuses a function with fewer operations than stages.
static LogicalResult requireOperations(func::FuncOp func, const StageProfile &profile,
                                       int64_t stages, StringRef axis) {
  if (static_cast<int64_t>(profile.anchored.size()) >= stages)
    return success();
  // The error is about the model, not a node: the function's location is the graph's name.
  InFlightDiagnostic error = emitError(func->getParentOfType<ModuleOp>().getLoc())
                             << "the model cannot be cut into " << stages << " stages: it has "
                             << profile.anchored.size() << " operation"
                             << (profile.anchored.size() == 1 ? "" : "s");
  for (auto [i, op] : llvm::enumerate(profile.anchored))
    error << (i ? ", " : ": ") << "'" << loom::getNodeName(op->getLoc()) << "'";
  return error << "; use a smaller '" << axis << "' axis";
}

/// Cuts all functions at once, since what they share lies in one stage.
LogicalResult AssignStagesPass::cut(ArrayRef<StageProfile> profiles) {
  if (profiles.empty())
    return success();
  std::optional<StageStarts> starts = chooseCuts(profiles, stages);
  if (!starts) {
    // The state that spans most of its function is what stands in the way.
    std::pair<StringAttr, StageProfile::Span> widest;
    const StageProfile *where = nullptr;
    double most = 0;
    for (const StageProfile &profile : profiles)
      for (const auto &state : profile.states) {
        double share = double(state.second.last - state.second.first + 1) / profile.anchored.size();
        if (share > most) {
          most = share;
          widest = state;
          where = &profile;
        }
      }
    if (!where)
      return emitError(getOperation().getLoc())
             << "the specialisations cannot be cut alike into " << stages
             << " stages; use a smaller '" << axis << "' axis";
    auto nameOf = [&](size_t at) { return loom::getNodeName(where->anchored[at]->getLoc()); };
    return emitError(getOperation().getLoc())
           << "no cut into " << stages << " stages leaves every state in one stage; state '"
           << widest.first.getValue() << "' is used from '" << nameOf(widest.second.first)
           << "' to '" << nameOf(widest.second.last) << "'; use a smaller '" << axis << "' axis";
  }
  for (auto [profile, list] : llvm::zip_equal(profiles, *starts))
    for (auto [i, op] : llvm::enumerate(profile.anchored))
      setStage(op, std::distance(list.begin(), llvm::upper_bound(list, i)) - 1);
  return success();
}

LogicalResult AssignStagesPass::assign(ArrayRef<func::FuncOp> functions) {
  std::vector<StageProfile> open;
  Mesh mesh = Mesh::get(getOperation());
  for (func::FuncOp func : functions) {
    StageProfile profile(func, mesh, StringAttr::get(&getContext(), axis));
    if (stages == 1) {
      for (Operation *op : profile.anchored)
        setStage(op, 0);
      continue;
    }
    if (failed(requireOperations(func, profile, stages, axis)))
      return failure();
    bool annotated =
        llvm::any_of(profile.anchored, [](Operation *op) { return op->hasAttr(kStage); });
    if (!annotated)
      open.push_back(std::move(profile));
    else if (failed(followGiven(profile.anchored, stages)))
      return failure();
  }
  return cut(open);
}

/// Floating operations go where they are read, one copy per stage; later ones first, since a
/// floating operation may read another.
void AssignStagesPass::settle(func::FuncOp func) {
  setStage(func.front().getTerminator(), stages - 1);
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
}

/// Writes down which stage keeps each state. A function that only passes a state on has no say.
void AssignStagesPass::placeStates(ArrayRef<func::FuncOp> functions) {
  llvm::DenseMap<StringAttr, Attribute> owners;
  for (func::FuncOp func : functions)
    for (const StateUse &use : getStateUses(func))
      owners.try_emplace(use.state, use.op->getAttr(kStage));
  for (func::FuncOp func : functions)
    for (unsigned i = 0; i < func.getNumArguments(); ++i)
      if (auto state = func.getArgAttrOfType<StringAttr>(i, loom::kState))
        if (Attribute owner = owners.lookup(state))
          func.setArgAttr(i, kStage, owner);
}
