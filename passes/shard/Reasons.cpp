//===- Reasons.cpp - reasons for replicated values ------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/shard/Reasons.h"

#include "dialects/loom/Signature.h"
#include "passes/shard/StrategyWriter.h"
#include "support/Text.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

OriginAttr gridloom::getObstacle(Value weight) {
  if (isa<BlockArgument>(weight))
    return dyn_cast_or_null<OriginAttr>(loom::getArgumentAttr(weight, kObstacle));
  return weight.getDefiningOp()->getAttrOfType<OriginAttr>(kObstacle);
}

void gridloom::setObstacle(Value weight, OriginAttr obstacle) {
  while (auto convert = weight.getDefiningOp<loom::ConvertOp>())
    weight = convert.getInput();
  if (auto argument = dyn_cast<BlockArgument>(weight)) {
    if (auto func = dyn_cast<func::FuncOp>(argument.getOwner()->getParentOp()))
      func.setArgAttr(argument.getArgNumber(), kObstacle, obstacle);
  } else if (auto get = weight.getDefiningOp<loom::GetWeightOp>()) {
    get->setAttr(kObstacle, obstacle);
  }
}

void gridloom::removeObstacles(func::FuncOp func) {
  for (unsigned i = 0; i < func.getNumArguments(); ++i)
    func.removeArgAttr(i, kObstacle);
  func.walk([](loom::GetWeightOp get) { get->removeAttr(kObstacle); });
}

/// The name of a value for messages: the input's or weight's name, else its node's.
static std::string getValueName(Value value) {
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    auto func = cast<func::FuncOp>(argument.getOwner()->getParentOp());
    if (auto name = func.getArgAttrOfType<StringAttr>(argument.getArgNumber(), loom::kName))
      return name.str();
    return "argument " + std::to_string(argument.getArgNumber());
  }
  if (auto weight = value.getDefiningOp<loom::GetWeightOp>())
    return weight.getName().str();
  std::string node = loom::getNodeName(value.getLoc());
  return node.empty() ? value.getDefiningOp()->getName().getStringRef().str() : node;
}

static std::string getNode(Operation *op) {
  std::string node = loom::getNodeName(op->getLoc());
  return "'" + (node.empty() ? op->getName().getStringRef().str() : node) + "'";
}

static std::string toString(ArrayRef<StringAttr> axes) {
  return llvm::join(llvm::map_range(axes, [](StringAttr axis) { return axis.getValue(); }), "+");
}

static Value getTensor(Operation *op, int64_t index) {
  int64_t operands = op->getNumOperands();
  return index < operands ? op->getOperand(index) : Value(op->getResult(index - operands));
}

namespace {
/// Finds the operation next to a value that keeps it whole.
class Explainer {
public:
  explicit Explainer(const Propagation &state);

  bool isWhole(Value value) const {
    return llvm::none_of(state.lookup(value).sharding.dims, [&](const Sharding::Dim &dim) {
      return llvm::any_of(dim.axes, [&](StringAttr axis) { return isSpatial(axis); });
    });
  }
  Propagation::Reason explain(Value value) const;

private:
  /// The reason an operation gives for one of its tensors, with its rank: 0 is best. `$` stands for
  /// the operation's node.
  using Reason = std::pair<int, std::string>;

  bool isSpatial(StringAttr axis) const {
    return llvm::any_of(axes, [&](const Mesh::Axis &known) { return known.name == axis; });
  }
  AxisList keepSpatial(ArrayRef<StringAttr> list) const {
    return AxisList(
        llvm::make_filter_range(list, [&](StringAttr axis) { return isSpatial(axis); }));
  }
  std::string explainSize(Value value) const;
  Reason explainAt(Operation *op, int64_t index) const;
  Reason explainFactors(Operation *op, int64_t index, const FactorSplits &splits) const;

