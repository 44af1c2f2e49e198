//===- Propagation.cpp - shardings propagated over a function -------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/shard/Propagation.h"

#include "dialects/loom/Loom.h"
#include "passes/shard/SplitChoices.h"

#include "llvm/ADT/BitVector.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

void Worklist::fill(size_t count) {
  bits.resize(count, true);
  begin = 0;
  end = count;
}

void Worklist::insert(size_t number) {
  bool isEmpty = begin == end;
  begin = isEmpty ? number : std::min(begin, number);
  end = isEmpty ? number + 1 : std::max(end, number + 1);
  bits.set(number);
}

void Worklist::clear() {
  bits.reset(begin, end);
  begin = end = 0;
}

int Worklist::getFirst() {
  int first = bits.find_first_in(begin, end);
  begin = first < 0 ? end : first;
  return first;
}

int Worklist::getLast() {
  int last = bits.find_last_in(begin, end);
  end = last < 0 ? begin : last + 1;
  return last;
}

int Worklist::getNext(int number) const { return bits.find_first_in(number + 1, end); }

int Worklist::getPrevious(int number) const { return bits.find_last_in(begin, number); }

StringRef Propagation::Entry::getOrigin(StringAttr axis) const {
  for (const auto &[name, origin] : origins)
    if (name == axis)
      return origin;
  return {};
}

OriginAttr Propagation::Entry::getOrigin(MLIRContext *context) const {
  if (origins.empty())
    return OriginAttr::get(context, given);
  SmallVector<std::pair<StringAttr, StringAttr>> axes;
  for (const auto &[axis, origin] : origins)
    axes.emplace_back(axis, StringAttr::get(context, origin));
  return OriginAttr::get(context, StringAttr(), axes, StringAttr(), StringAttr());
}

static void readOrigin(Propagation::Entry &entry, OriginAttr origin) {
  if (entry.sharding.dims.empty() || !entry.sharding.dims.front().open)
    entry.given = origin ? origin.describe() : "";
  for (const Sharding::Dim &dim : entry.sharding.dims)
    for (StringAttr axis : dim.axes)
      entry.origins.push_back({axis, origin ? origin.describeAxis(axis) : ""});
}

/// 0 for an operation whose tensors all have the same factors, even if split or joined into other
/// dimensions; 2 for one that computes partial results; 1 for others.
static size_t getPriority(const ShardingRule &rule) {
  if (llvm::is_contained(rule.kinds, FactorKind::Reduction))
    return 2;
  if (!rule.windows.empty() || llvm::is_contained(rule.kinds, FactorKind::NeedReplication))
    return 1;
  for (const TensorFactors &tensor : rule.tensors) {
    llvm::BitVector has(rule.sizes.size());
    for (ArrayRef<int64_t> factors : tensor)
      for (int64_t factor : factors)
        has.set(factor);
    for (auto [factor, size] : llvm::enumerate(rule.sizes))
      if (size > 1 && !has.test(factor))
        return 1;
  }
  return 0;
}

/// The level of contractions and reductions.
static constexpr uint8_t kLastLevel = 2;

Propagation::Propagation(func::FuncOp func, const Mesh &mesh) : func(func), mesh(mesh) {
  auto enter = [&](Value value) {
    auto type = cast<RankedTensorType>(value.getType());
    ShardingAttr sharding = getSharding(value);
    Entry &entry = entries[value];
    entry.sharding =
        sharding ? Sharding(sharding) : Sharding::replicated(type.getRank(), /*open=*/true);
    readOrigin(entry, gridloom::dist::getOrigin(value));
  };
  for (BlockArgument argument : func.getArguments())
    enter(argument);
  auto found = std::make_shared<Program>();
  func.walk([&](ShardingRuleInterface op) {
    found->indices[op] = found->operations.size();
    found->operations.push_back(op);
    const ShardingRule &rule = found->rules[op] = op.getShardingRule();
    found->levels.push_back(std::min<size_t>(getPriority(rule), kLastLevel));
    for (Value result : op->getResults())
      enter(result);
  });
  program = std::move(found);
  size_t count = program->operations.size();
  unvisited.fill(count);
  uncounted.fill(count);
  splits.resize(count);
  reshards.resize(count);
}

void Propagation::touch(Value value) {
  auto mark = [&](Operation *op) {
    auto place = program->indices.find(op);
    if (place == program->indices.end())
      return;
    unvisited.insert(place->second);
    uncounted.insert(place->second);
    splits[place->second].reset();
  };
  if (Operation *op = value.getDefiningOp())
    mark(op);
  for (Operation *user : value.getUsers())
    mark(user);
}

