//===- StageAssignment.cpp - the stage of every operation -----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/shard/StageAssignment.h"

#include "dialects/loom/Control.h"
#include "dialects/loom/Signature.h"
#include "dialects/loom/Training.h"
#include "dialects/loom/WeightUse.h"

#include "llvm/ADT/BitVector.h"

#include <map>

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

/// The operations with a stage of their own, in order.
static SmallVector<Operation *> listAnchored(func::FuncOp func) {
  SmallVector<Operation *> anchored;
  for (Operation &op : func.front().without_terminator())
    if (!isFloating(&op))
      anchored.push_back(&op);
  return anchored;
}

StageAssignment::StageAssignment(ModuleOp module, StringAttr axis) : module(module), axis(axis) {
  MeshOp mesh = getMesh(module);
  stages = mesh ? mesh.getAxisSize(axis.getValue()) : 1;
  if (stages > 1)
    module->setAttr(kStageAxis, axis);
  for (auto func : module.getOps<func::FuncOp>()) {
    if (loom::isBody(func))
      continue;
    bool isGiven = stages > 1 && llvm::any_of(listAnchored(func),
                                              [](Operation *op) { return op->hasAttr(kStage); });
    if (stages > 1 && loom::isTrainStep(func))
      steps.push_back(func);
    else
      (isGiven ? given : free).push_back(func);
  }
  for (func::FuncOp step : steps)
    for (Operation *op : listAnchored(step))
      if (auto stage = op->getAttrOfType<IntegerAttr>(kStage))
        givenInSteps[op] = stage.getInt();
  isAllFree = given.empty() && givenInSteps.empty();
}

void StageAssignment::setStage(Operation *op, int64_t stage) {
  op->setAttr(kStage, Builder(op->getContext()).getI64IntegerAttr(stage));
}

/// The latest stage that the operation reads from, also through floating operations.
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

/// Applies given stages; other operations get the latest stage that they read from.
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
LogicalResult StageAssignment::requireOperations(ArrayRef<Operation *> anchored) {
  if (stages == 1 || static_cast<int64_t>(anchored.size()) >= stages)
    return success();
  // The error is about the model, not a node: the module's location is the graph's name.
  InFlightDiagnostic error = emitError(module.getLoc())
                             << "the model cannot be cut into " << stages << " stages: it has "
                             << anchored.size() << " operation"
                             << (anchored.size() == 1 ? "" : "s");
  constexpr size_t kMostNamed = 6;
  if (anchored.size() <= kMostNamed)
    for (auto [i, op] : llvm::enumerate(anchored))
      error << (i ? ", " : ": ") << "'" << loom::getNodeName(op->getLoc()) << "'";
  return error << "; use a smaller '" << axis.getValue() << "' axis";
}

static bool isParameter(func::FuncOp func, StringAttr state) {
  return llvm::any_of(func.getArguments(), [&](BlockArgument argument) {
    auto role = loom::getArgumentAttr(argument, loom::kRole);
    return loom::getArgumentAttr(argument, loom::kState) == state && role &&
           cast<StringAttr>(role) == loom::kParameter;
  });
}

/// "weight 'w'" of one that is trained, "state 's'" of others.
static std::string nameState(func::FuncOp func, StringAttr state) {
  return ((isParameter(func, state) ? "weight '" : "state '") + state.getValue() + "'").str();
}

/// What lets nodes that read a weight be in two stages.
static std::string adviseApart(func::FuncOp func, StringAttr state) {
  bool isTied = llvm::any_of(func.getArguments(), [&](BlockArgument argument) {
    return loom::getArgumentAttr(argument, loom::kState) == state &&
           loom::getArgumentAttr(argument, loom::kTied);
  });
  return isTied ? "leave out the --tie that makes it one"
                : "export the model with a weight for each of them";
}

namespace {
/// The state that spans most of its function.
struct WidestState {
  StringAttr name;
  StageProfile::Span span = {0, 0};
  size_t profile = 0;
  double share = 0; ///< of the function's operations

