//===- RepeatedLayers.cpp - equal layers of a program -----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/planner/RepeatedLayers.h"

#include "dialects/loom/Control.h"
#include "dialects/loom/Training.h"

#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace gridloom;

/// The most distances between like operations that are tried as the length of a layer.
static constexpr size_t kMostPeriods = 8;

/// Operations without operands, such as constants and weights, are ignored: where they are does not
/// matter.
static bool isLeaf(Operation *op) { return op->getNumOperands() == 0; }

static SmallVector<Operation *> listOperations(func::FuncOp func) {
  SmallVector<Operation *> operations;
  for (Operation &op : func.front().without_terminator())
    if (!isLeaf(&op))
      operations.push_back(&op);
  return operations;
}

/// The attributes without the name of a weight or parameter.
static DictionaryAttr getProperties(Operation *op) {
  auto weight = dyn_cast<loom::GetWeightOp>(op);
  if (!weight && !op->hasAttr(loom::kGradientOf) && !op->hasAttr(loom::kAccumulates))
    return op->getAttrDictionary();
  NamedAttrList attributes(op->getAttrDictionary());
  attributes.erase(loom::kGradientOf);
  attributes.erase(loom::kAccumulates);
  if (weight)
    attributes.erase(weight.getNameAttrName());
  return attributes.getDictionary(op->getContext());
}

namespace {
/// Compares operations of a function with those a period later.
class Comparison {
public:
  explicit Comparison(func::FuncOp func) : operations(listOperations(func)) {
    for (auto [i, op] : llvm::enumerate(operations)) {
      position[op] = i;
      kinds.push_back(llvm::hash_combine(op->getName(), getProperties(op),
                                         llvm::hash_combine_range(op->getOperandTypes()),
                                         llvm::hash_combine_range(op->getResultTypes())));
    }
  }
  ArrayRef<Operation *> getOperations() const { return operations; }
  SmallVector<size_t> listPeriods() const;
  /// The first operation and the length of the longest stretch in which each operation is like the
  /// one a period later.
  std::pair<size_t, size_t> findStretch(size_t period) const;

private:
  bool areAlike(size_t index, size_t period) const;
  bool areAlike(Value first, Value second, size_t period) const;

  SmallVector<Operation *> operations;
  llvm::DenseMap<Operation *, size_t> position;
  std::vector<size_t> kinds; ///< hashes
};
} // namespace

/// The most common distances from operations to the next of their kind.
SmallVector<size_t> Comparison::listPeriods() const {
  llvm::DenseMap<size_t, size_t> last;
  llvm::MapVector<size_t, size_t> counts; // by distance
  for (auto [i, kind] : llvm::enumerate(kinds)) {
    auto [entry, isNew] = last.try_emplace(kind, i);
    if (!isNew)
      ++counts[i - std::exchange(entry->second, i)];
  }
  auto byCount = counts.takeVector();
  llvm::stable_sort(byCount, [](const auto &a, const auto &b) { return a.second > b.second; });
  SmallVector<size_t> periods;
  for (auto [period, times] : ArrayRef(byCount).take_front(kMostPeriods))
    periods.push_back(period);
  return periods;
}

bool Comparison::areAlike(Value first, Value second, size_t period) const {
  if (first.getType() != second.getType())
    return false;
  Operation *a = first.getDefiningOp(), *b = second.getDefiningOp();
  if (!a || !b)
    return !a && !b;
  if (isLeaf(a) || isLeaf(b))
    return a->getName() == b->getName() && getProperties(a) == getProperties(b);
  if (first == second) // read by all layers
    return true;
  return cast<OpResult>(first).getResultNumber() == cast<OpResult>(second).getResultNumber() &&
         position.lookup(b) == position.lookup(a) + period;
}

bool Comparison::areAlike(size_t index, size_t period) const {
  Operation *first = operations[index], *second = operations[index + period];
  return kinds[index] == kinds[index + period] && first->getName() == second->getName() &&
         getProperties(first) == getProperties(second) &&
         first->getResultTypes() == second->getResultTypes() &&
         first->getNumOperands() == second->getNumOperands() &&
         llvm::all_of(llvm::zip(first->getOperands(), second->getOperands()), [&](auto pair) {
           return areAlike(std::get<0>(pair), std::get<1>(pair), period);
         });
}

std::pair<size_t, size_t> Comparison::findStretch(size_t period) const {
  std::pair<size_t, size_t> longest = {0, 0};
  size_t begin = 0;
  for (size_t i = 0; i + period < operations.size(); ++i) {
    if (!areAlike(i, period))
      begin = i + 1;
    else if (i + 1 - begin > longest.second)
      longest = {begin, i + 1 - begin};
  }
  return longest;
}

