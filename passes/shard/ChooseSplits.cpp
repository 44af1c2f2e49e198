//===- ChooseSplits.cpp - how every operation is split ----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/dist/RequireMesh.h"
#include "dialects/dist/Splits.h"
#include "passes/shard/Shard.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

namespace gridloom {
#define GEN_PASS_DEF_CHOOSESPLITS
#include "passes/shard/Passes.h.inc"
} // namespace gridloom

namespace {
/// Chooses for one function.
class Chooser {
public:
  Chooser(func::FuncOp func, const Mesh &mesh) : func(func), mesh(mesh) {}
  LogicalResult run();

private:
  /// How an operation is split, and the shardings of its operands and results then.
  struct Choice {
    ShardingRule rule;
    OpSplits splits;
    SmallVector<Sharding> shardings;
    /// Whether keeping its operands partial is a guess, which their other readers may refute.
    bool isTentative = false;
  };

  LogicalResult choose(Operation *op);
  AxisList findDeclared(Operation *op) const;
  LogicalResult verifyDeclared(Operation *op, ArrayRef<StringAttr> axes) const;
  AxisList guessUnreduced(Operation *op, const Choice &choice) const;
  bool isReadUnreduced(Value value, ArrayRef<StringAttr> axes) const;
  void withdrawGuesses();
  void declare(Value value) const;
  const Sharding &getMade(Value value) const { return made.find(value)->second; }
  void setUnreduced(Operation *op, Choice &choice, AxisList axes);
  RankedTensorType getLocalType(Value value, const Sharding &sharding) const {
    return dist::getLocalType(cast<RankedTensorType>(value.getType()), sharding, mesh);
  }

  func::FuncOp func;
  const Mesh &mesh;
  llvm::MapVector<Operation *, Choice> choices;
  llvm::DenseMap<Value, Sharding> made;
};

struct ChooseSplitsPass : public gridloom::impl::ChooseSplitsBase<ChooseSplitsPass> {
  using ChooseSplitsBase::ChooseSplitsBase;

  void runOnOperation() override {
    MeshOp mesh = requireMesh(getOperation());
    if (!mesh)
      return signalPassFailure();
    for (auto func : getOperation().getOps<func::FuncOp>())
      if (failed(Chooser(func, Mesh(mesh)).run()))
        return signalPassFailure();
  }
};
} // namespace

/// The axes over which an operand is declared unreduced, which all its readers have to accept.
AxisList Chooser::findDeclared(Operation *op) const {
  for (Value operand : op->getOperands())
    if (ShardingAttr sharding = getSharding(operand);
        operand.getDefiningOp() && sharding && !sharding.getUnreduced().empty())
      return AxisList(sharding.getUnreduced().begin(), sharding.getUnreduced().end());
  return {};
}

/// A linear operation that reads a declared partial sum needs all its operands to be partial sums.
LogicalResult Chooser::verifyDeclared(Operation *op, ArrayRef<StringAttr> axes) const {
  auto isDeclared = [](Value operand) {
    ShardingAttr sharding = getSharding(operand);
    return operand.getDefiningOp() && sharding && !sharding.getUnreduced().empty();
  };
  auto whole = llvm::find_if(op->getOperands(), [&](Value operand) {
    return !isDeclared(operand) && getMade(operand).unreduced.empty();
  });
  if (axes.empty() || whole == op->getOperands().end())
    return success();
  auto describe = [](Value operand) -> std::string {
    Operation *maker = operand.getDefiningOp();
    std::string name = maker ? loom::getNodeName(maker->getLoc()) : "";
    return !name.empty() ? "'" + name + "'"
           : maker       ? maker->getName().getStringRef().str()
                         : "an input";
  };
  return op->emitOpError("needs all of ")
         << describe(*llvm::find_if(op->getOperands(), isDeclared))
         << ", which is declared unreduced over '" << axes.front().getValue() << "': it also reads "
         << describe(*whole)
         << ", which is no partial sum; declare the former without {unreduced: ...}";
}