bool Propagation::addAxis(Value value, int64_t dim, StringAttr axis, StringRef origin,
                          int64_t granule) {
  Entry &entry = entries[value];
  Sharding::Dim &target = entry.sharding.dims[dim];
  bool inTime = isMicroAxis(axis);
  // Micro-batches have the granule of the dimension they cut. Closing a dimension fixes on which
  // devices its parts are, not when they are computed.
  if (inTime)
    granule = target.granule;
  if ((!target.open && !inTime) || entry.sharding.usesAxis(axis) ||
      (!target.axes.empty() && target.granule != granule))
    return false;
  // Micro-batches are minor to all axes of their dimension; one more major axis would change which
  // elements they hold, in this value only.
  if (llvm::any_of(target.axes, isMicroAxis))
    return false;
  // Shards may be unequal, but every device must get something; a dimension cut into micro-batches
  // cannot be padded.
  auto type = cast<RankedTensorType>(value.getType());
  if (type.getNumElements() == 0)
    return false; // nothing to split
  int64_t size = type.getDimSize(dim);
  int64_t parts = mesh.getSize(target.axes) * mesh.getSize(axis);
  if (inTime ? size % (parts * granule) != 0 : size < parts * granule)
    return false;
  if (journal)
    journal->emplace_back(value, entry);
  touch(value);
  target.granule = granule;
  target.axes.push_back(axis);
  entry.origins.push_back({axis, origin.str()});
  return true;
}

bool Propagation::visit(Operation *op) {
  const ShardingRule &rule = getRule(op);
  SmallVector<Value> values(op->getOperands());
  llvm::append_range(values, op->getResults());
  FactorSplits splits = getSplits(op); // a copy: what follows changes it

  // The origin of an axis: of the first tensor that has it, else the operation's own splits.
  auto originOf = [&](StringAttr axis) -> std::string {
    for (Value value : values)
      if (const Entry &entry = lookup(value); entry.sharding.usesAxis(axis))
        return entry.getOrigin(axis).str();
    return "splits of '" + loom::getNodeName(op->getLoc()) + "'";
  };
  bool changed = false;
  for (auto [index, value] : llvm::enumerate(values)) {
    Sharding target = project(rule, index, splits, mesh);
    for (auto [dim, wanted] : llvm::enumerate(target.dims)) {
      ArrayRef<StringAttr> have = entries[value].sharding.dims[dim].axes, want = wanted.axes;
      if (want.size() <= have.size() || want.take_front(have.size()) != have)
        continue;
      for (StringAttr axis : want.drop_front(have.size())) {
        if (!addAxis(value, dim, axis, originOf(axis), wanted.granule))
          break;
        changed = true;
      }
    }
  }
  return changed;
}

void Propagation::forEachValue(llvm::function_ref<void(Value)> visitor) const {
  for (BlockArgument argument : func::FuncOp(func).getArguments())
    visitor(argument);
  for (Operation *op : program->operations)
    for (Value result : op->getResults())
      visitor(result);
}

bool Propagation::runToFixpoint(uint8_t level, llvm::function_ref<bool()> stops) {
  bool isStopped = false;
  auto visitIfDue = [&](int index) {
    if (program->levels[index] > level)
      return false;
    unvisited.erase(index);
    bool changed = visit(program->operations[index]);
    isStopped = stops();
    return changed;
  };
  // Every change adds an axis to a value that lacked it, so this ends.
  for (bool changed = true; changed;) {
    changed = false;
    for (int i = unvisited.getFirst(); i >= 0 && !isStopped; i = unvisited.getNext(i))
      changed |= visitIfDue(i);
    for (int i = unvisited.getLast(); i >= 0 && !isStopped; i = unvisited.getPrevious(i))
      changed |= visitIfDue(i);
    if (isStopped)
      return false;
  }
  return true;
}

/// The number of visits before `isHopeless` is first called.
static constexpr int64_t kFirstAsked = 32;

int64_t Propagation::run(llvm::function_ref<bool()> isHopeless) {
  int64_t visited = 0, next = kFirstAsked;
  auto stops = [&] {
    if (++visited < next || !isHopeless)
      return false;
    next *= 2;
    return isHopeless();
  };
  for (uint8_t level = 0; level <= kLastLevel; ++level)
    if (!runToFixpoint(level, stops))
      break;
  return visited;
}

bool Propagation::attempt(llvm::function_ref<bool()> trial) {
  SmallVector<std::pair<Value, Entry>> changes;
  std::optional<Worklist> before; // usually empty
  if (unvisited.getFirst() >= 0)
    before = unvisited;
  auto *outer = std::exchange(journal, &changes);
  bool keep = trial();
  journal = outer;
  if (keep) {
    if (journal)
      llvm::append_range(*journal, changes);
    return true;
  }
  for (auto &[value, entry] : llvm::reverse(changes)) {
    touch(value);
    entries[value] = std::move(entry);
  }
  if (before)
    unvisited = std::move(*before);
  else
    unvisited.clear();
  return false;
}