std::optional<Layers> Layers::find(ModuleOp module) {
  Layers layers(module);
  for (auto func : module.getOps<func::FuncOp>()) {
    layers.chains.emplace_back();
    if (loom::isBody(func))
      continue;
    Comparison comparison(func);
    Chain best{0, 1, 0};
    for (size_t period : comparison.listPeriods()) {
      auto [begin, length] = comparison.findStretch(period);
      Chain chain{begin, period, length / period + 1};
      // Of two that cover equally much, the one with the shorter layers.
      size_t covered = chain.count * chain.period, before = best.count * best.period;
      if (chain.count > 1 && (covered > before || (covered == before && period < best.period)))
        best = chain;
    }
    if (best.count < 2 || (layers.count && static_cast<int64_t>(best.count) != layers.count))
      return std::nullopt;
    layers.count = static_cast<int64_t>(best.count);
    layers.chains.back() = best;
  }
  return layers.count ? std::optional(std::move(layers)) : std::nullopt;
}

/// The names of the states among a function's arguments, and among its results.
static std::array<llvm::DenseSet<Attribute>, 2> collectStates(func::FuncOp func) {
  std::array<llvm::DenseSet<Attribute>, 2> states;
  for (unsigned i = 0; i < func.getNumArguments(); ++i)
    if (Attribute state = func.getArgAttr(i, loom::kState))
      states[0].insert(state);
  for (unsigned i = 0; i < func.getNumResults(); ++i)
    if (Attribute state = func.getResultAttr(i, loom::kState))
      states[1].insert(state);
  return states;
}

/// Removes layers from a function. False, with the function left invalid, if something else reads
/// them, if only some of them have outputs, or if a state is no longer both read and written.
bool Layers::shorten(func::FuncOp func, const Chain &chain, size_t kept) {
  SmallVector<Operation *> operations = listOperations(func);
  llvm::DenseMap<Operation *, size_t> position;
  for (auto [i, op] : llvm::enumerate(operations))
    position[op] = i;
  size_t last = chain.getEnd() - chain.period, firstGone = chain.begin + kept * chain.period;
  auto find = [&](Value value) -> std::optional<size_t> {
    Operation *op = value.getDefiningOp();
    if (!op || isLeaf(op) || position.lookup(op) < firstGone ||
        position.lookup(op) >= chain.getEnd())
      return std::nullopt;
    return position.lookup(op);
  };
  auto readKept = [&](OpOperand &use) {
    std::optional<size_t> at = find(use.get());
    if (!at || *at < last)
      return !at;
    unsigned number = cast<OpResult>(use.get()).getResultNumber();
    use.set(operations[*at - last + firstGone - chain.period]->getResult(number));
    return true;
  };
  Operation *terminator = func.front().getTerminator();
  auto returns = [&](Value value) { return llvm::is_contained(value.getUsers(), terminator); };
  // A result that every layer returns is removed with its layer.
  llvm::BitVector isGone(terminator->getNumOperands());
  for (OpOperand &use : terminator->getOpOperands()) {
    std::optional<size_t> at = find(use.get());
    if (!at)
      continue;
    size_t offset = (*at - chain.begin) % chain.period;
    unsigned number = cast<OpResult>(use.get()).getResultNumber();
    bool isEach = returns(operations[chain.begin + offset]->getResult(number));
    for (size_t layer = 1; layer + 1 < chain.count; ++layer)
      if (returns(operations[chain.begin + layer * chain.period + offset]->getResult(number)) !=
          isEach)
        return false;
    if (isEach)
      isGone.set(use.getOperandNumber());
    else if (!readKept(use))
      return false;
  }
  for (Operation *op : ArrayRef(operations).drop_front(chain.getEnd()))
    if (!llvm::all_of(op->getOpOperands(), readKept))
      return false;
  llvm::BitVector isUnread(func.getNumArguments());
  for (BlockArgument argument : func.getArguments())
    if (!argument.use_empty())
      isUnread.set(argument.getArgNumber()); // reset below if it is still read
  terminator->eraseOperands(isGone);
  if (failed(func.eraseResults(isGone)))
    return false;
  for (size_t i = chain.getEnd(); i-- > firstGone;) {
    if (!operations[i]->use_empty())
      return false;
    operations[i]->erase();
  }
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(func.front())))
    if (isLeaf(&op) && &op != terminator && op.use_empty())
      op.erase();
  for (BlockArgument argument : func.getArguments())
    if (!argument.use_empty())
      isUnread.reset(argument.getArgNumber());
  if (failed(func.eraseArguments(isUnread)))
    return false;
  auto [read, written] = collectStates(func);
  return read == written;
}

OwningOpRef<ModuleOp> Layers::keep(int64_t kept) const {
  OwningOpRef<ModuleOp> copy = ModuleOp(module).clone();
  auto functions = llvm::to_vector(copy->getOps<func::FuncOp>());
  for (auto [func, chain] : llvm::zip_equal(functions, chains))
    if (chain && !shorten(func, *chain, static_cast<size_t>(kept)))
      return nullptr;
  return copy;
}