/// Axes over which all operands are partial sums that may stay so through a linear operation: only
/// if its result is no larger, so that reducing later moves no more than came in. Slices of a value
/// with several readers would be reduced one by one.
AxisList Chooser::guessUnreduced(Operation *op, const Choice &choice) const {
  if (!cast<ShardingRuleInterface>(op).isLinear() || op->getNumOperands() == 0 ||
      op->getNumResults() != 1 || (isa<loom::SliceOp>(op) && !op->getOperand(0).hasOneUse()))
    return {};
  const Sharding &first = getMade(op->getOperand(0));
  if (first.unreduced.empty() || first.reduction != ReductionKind::Sum)
    return {};
  int64_t incoming = 0;
  for (auto [operand, need] : llvm::zip_first(op->getOperands(), choice.shardings)) {
    const Sharding &there = getMade(operand);
    if (there.unreduced != first.unreduced || there.reduction != first.reduction ||
        there.dims != need.dims)
      return {};
    // A value kept split over such an axis is reduced into these parts (reduce_scatter).
    ShardingAttr kept = getSharding(operand);
    if (kept && llvm::any_of(first.unreduced, [keeps = Sharding(kept)](StringAttr axis) {
          return keeps.usesAxis(axis);
        }))
      return {};
    incoming += loom::getByteSize(getLocalType(operand, there));
  }
  for (const AxisList &list : choice.splits.factors.axes)
    for (StringAttr axis : list)
      if (llvm::is_contained(first.unreduced, axis))
        return {};
  RankedTensorType result = getLocalType(op->getResult(0), choice.shardings.back());
  return loom::getByteSize(result) <= incoming ? first.unreduced : AxisList{};
}

void Chooser::setUnreduced(Operation *op, Choice &choice, AxisList axes) {
  choice.splits.unreduced = std::move(axes);
  choice.shardings = getSplitShardings(op, choice.rule, choice.splits, mesh);
  for (auto [result, sharding] :
       llvm::zip_equal(op->getResults(), ArrayRef(choice.shardings).take_back(op->getNumResults())))
    made[result] = sharding;
}

LogicalResult Chooser::choose(Operation *op) {
  auto ruled = dyn_cast<ShardingRuleInterface>(op);
  if (!ruled)
    return op->emitOpError("has no sharding rule and cannot be split");
  Choice choice;
  choice.rule = ruled.getShardingRule();
  if (op->hasAttr(kSplits)) {
    FailureOr<OpSplits> given = readSplits(op, choice.rule, mesh);
    if (failed(given))
      return failure();
    choice.splits = std::move(*given);
    setUnreduced(op, choice, choice.splits.unreduced);
  } else {
    FailureOr<FactorSplits> implied = getImpliedSplits(op, choice.rule, mesh);
    if (failed(implied))
      return failure();
    choice.splits.factors = std::move(*implied);
    AxisList unreduced = ruled.isLinear() ? findDeclared(op) : AxisList();
    if (failed(verifyDeclared(op, unreduced)))
      return failure();
    setUnreduced(op, choice, unreduced);
    if (unreduced.empty())
      if (AxisList guess = guessUnreduced(op, choice); !guess.empty()) {
        choice.isTentative = true;
        setUnreduced(op, choice, guess);
      }
  }
  choices.insert({op, std::move(choice)});
  return success();
}

/// Whether all readers of a value take it as partial sums over the axes.
bool Chooser::isReadUnreduced(Value value, ArrayRef<StringAttr> axes) const {
  return llvm::all_of(value.getUsers(), [&](Operation *user) {
    const auto *choice = choices.find(user);
    return choice != choices.end() && llvm::equal(choice->second.splits.unreduced, axes);
  });
}

/// A value that one reader needs whole is reduced once, for all of them.
void Chooser::withdrawGuesses() {
  for (bool changed = true; changed;) {
    changed = false;
    for (auto &[op, choice] : choices) {
      ArrayRef<StringAttr> axes = choice.splits.unreduced;
      auto stays = [&](Value operand) {
        return llvm::equal(getMade(operand).unreduced, axes) && isReadUnreduced(operand, axes);
      };
      if (!choice.isTentative || llvm::all_of(op->getOperands(), stays))
        continue;
      choice.isTentative = false;
      setUnreduced(op, choice, {});
      changed = true;
    }
  }
}

/// Declares a value unreduced if all its readers take it as partial sums.
void Chooser::declare(Value value) const {
  ShardingAttr attr = getSharding(value);
  if (!attr || value.use_empty() || !attr.getUnreduced().empty())
    return;
  const auto *reader = choices.find(*value.getUsers().begin());
  if (reader == choices.end() || reader->second.splits.unreduced.empty() ||
      !isReadUnreduced(value, reader->second.splits.unreduced))
    return;
  Sharding sharding(attr);
  sharding.unreduced = reader->second.splits.unreduced;
  setSharding(value, sharding.getAttr(mesh), getOrigin(value));
}

LogicalResult Chooser::run() {
  for (BlockArgument argument : func.getArguments()) {
    ShardingAttr sharding = getGivenSharding(argument);
    if (!sharding)
      return func.emitOpError("argument ")
             << argument.getArgNumber() << " has no sharding; run dist-propagate first";
    made[argument] = Sharding(sharding);
  }
  for (Operation &op : func.front().without_terminator())
    if (failed(choose(&op)))
      return failure();
  withdrawGuesses();
  for (auto &[op, choice] : choices) {
    op->setAttr(kSplits, choice.splits.getAttr(op->getContext()));
    llvm::for_each(op->getResults(), [&](Value result) { declare(result); });
  }
  return success();
}