SmallVector<Sharding> Propagation::getShardings(Operation *op) const {
  SmallVector<Sharding> shardings;
  for (Value value : op->getOperands())
    shardings.push_back(lookup(value).sharding);
  for (Value value : op->getResults())
    shardings.push_back(lookup(value).sharding);
  return shardings;
}

const FactorSplits &Propagation::getSplits(Operation *op) const {
  std::optional<FactorSplits> &known = splits[program->indices.find(op)->second];
  if (!known)
    known = findSplits(op);
  return *known;
}

FactorSplits Propagation::findSplits(Operation *op) const {
  const ShardingRule &rule = getRule(op);
  auto given = op->getAttrOfType<SplitsAttr>(kSplits);
  if (!given || given.getFactors().size() != rule.sizes.size())
    return mergeFactors(rule, getShardings(op), getTensorTypes(op), mesh);
  FactorSplits splits(rule.sizes.size());
  for (auto [i, factor] : llvm::enumerate(given.getFactors())) {
    splits.axes[i].assign(factor.getAxes().begin(), factor.getAxes().end());
    splits.granules[i] = factor.getGranule();
  }
  return splits;
}

SmallVector<Sharding> Propagation::getRequired(Operation *op) const {
  const ShardingRule &rule = getRule(op);
  const FactorSplits &splits = getSplits(op);
  SmallVector<Sharding> required;
  for (size_t index = 0; index < rule.tensors.size(); ++index)
    required.push_back(project(rule, index, splits, mesh));
  return required;
}

Propagation::Reshards Propagation::countReshards(Operation *op) const {
  Reshards count;
  SmallVector<Sharding> required = getRequired(op);
  auto isRequired = [](const Sharding::Dim &have, const Sharding::Dim &needs) {
    return isPrefix(have.axes, needs.axes);
  };
  for (auto [operand, sharding] : llvm::zip_first(op->getOperands(), required)) {
    const Sharding &have = lookup(operand).sharding;
    // Cutting a replicated value is free; anything else moves data.
    for (auto [from, to] : llvm::zip_equal(have.dims, sharding.dims))
      count.all += !isRequired(from, to);
  }
  count.isLasting = count.all > 0;
  for (auto [result, sharding] :
       llvm::zip_equal(op->getResults(), ArrayRef(required).take_back(op->getNumResults()))) {
    const Sharding &have = lookup(result).sharding;
    count.all += have.dims != sharding.dims;
    // A result that is split less than required may yet be split more.
    count.isLasting |= !llvm::all_of_zip(have.dims, sharding.dims, isRequired);
  }
  return count;
}

int64_t Propagation::countReshards(llvm::function_ref<void(size_t, int64_t)> recounted) {
  for (int index = uncounted.getFirst(); index >= 0; index = uncounted.getNext(index)) {
    Reshards now = countReshards(program->operations[index]);
    Reshards was = std::exchange(reshards[index], now);
    totalReshards += now.all - was.all;
    lastingReshards += int64_t(now.isLasting) - int64_t(was.isLasting);
    recounted(index, was.all);
  }
  uncounted.clear();
  return totalReshards;
}

void Propagation::commit(bool close, const Reasons &reasons) const {
  for (const auto &[value, entry] : entries) {
    Sharding sharding = entry.sharding;
    OriginAttr origin = entry.getOrigin(value.getContext());
    if (close) {
      for (Sharding::Dim &dim : sharding.dims)
        dim.open = false;
      if (auto reason = reasons.find(value); reason != reasons.end())
        origin = OriginAttr::get(value.getContext(), StringAttr(), origin.getAxes(),
                                 StringAttr::get(value.getContext(), reason->second.text),
                                 reason->second.tried);
    }
    setSharding(value, sharding.getAttr(mesh), origin);
  }
  if (!close)
    return;
  func::FuncOp target = func;
  Operation *terminator = target.front().getTerminator();
  for (auto [i, value] : llvm::enumerate(terminator->getOperands())) {
    if (target.getResultAttrOfType<ShardingAttr>(i, kSharding))
      continue; // the user's
    ShardingAttr sharding = getSharding(value);
    // An output is whole, also if its node is declared to leave partial sums.
    target.setResultAttr(i, kSharding, sharding ? getReduced(sharding, mesh) : sharding);
    target.setResultAttr(i, kOrigin, gridloom::dist::getOrigin(value));
  }
}