  const Propagation &state;
  SmallVector<Mesh::Axis> axes; ///< that split values
  std::string otherAxes;
};
} // namespace

static constexpr int kNoReason = 9;
static constexpr llvm::StringLiteral kNothingAsks = "nothing asks for a split";

Explainer::Explainer(const Propagation &state) : state(state) {
  StringAttr stageAxis;
  if (!state.getOperations().empty())
    stageAxis =
        state.getOperations().front()->getParentOfType<ModuleOp>()->getAttrOfType<StringAttr>(
            kStageAxis);
  for (const Mesh::Axis &axis : state.getMesh().getAxes())
    if (axis.name == stageAxis)
      otherAxes = axis.name.str();
    else if (axis.size > 1 && axis.name.getValue() != MeshOp::kMicroAxis)
      axes.push_back(axis);
}

/// Why the size of the value, or the mesh, rules out a split; "" if they do not.
std::string Explainer::explainSize(Value value) const {
  auto type = cast<RankedTensorType>(value.getType());
  if (axes.empty())
    return otherAxes.empty() ? "the mesh has one device"
                             : "the mesh has axis '" + otherAxes + "' alone, for stages";
  if (type.getNumElements() == 1)
    return "it is one element";
  if (type.getNumElements() == 0)
    return "it is empty";
  const auto *least = llvm::min_element(
      axes, [](const Mesh::Axis &a, const Mesh::Axis &b) { return a.size < b.size; });
  int64_t largest = *llvm::max_element(type.getShape());
  if (largest < least->size)
    return llvm::formatv("its largest dimension has {0} elements, fewer than the {1} devices of "
                         "'{2}'",
                         largest, least->size, least->name.getValue());
  return "";
}

Explainer::Reason Explainer::explainFactors(Operation *op, int64_t index,
                                            const FactorSplits &splits) const {
  const ShardingRule &rule = state.getRule(op);
  AxisList cut;     // axes that split the operation, along other dimensions than the tensor's
  AxisList partial; // those of them that leave partial results
  for (auto [factor, list] : llvm::enumerate(splits.axes)) {
    AxisList here = keepSpatial(list);
    cut.append(here);
    if (rule.kinds[factor] == FactorKind::Reduction)
      partial.append(here);
  }
  bool isResult = index >= static_cast<int64_t>(op->getNumOperands());
  if (isResult && !partial.empty())
    return {3,
            "it is the sum of partial values of the devices of '" + toString(partial) + "' at $"};
  // Another tensor of the operation is split, and this one has a dimension that is needed whole.
  bool anySplit = !cut.empty();
  for (int64_t other = 0; other < static_cast<int64_t>(rule.tensors.size()); ++other)
    anySplit |= !isWhole(getTensor(op, other));
  if (!anySplit)
    return {kNoReason, ""};
  SmallVector<std::string> needed;
  bool hasOther = false;
  for (auto [dim, factors] : llvm::enumerate(rule.tensors[index]))
    for (int64_t factor : factors) {
      if (rule.sizes[factor] == 1)
        continue;
      if (rule.kinds[factor] == FactorKind::NeedReplication)
        needed.push_back(std::to_string(dim));
      else
        hasOther = true;
    }
  if (!needed.empty() && (!hasOther || cut.empty()))
    return {4, "$ needs all of its dimension " + llvm::join(needed, ", ")};
  if (!cut.empty())
    return {5, "'" + toString(cut) + "' splits dimensions of $ that this value does not have"};
  return {6, "$ gathers its operands"};
}