  explicit WidestState(ArrayRef<StageProfile> profiles) {
    for (auto [i, each] : llvm::enumerate(profiles))
      for (const auto &[state, own] : each.states) {
        double part = double(own.last - own.first + 1) / double(each.anchored.size());
        if (part <= share)
          continue;
        share = part;
        name = state;
        span = own;
        profile = i;
      }
  }
};
} // namespace

static std::string getNodeAt(const StageProfile &profile, size_t position) {
  return loom::getNodeName(profile.anchored[position]->getLoc());
}

/// Whether a stage of what is trained would have no weights, since nodes far from each other read
/// one: next to no work would be left for it.
bool StageAssignment::leavesIdle(ArrayRef<StageProfile> profiles, const StageStarts &starts) const {
  constexpr double kFar = 0.5;
  WidestState widest(profiles);
  if (steps.empty() || widest.share < kFar)
    return false;
  const StageProfile &longest = profiles[widest.profile];
  if (getNodeAt(longest, widest.span.first) == getNodeAt(longest, widest.span.last))
    return false;
  llvm::BitVector used(stages);
  for (auto [profile, list] : llvm::zip_equal(profiles, starts))
    for (const auto &[state, span] : profile.states)
      used.set(std::distance(list.begin(), llvm::upper_bound(list, span.first)) - 1);
  return !used.all();
}

void StageAssignment::reportNoCut(ArrayRef<StageProfile> profiles, StringRef why) {
  WidestState widest(profiles);
  if (!widest.name) {
    emitError(module.getLoc()) << "the specialisations cannot be cut alike into " << stages
                               << " stages; use a smaller '" << axis.getValue() << "' axis";
    return;
  }
  const StageProfile &profile = profiles[widest.profile];
  func::FuncOp func = free[widest.profile];
  InFlightDiagnostic error = emitError(module.getLoc())
                             << "no cut into " << stages << " stages " << why << "; "
                             << nameState(func, widest.name) << " is used from '"
                             << getNodeAt(profile, widest.span.first) << "' to '"
                             << getNodeAt(profile, widest.span.last) << "'";
  if (isParameter(func, widest.name))
    error << " and lies in one stage with all between them: " << adviseApart(func, widest.name)
          << ", or use axes of data (with --zero 3 each device keeps a part of the weights) or of "
             "tensor parallelism in place of '"
          << axis.getValue() << "'";
  else
    error << "; use a smaller '" << axis.getValue() << "' axis";
}

FailureOr<StageStarts> StageAssignment::choose(const StageCosts &costs) {
  for (const SmallVector<func::FuncOp> *functions : {&given, &free})
    for (func::FuncOp func : *functions)
      if (failed(requireOperations(listAnchored(func))))
        return failure();
  if (stages == 1 || free.empty())
    return StageStarts(free.size(), SmallVector<size_t>{0});
  Mesh mesh = Mesh::get(module);
  std::vector<StageProfile> profiles;
  for (func::FuncOp func : free)
    profiles.emplace_back(func, mesh, axis, costs);
  std::optional<StageStarts> starts = chooseCuts(profiles, stages);
  if (starts && !leavesIdle(profiles, *starts))
    return *starts;
  reportNoCut(profiles, starts ? "gives each of them weights" : "leaves every state in one stage");
  return failure();
}

/// That all that uses a state is in one stage, where stages were given.
LogicalResult StageAssignment::requireOneStage() {
  llvm::DenseMap<StringAttr, Operation *> known;
  auto stageOf = [](Operation *op) { return op->getAttrOfType<IntegerAttr>(kStage).getInt(); };
  for (const SmallVector<func::FuncOp> *functions : {&given, &free, &steps})
    for (func::FuncOp func : *functions)
      for (const StateUse &use : getStateUses(func)) {
        Operation *op = use.op, *other = known.try_emplace(use.state, op).first->second;
        if (stageOf(op) == stageOf(other))
          continue;
        if (stageOf(op) < stageOf(other))
          std::swap(op, other);
        InFlightDiagnostic error = op->emitError("uses ")
                                   << nameState(func, use.state) << " in stage " << stageOf(op)
                                   << ", and '" << loom::getNodeName(other->getLoc())
                                   << "' uses it in stage " << stageOf(other)
                                   << "; it lies in one stage: give both nodes the same";
        if (isParameter(func, use.state) && op->getParentOp() == other->getParentOp())
          error << ", or " << adviseApart(func, use.state);
        return error;
      }
  return success();
}