Explainer::Reason Explainer::explainAt(Operation *op, int64_t index) const {
  const ShardingRule &rule = state.getRule(op);
  SmallVector<FactorConflict> conflicts;
  FactorSplits splits = op->hasAttr(kSplits)
                            ? state.getSplits(op)
                            : mergeFactors(rule, state.getShardings(op), getTensorTypes(op),
                                           state.getMesh(), &conflicts);
  auto type = cast<RankedTensorType>(getTensor(op, index).getType());
  // The operation asks for a split that the value could not take.
  Sharding target = project(rule, index, splits, state.getMesh());
  for (auto [number, dim] : llvm::enumerate(target.dims)) {
    AxisList wanted = keepSpatial(dim.axes);
    if (wanted.empty())
      continue;
    int64_t parts = state.getMesh().getSize(dim.axes);
    if (type.getDimSize(number) < parts * dim.granule)
      return {0, llvm::formatv("its dimension {0} of {1} is smaller than the {2} devices of '{3}' "
                               "that split $",
                               number, type.getDimSize(number), parts, toString(wanted))};
    return {1, "it cannot be cut as '" + toString(wanted) + "' splits $"};
  }
  for (const FactorConflict &conflict : conflicts)
    for (ArrayRef<int64_t> factors : rule.tensors[index])
      if (llvm::is_contained(factors, conflict.factor) && !keepSpatial(conflict.wanted).empty())
        return {2, "the split over '" + toString(conflict.wanted) + "' that '" +
                       getValueName(getTensor(op, conflict.loser)) + "' asks for gives way at $"};
  return explainFactors(op, index, splits);
}

Propagation::Reason Explainer::explain(Value value) const {
  using Basis = Propagation::Reason::Basis;
  std::string reason = explainSize(value);
  if (const std::string &given = state.lookup(value).given; reason.empty() && !given.empty())
    reason = "asked for by " + given;
  if (!reason.empty())
    return {Basis::Value, reason, reason, {}};
  // If a strategy tried to split the value, its obstacle is the better reason.
  if (OriginAttr obstacle = getObstacle(value)) {
    StringRef why = obstacle.getReplicated();
    // The same node of every layer makes one kind.
    return {Basis::Strategy, why.str(), why.split(" for '").first.str(), obstacle.getTried()};
  }
  Reason best = {kNoReason, ""};
  std::string node;
  auto consider = [&](Operation *op, int64_t index) {
    if (!isa<ShardingRuleInterface>(op))
      return;
    Reason found = explainAt(op, index);
    if (found.first >= best.first)
      return;
    best = std::move(found);
    node = getNode(op);
  };
  if (auto result = dyn_cast<OpResult>(value))
    consider(result.getOwner(), result.getOwner()->getNumOperands() + result.getResultNumber());
  for (OpOperand &use : value.getUses())
    consider(use.getOwner(), use.getOperandNumber());
  if (node.empty())
    return {Basis::Nothing, kNothingAsks.str(), kNothingAsks.str(), {}};
  auto fill = [&](StringRef name) {
    auto [before, after] = StringRef(best.second).split('$');
    return (before + name + after).str();
  };
  return {Basis::Operation, fill(node), fill("its node"), {}};
}

/// Gives values without a reason of their own the reason of the nearest value that has one: they
/// are whole because what they are computed from or with is.
static void spreadReasons(const Propagation &state, Propagation::Reasons &reasons) {
  using Basis = Propagation::Reason::Basis;
  SmallVector<std::pair<Value, Value>> queue; // value, and the one its reason is from
  state.forEachValue([&](Value value) {
    auto reason = reasons.find(value);
    if (reason != reasons.end() &&
        (reason->second.basis == Basis::Operation || reason->second.basis == Basis::Strategy))
      queue.push_back({value, value});
  });
  for (size_t next = 0; next < queue.size(); ++next) {
    auto [value, source] = queue[next];
    SmallVector<Operation *> around(value.getUsers());
    if (Operation *op = value.getDefiningOp())
      around.push_back(op);
    for (Operation *op : around) {
      if (!isa<ShardingRuleInterface>(op))
        continue;
      for (Value other : llvm::concat<Value>(llvm::to_vector_of<Value>(op->getOperands()),
                                             llvm::to_vector_of<Value>(op->getResults()))) {
        auto reason = reasons.find(other);
        if (reason == reasons.end() || reason->second.basis != Basis::Nothing)
          continue;
        const Propagation::Reason &why = reasons.find(source)->second;
        reason->second = {Basis::Neighbour,
                          "like '" + getValueName(source) +
                              "', computed from or with it: " + why.text,
                          "like a value computed from or with it: " + why.kind,
                          {}};
        queue.push_back({other, source});
      }
    }
  }
}