LogicalResult StageAssignment::apply(const StageStarts &starts) {
  for (auto [copy, original] : llvm::reverse(copies)) {
    copy->replaceAllUsesWith(original);
    copy->erase();
  }
  copies.clear();
  for (func::FuncOp func : given)
    if (failed(followGiven(listAnchored(func), stages)))
      return failure();
  // All functions are cut at once, since what they share lies in one stage.
  for (auto [func, list] : llvm::zip_equal(free, starts))
    for (auto [i, op] : llvm::enumerate(listAnchored(func)))
      setStage(op, std::distance(list.begin(), llvm::upper_bound(list, i)) - 1);
  for (SmallVector<func::FuncOp> *functions : {&given, &free})
    for (func::FuncOp func : *functions) {
      settle(func);
      // A loop or branch is in one stage, with its bodies.
      loom::forEachBody(func, [](Operation *op, func::FuncOp body) {
        for (Operation &inner : body.front())
          inner.setAttr(kStage, op->getAttr(kStage));
      });
    }
  // Training steps follow when all of the model has its stages.
  TrainStages training(llvm::to_vector(llvm::concat<func::FuncOp>(given, free)), stages);
  for (func::FuncOp step : steps) {
    training.place(step, givenInSteps);
    settle(step);
  }
  if (stages > 1 && failed(requireOneStage()))
    return failure();
  if (stages > 1)
    placeStates(steps.empty() ? TrainStages::Owners() : training.getOwners());
  return success();
}

/// Moves floating operations to where they are read, one copy per stage, in the order of the
/// stages; later operations first, since one may read another.
void StageAssignment::settle(func::FuncOp func) {
  setStage(func.front().getTerminator(), stages - 1);
  SmallVector<Operation *> floating;
  for (Operation &op : func.front().without_terminator())
    if (isFloating(&op))
      floating.push_back(&op);
  for (Operation *op : llvm::reverse(floating)) {
    // By stage: names and choices depend on the order of the copies, and the order of uses differs
    // if stages have been cut before.
    std::map<int64_t, SmallVector<OpOperand *>> uses;
    for (OpOperand &use : op->getUses())
      uses[use.getOwner()->getAttrOfType<IntegerAttr>(kStage).getInt()].push_back(&use);
    if (uses.empty())
      setStage(op, 0);
    OpBuilder builder(op->getContext());
    builder.setInsertionPointAfter(op);
    for (const auto &[stage, readers] : uses) {
      bool isFirst = stage == uses.begin()->first;
      Operation *copy = isFirst ? op : builder.clone(*op);
      if (!isFirst)
        copies.push_back({copy, op});
      setStage(copy, stage);
      for (OpOperand *use : readers)
        use->set(copy->getResult(0));
    }
  }
}

/// Records which stage keeps each state. A function that only passes a state on does not count.
void StageAssignment::placeStates(TrainStages::Owners owners) {
  Builder builder(module.getContext());
  auto functions = llvm::make_filter_range(module.getOps<func::FuncOp>(),
                                           [](func::FuncOp func) { return !loom::isBody(func); });
  for (func::FuncOp func : functions)
    for (const StateUse &use : getStateUses(func))
      owners.try_emplace(use.state, use.op->getAttrOfType<IntegerAttr>(kStage).getInt());
  for (func::FuncOp func : functions)
    for (unsigned i = 0; i < func.getNumArguments(); ++i)
      if (auto state = func.getArgAttrOfType<StringAttr>(i, loom::kState))
        if (auto owner = owners.find(state); owner != owners.end())
          func.setArgAttr(i, kStage, builder.getI64IntegerAttr(owner->second));
}