Propagation::Reasons gridloom::explainReplicated(const Propagation &state) {
  Explainer explainer(state);
  Propagation::Reasons reasons;
  state.forEachValue([&](Value value) {
    if (explainer.isWhole(value))
      reasons[value] = explainer.explain(value);
  });
  spreadReasons(state, reasons);
  return reasons;
}

Propagation::Reasons gridloom::noteObstacles(const Propagation &state) {
  Explainer explainer(state);
  Propagation::Reasons reasons;
  state.forEachValue([&](Value value) {
    if (!explainer.isWhole(value))
      return;
    reasons[value] =
        getObstacle(value)
            ? explainer.explain(value)
            : Propagation::Reason{
                  Propagation::Reason::Basis::Nothing, kNothingAsks.str(), kNothingAsks.str(), {}};
  });
  return reasons;
}

void gridloom::remarkReplicated(const Propagation &state, const Propagation::Reasons &reasons) {
  using Basis = Propagation::Reason::Basis;
  llvm::MapVector<StringRef, SmallVector<Value>> byReason;
  state.forEachValue([&](Value value) {
    if (auto reason = reasons.find(value); reason != reasons.end())
      byReason[reason->second.kind].push_back(value);
  });
  constexpr size_t kNamed = 3;
  for (auto &[reason, values] : byReason) {
    SmallVector<std::string> names;
    llvm::StringSet<> known;
    for (Value value : values)
      if (std::string name = getValueName(value); known.insert(name).second)
        names.push_back(std::move(name));
    std::string text = "'" + llvm::join(ArrayRef(names).take_front(kNamed), "', '") + "'";
    if (names.size() > kNamed)
      text += " and " + std::to_string(names.size() - kNamed) + " more";
    // The first one's reason names the operation that stops it.
    StringRef first = reasons.find(values.front())->second.text;
    Basis basis = reasons.find(values.front())->second.basis;
    bool isNamed = basis == Basis::Neighbour || basis == Basis::Strategy;
    bool isOnly = llvm::all_of(
        values, [&](Value value) { return reasons.find(value)->second.text == first; });
    mlir::emitRemark(state.getLoc()) << text << ": replicated: " << (isNamed ? first : reason)
                                     << (isNamed && !isOnly ? "; the others likewise" : "");
  }
}

void gridloom::remarkConflicts(const Propagation &state) {
  for (Operation *op : state.getOperations()) {
    if (op->hasAttr(kSplits))
      continue; // given, not chosen by cost
    SmallVector<FactorConflict> conflicts;
    SmallVector<Sharding> shardings = state.getShardings(op);
    mergeFactors(state.getRule(op), shardings, getTensorTypes(op), state.getMesh(), &conflicts);
    SmallVector<Sharding> required = state.getRequired(op);
    for (const FactorConflict &conflict : conflicts) {
      Value loser = getTensor(op, conflict.loser);
      auto print = [](double bytes) { return formatBytes(static_cast<uint64_t>(bytes)); };
      op->emitRemark() << "shardings disagree at " << getNode(op) << ": '" << getValueName(loser)
                       << "' is " << printSharding(shardings[conflict.loser]) << " ("
                       << state.lookup(loser).getOrigin(op->getContext()).describe()
                       << "), used as " << printSharding(required[conflict.loser])
                       << "; a device sends " << print(conflict.sent) << ", against "
                       << print(conflict.otherwise) << " the other way";
    }
  }
}
