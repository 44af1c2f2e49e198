//===- SplitProblem.cpp - the choice of all splits as one problem ---------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/shard/SplitProblem.h"

#include "dialects/dist/MachineAttr.h"
#include "dialects/dist/Splits.h"
#include "dialects/loom/Control.h"
#include "dialects/loom/Uses.h"
#include "dialects/loom/Work.h"
#include "passes/shard/SplitGiven.h"
#include "passes/shard/SplitReshards.h"

#include <numeric>

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

/// Costs are whole hundredths of a picosecond. A program that costs more than the most on one
/// device, or has a value that does as a message, has larger units, with which sums stay far from
/// solver::infiniteCost. The first constant is in units per second.
static constexpr double kFinestUnits = 1e14, kMostCost = 1e16;
/// Breaks ties: of equal choices the one that keeps less memory wins. Bytes that cost 1: the
/// weights of a whole device take less than a microsecond.
static constexpr int64_t kTieBytes = 1024;

static double chooseUnitsPerSecond(ArrayRef<func::FuncOp> functions, ArrayRef<StringAttr> axes,
                                   const Mesh &mesh) {
  double seconds = 0, perSecond = kFinestUnits;
  int64_t largest = 0;
  for (func::FuncOp function : functions)
    for (Operation &op : function.front().without_terminator()) {
      seconds += loom::getComputeSeconds(&op, mesh.getMachine());
      for (RankedTensorType type : getTensorTypes(&op))
        largest = std::max(largest, loom::getByteSize(type));
    }
  if (mesh.getSize(axes) > 1)
    seconds += mesh.getSeconds(cluster::Collective::AllReduce, static_cast<double>(largest), axes);
  while (seconds * perSecond > kMostCost && perSecond > 1)
    perSecond /= 10;
  return perSecond;
}

solver::Cost SplitProblem::toCost(double seconds) const {
  double cost = seconds * unitsPerSecond;
  // Compared before rounding, which would overflow.
  return cost < static_cast<double>(solver::infiniteCost) ? std::llround(cost)
                                                          : solver::infiniteCost;
}

double SplitProblem::toSeconds(solver::Cost cost) const {
  return static_cast<double>(cost) / unitsPerSecond;
}

solver::Cost SplitProblem::getTieBreak(RankedTensorType type, ShardingAttr sharding) const {
  return boundsTime ? 0 : getLocalBytes(type, sharding) / kTieBytes;
}

int64_t SplitProblem::getLocalBytes(RankedTensorType type, ShardingAttr sharding) const {
  auto [entry, isNew] = prices->bytes.try_emplace({type, sharding}, 0);
  if (isNew)
    entry->second = loom::getByteSize(getLocalType(type, getValue(sharding), mesh));
  return entry->second;
}

static bool isPartialSum(ShardingAttr sharding) {
  return !sharding.getUnreduced().empty() && sharding.getReduction() == ReductionKind::Sum;
}

void SplitProblem::Column::add(ShardingAttr sharding) {
  auto *found = llvm::find(shardings, sharding);
  of.push_back(found - shardings.begin());
  if (found == shardings.end())
    shardings.push_back(sharding);
}

/// What prices depend on: uniqued pointers, and sizes.
static std::vector<const void *> describePlace(ModuleOp module, ArrayRef<StringAttr> axes,
                                               const Mesh &mesh, bool boundsTime,
                                               double hiddenShare, double unitsPerSecond) {
  std::vector<const void *> place;
  auto add = [&](int64_t number) {
    place.push_back(reinterpret_cast<const void *>(static_cast<intptr_t>(number)));
  };
  place.push_back(Attribute(module->getAttr(kCluster)).getAsOpaquePointer());
  for (const Mesh::Axis &axis : mesh.getAxes()) {
    place.push_back(axis.name.getAsOpaquePointer());
    add(axis.size);
  }
  place.push_back(nullptr);
  for (StringAttr axis : axes)
    place.push_back(axis.getAsOpaquePointer());
  add(boundsTime);
  add(llvm::bit_cast<int64_t>(hiddenShare));
  add(static_cast<int64_t>(unitsPerSecond));
  return place;
}

SplitProblem::SplitProblem(ModuleOp module, ArrayRef<StringAttr> axes, ArrayRef<StringAttr> batch,
                           const Mesh &mesh, uint64_t mostBytes, bool boundsTime,
                           std::shared_ptr<SplitPrices> given, double hiddenShare)
    : mesh(mesh), axes(axes), batch(batch), stageAxes(getStageAxes(module)),
      stages(mesh.getSize(stageAxes)),
      microbatches(mesh.getSize(StringAttr::get(mesh.getContext(), MeshOp::kMicroAxis))),
      libraries(loom::Libraries::of(mesh.getMachine(), boundsTime)), mostBytes(mostBytes),
      boundsTime(boundsTime), hiddenShare(hiddenShare),
      prices(given ? std::move(given) : std::make_shared<SplitPrices>()) {
  for (auto func : module.getOps<func::FuncOp>())
    if (!loom::isBody(func)) {
      functionNumbers[func] = functions.size();
      functions.push_back(func);
    }
  unitsPerSecond = chooseUnitsPerSecond(functions, axes, mesh);
  prices->setPlace(describePlace(module, axes, mesh, boundsTime, hiddenShare, unitsPerSecond));
  setTimes();
  setWork();
  collectStatePins();
  for (func::FuncOp func : functions)
    addFunction(func);
}

void SplitProblem::connect() {
  for (func::FuncOp func : functions)
    connectOperations(func);
}

/// Whether the dimension cut into micro-batches is split over the axes of the batch.
bool SplitProblem::splitsBatch(ShardingAttr attr) const {
  const Sharding &sharding = getValue(attr);
  int64_t dim = sharding.getMicroDim();
  return dim < 0 || ArrayRef(sharding.dims[dim].axes).drop_back() == ArrayRef(batch);
}

bool SplitProblem::hasChoices() const {
  return llvm::none_of(nodes, [](const Node &node) { return node.costs.empty(); });
}

std::string SplitProblem::describeOrder() const {
  std::string text;
  llvm::raw_string_ostream os(text);
  for (func::FuncOp func : functions)
    for (Operation &op : func.front().without_terminator())
      os << op.getName() << ' ' << loom::getNodeName(op.getLoc()) << ' ' << getStage(&op) << '\n';
  for (const Node &node : nodes)
    os << node.costs.size() << ' ';
  return text;
}

int64_t SplitProblem::getStage(Operation *op) const {
  auto stage = op->getAttrOfType<IntegerAttr>(kStage);
  return stages > 1 && stage ? stage.getInt() : 0;
}

size_t SplitProblem::getPart(Operation *op) const {
  return functionNumbers.lookup(op->getParentOp()) * stages + getStage(op);
}

void SplitProblem::setTimes() {
  partTimes.resize(functions.size() * stages);
  int64_t time = 0;
  for (int64_t stage = 0; stage < stages; ++stage) {
    int64_t begin = time;
    for (auto [i, func] : llvm::enumerate(functions)) {
      solver::Interval &part = partTimes[i * stages + stage];
      part.begin = time;
      for (Operation &op : func.front().without_terminator())
        if (getStage(&op) == stage)
          times[&op] = time++;
      part.end = time;
    }
    stageTimes.push_back({begin, time});
  }
}

/// A sharding or storage given for a state in one function holds in all.
void SplitProblem::collectStatePins() {
  for (func::FuncOp func : functions)
    for (BlockArgument argument : func.getArguments()) {
      auto state = func.getArgAttrOfType<StringAttr>(argument.getArgNumber(), loom::kState);
      if (ShardingAttr given = getGivenSharding(argument); state && given)
        statePins.try_emplace(state, given);
    }
}

/// Everything that distinguishes the ways to split an operation from another's: all but its values.
static std::string getKey(Operation *op, const loom::Libraries &libraries) {
  std::string key;
  llvm::raw_string_ostream os(key);
  os << op->getName();
  for (NamedAttribute attribute : op->getAttrs())
    if (!llvm::is_contained(ArrayRef<StringRef>{kShardings, kOrigins, kStage},
                            attribute.getName().getValue()))
      os << ' ' << attribute.getName() << attribute.getValue().getAsOpaquePointer(); // unique
  for (RankedTensorType type : getTensorTypes(op))
    os << ' ' << type.getAsOpaquePointer();
  for (Value value : llvm::concat<const Value>(llvm::to_vector_of<Value>(op->getOperands()),
                                               llvm::to_vector_of<Value>(op->getResults())))
    os << ' ' << getWholeInTime(value).getMicroDim();
  os << ' ' << loom::describePlace(op, libraries);
  return key;
}

bool SplitProblem::mayPassSums(Operation *op) const {
  return cast<ShardingRuleInterface>(op).isLinear() && op->getNumOperands() > 0 &&
         op->getNumResults() == 1 &&
         llvm::all_of(op->getOperands(), [&](Value operand) { return sums.contains(operand); });
}

/// Prices on this mesh, whatever splits the batch.
const std::vector<SplitPrices::Choice> &SplitProblem::getPriced(Operation *op, bool passes,
                                                                StringRef key) {
  auto [entry, isNew] = prices->choices.try_emplace(key);
  if (isNew)
    for (SplitChoice &choice : listSplitChoices(op, axes, mesh, passes, boundsTime)) {
      solver::Cost cost = toCost(choice.seconds);
      for (auto [sharding, type] : llvm::zip_equal(choice.shardings, getTensorTypes(op)))
        cost += getTieBreak(type, sharding);
      entry->second.push_back({std::move(choice), cost});
    }
  return entry->second;
}

const SplitProblem::Choices &SplitProblem::getChoices(Operation *op) {
  bool passes = mayPassSums(op);
  std::string key = (passes ? "+" : "") + getKey(op, libraries);
  auto [entry, isNew] = known.try_emplace(key);
  Choices &choices = entry->second;
  if (!isNew)
    return choices;
  choices.tensors.resize(op->getNumOperands() + op->getNumResults());
  for (const auto &[choice, cost] : getPriced(op, passes, key)) {
    if (!llvm::all_of(choice.shardings, [&](ShardingAttr attr) { return splitsBatch(attr); }))
      continue;
    for (auto [tensor, sharding] : llvm::zip_equal(choices.tensors, choice.shardings))
      tensor.add(sharding);
    choices.costs.push_back(cost);
    choices.splits.push_back(choice.splits);
  }
  return choices;
}

void SplitProblem::addOperation(Operation *op) {
  unsigned index = nodes.size();
  if (auto weight = dyn_cast<loom::GetWeightOp>(op)) {
    int64_t &copies = weightCopies[{weight.getNameAttr(), getStage(op)}];
    index = weightNodes.try_emplace({weight.getNameAttr(), getStage(op), copies++}, index)
                .first->second;
  }
  opNodes[op] = index;
  if (index < nodes.size())
    return;
  const Choices &choices = getChoices(op);
  nodes.push_back({choices.costs, choices.tensors, choices.splits, {}, {}, op});
  if (auto weight = dyn_cast<loom::GetWeightOp>(op))
    keepGiven(nodes.back(), weight.getResult());
  for (auto [i, result] : llvm::enumerate(op->getResults()))
    if (llvm::any_of(choices.tensors[op->getNumOperands() + i].shardings,
                     [](ShardingAttr sharding) { return isPartialSum(sharding); }))
      sums.insert(result);
}

/// Keeps only those ways to split a weight that match its given sharding.
void SplitProblem::keepGiven(Node &node, Value weight) const {
  ShardingAttr given = getGivenPlace(weight);
  if (!given)
    return;
  std::vector<solver::Cost> costs = std::exchange(node.costs, {});
  Column all = std::exchange(node.tensors.front(), {});
  auto add = [&](ShardingAttr sharding, solver::Cost cost) {
    node.tensors.front().add(sharding);
    node.costs.push_back(cost);
  };
  for (auto [strategy, cost] : llvm::enumerate(costs))
    if (admits(given, all.get(strategy)))
      add(all.get(strategy), cost);
  if (node.costs.empty()) // no way splits it so over these axes
    add(getClosed(given, mesh), 0);
  node.splits = {}; // has none
}

bool SplitProblem::needsNode(Value value) const {
  return isa<BlockArgument>(value) || isPinned(dist::getSharding(value)) || !value.hasOneUse() ||
         isa<func::ReturnOp>(*value.getUsers().begin());
}

/// The operation that pays for an argument: its first reader, or else the terminator.
static Operation *getFirstReader(BlockArgument argument) {
  SmallVector<OpOperand *> uses = loom::listUses(argument);
  return uses.empty() ? argument.getOwner()->getTerminator() : uses.front()->getOwner();
}

/// Whether all readers of a value may take the sharding's partial sums.
bool SplitProblem::isReadUnreduced(Value value, ShardingAttr sharding) const {
  return isPartialSum(sharding) && llvm::all_of(value.getUses(), [&](OpOperand &use) {
           auto reader = opNodes.find(use.getOwner());
           return reader != opNodes.end() &&
                  llvm::is_contained(
                      nodes[reader->second].tensors[use.getOperandNumber()].shardings, sharding);
         });
}

/// Whether the value is returned other than as a state, whose memory is that of the argument.
static bool isOutput(Value value) {
  return llvm::any_of(value.getUses(), [](OpOperand &use) {
    auto func = use.getOwner()->getParentOfType<func::FuncOp>();
    return isa<func::ReturnOp>(use.getOwner()) &&
           !func.getResultAttr(use.getOperandNumber(), loom::kState);
  });
}

/// Adds a node for a value with the shardings that its producer makes and its readers need, and the
/// whole one; if the value is pinned, those that the pin admits.
void SplitProblem::addValue(Value value) {
  auto type = cast<RankedTensorType>(value.getType());
  auto argument = dyn_cast<BlockArgument>(value);
  ShardingAttr given = argument ? getGivenSharding(value) : dist::getSharding(value);
  auto func = argument ? cast<func::FuncOp>(argument.getOwner()->getParentOp()) : nullptr;
  auto state =
      func ? func.getArgAttrOfType<StringAttr>(argument.getArgNumber(), loom::kState) : nullptr;
  unsigned index = nodes.size();
  if (auto of = statePins.find(state); state && of != statePins.end())
    given = of->second;
  if (state)
    index = stateNodes.try_emplace(state, index).first->second;
  if (index == nodes.size())
    nodes.push_back({{},
                     std::vector<Column>(1),
                     {},
                     {},
                     {},
                     argument ? getFirstReader(argument) : value.getDefiningOp()});
  valueNodes[value] = index;
  Column &column = nodes[index].tensors.front();
  auto add = [&](ShardingAttr sharding) {
    if (llvm::is_contained(column.shardings, sharding) || !splitsBatch(sharding) ||
        (given && !admits(given, sharding)))
      return;
    column.add(sharding);
    nodes[index].costs.push_back(getTieBreak(type, sharding));
  };
  auto offer = [&](ShardingAttr sharding) {
    add(getReduced(sharding, mesh));
    if (!isPinned(given) && isReadUnreduced(value, sharding))
      add(sharding);
  };
  if (given && isClosed(given))
    add(given);
  if (given && !given.getUnreduced().empty())
    return;
  Sharding whole = getWholeInTime(value);
  if (int64_t dim = whole.getMicroDim(); dim >= 0)
    whole.dims[dim].axes.insert(whole.dims[dim].axes.begin(), batch.begin(), batch.end());
  offer(whole.getAttr(mesh));
  if (Operation *producer = value.getDefiningOp())
    llvm::for_each(
        nodes[opNodes.lookup(producer)]
            .tensors[producer->getNumOperands() + cast<OpResult>(value).getResultNumber()]
            .shardings,
        offer);
  for (OpOperand *use : loom::listUses(value))
    if (auto reader = opNodes.find(use->getOwner()); reader != opNodes.end())
      llvm::for_each(SmallVector<ShardingAttr>(
                         nodes[reader->second].tensors[use->getOperandNumber()].shardings),
                     offer);
  // An open pin with axes that no way to split an operation has.
  if (column.shardings.empty()) {
    column.add(getClosed(given, mesh));
    nodes[index].costs.push_back(0); // the only one
  }
  if (argument || isOutput(value))
    setBoundUsage(value);
}

void SplitProblem::addFunction(func::FuncOp func) {
  weightCopies.clear();
  for (Operation &op : func.front().without_terminator())
    addOperation(&op);
  for (Operation &op : func.front().without_terminator())
    setUsage(&op, times.lookup(&op));
  for (BlockArgument argument : func.getArguments())
    addValue(argument);
  for (Operation &op : func.front().without_terminator())
    for (Value result : op.getResults())
      if (needsNode(result))
        addValue(result);
  if (stages > 1)
    for (Operation &op : func.front().without_terminator())
      llvm::for_each(op.getResults(), [&](Value result) { addReceived(result); });
}

/// Adds nodes for a value in the stages that receive it. A device keeps received values for as long
/// as its stage runs, those of two micro-batches if there are several.
void SplitProblem::addReceived(Value value) {
  Operation *producer = value.getDefiningOp();
  auto type = cast<RankedTensorType>(value.getType());
  for (OpOperand *use : loom::listUses(value)) {
    Operation *user = use->getOwner();
    auto reader = opNodes.find(user);
    if (reader == opNodes.end() || getStage(user) == getStage(producer))
      continue;
    auto [known, isNew] =
        received.try_emplace({value, getStage(user)}, static_cast<unsigned>(nodes.size()));
    if (isNew)
      nodes.push_back(
          {{}, std::vector<Column>(1), {}, {}, partTimes[getPart(user)], producer, true});
    Node &node = nodes[known->second];
    auto offer = [&](ShardingAttr sharding) {
      if (llvm::is_contained(node.tensors.front().shardings, sharding))
        return;
      node.tensors.front().add(sharding);
      int64_t bytes = getLocalBytes(type, sharding);
      node.costs.push_back(getTieBreak(type, sharding));
      node.usages.push_back(microbatches > 1 ? 2 * bytes : bytes);
    };
    llvm::for_each(nodes[reader->second].tensors[use->getOperandNumber()].shardings, offer);
  }
}

const Sharding &SplitProblem::getValue(ShardingAttr sharding) const {
  std::unique_ptr<const Sharding> &value = prices->shardings[sharding];
  if (!value)
    value = std::make_unique<const Sharding>(sharding);
  return *value;
}

SplitPrices::Reshard SplitProblem::findReshard(RankedTensorType type, ShardingAttr from,
                                               ShardingAttr to) const {
  if (from == to)
    return {0, 0};
  const Sharding &source = getValue(from), &target = getValue(to);
  // Nothing moves from one micro-batch to another.
  if (!areCutAlikeInTime(source, target))
    return {solver::infiniteCost};
  ReshardCost cost = gridloom::getReshardCost(type, source, target, mesh);
  SplitPrices::Reshard reshard;
  reshard.cost = toCost(cost.seconds + cost.order + (boundsTime ? 0 : cost.cuts));
  if (reshard.cost < solver::infiniteCost) // what cannot be sent cannot be hidden
    reshard.hidden = toCost(hiddenShare * cost.seconds);
  double launch = loom::getLaunchSeconds(mesh.getMachine());
  // A kernel that reads and writes the reader's part: a call writes its own result in any case.
  double copy = getApartSeconds(type, target, target, mesh);
  bool isMoved = cost.seconds > 0;
  if (isMoved || cost.isCut) {
    reshard.apart = toCost(boundsTime ? launch : getApartSeconds(type, source, target, mesh));
    // A program may compute no more than the part that is cut out.
    reshard.epilogue = toCost(boundsTime && !isMoved ? launch : copy);
  }
  if (cost.isCut)
    reshard.launch = toCost(launch);
  // The kernel that puts in order what was sent can transpose it, too.
  if (isMoved)
    reshard.copy = toCost(std::max(0.0, copy - cost.order));
  return reshard;
}

const SplitProblem::Table &SplitProblem::getTable(RankedTensorType type, const Column &makes,
                                                  const Column &needs, bool isDeclared,
                                                  Reader reader) {
  uintptr_t kind = 4 * static_cast<uintptr_t>(reader.taking) +
                   2 * static_cast<uintptr_t>(reader.isBeside) + isDeclared;
  std::vector<const void *> key{type.getAsOpaquePointer(), reinterpret_cast<const void *>(kind),
                                reader.order.getAsOpaquePointer()};
  for (ShardingAttr source : makes.shardings)
    key.push_back(source.getAsOpaquePointer());
  key.push_back(nullptr);
  for (ShardingAttr target : needs.shardings)
    key.push_back(target.getAsOpaquePointer());
  auto [entry, isNew] = prices->tables.try_emplace(
      StringRef(reinterpret_cast<const char *>(key.data()), key.size() * sizeof(const void *)));
  if (!isNew)
    return entry->second;
  SplitPrices::Reshards &reshards = prices->reshards[type];
  auto number = [&](ShardingAttr sharding) { return reshards.getNumber(sharding); };
  auto sources = llvm::map_to_vector(makes.shardings, number);
  auto targets = llvm::map_to_vector(needs.shardings, number);
  entry->second.reserve(sources.size() * targets.size());
  for (auto [source, from] : llvm::zip_equal(makes.shardings, sources))
    for (auto [target, to] : llvm::zip_equal(needs.shardings, targets)) {
      if (isDeclared && source.getUnreduced() != target.getUnreduced()) {
        entry->second.push_back(solver::infiniteCost);
        continue;
      }
      SplitPrices::Reshard &reshard = reshards.get(from, to);
      if (!reshard.isKnown())
        reshard = findReshard(type, source, target);
      solver::Cost more = 0;
      switch (reader.taking) {
      case Taking::CutsItself:
        break;
      case Taking::CutsApart:
        more = reshard.launch;
        break;
      case Taking::SameKernel:
        more = reshard.apart;
        break;
      case Taking::Epilogue:
        more = reshard.epilogue;
        break;
      }
      if (reader.order && reshard.copy > 0 &&
          !loom::keepsOrder(reader.order, getLocalType(type, getValue(target), mesh).getShape()))
        more += reshard.copy;
      if (reader.isBeside)
        more -= reshard.hidden;
      entry->second.push_back(std::min(solver::infiniteCost, reshard.cost + more));
    }
  return entry->second;
}

solver::Cost SplitProblem::getSendCost(RankedTensorType type, ShardingAttr sharding) const {
  return toCost(mesh.getSeconds(cluster::Collective::Send,
                                static_cast<double>(getLocalBytes(type, sharding)), stageAxes));
}

std::pair<unsigned, size_t> SplitProblem::getSource(Value value) const {
  if (auto node = valueNodes.find(value); node != valueNodes.end())
    return {node->second, 0};
  Operation *producer = value.getDefiningOp();
  return {opNodes.lookup(producer),
          producer->getNumOperands() + cast<OpResult>(value).getResultNumber()};
}

std::pair<unsigned, size_t> SplitProblem::getSource(Value value, Operation *reader) const {
  auto node = received.find({value, getStage(reader)});
  return node == received.end() ? getSource(value) : std::pair(node->second, size_t(0));
}

/// Adds the cost to reshard what `from` makes for `to`; if one operation reads a value twice, both
/// times. Values for another stage are resharded before they are sent, once for each sharding.
void SplitProblem::addEdge(unsigned from, size_t fromTensor, unsigned to, size_t toTensor,
                           RankedTensorType type, Reader reader, Operation *payer,
                           Operation *receiver) {
  const Column &makes = nodes[from].tensors[fromTensor], &needs = nodes[to].tensors[toTensor];
  size_t rows = makes.of.size(), columns = needs.of.size();
  tableBytes += rows * columns * sizeof(solver::Cost) * (receiver ? 2 : 1);
  if (isTooLarge())
    return;
  bool isDeclared = nodes[from].splits.empty();
  const Table &table = getTable(type, makes, needs, isDeclared, reader);
  Table sent;
  if (receiver)
    for (ShardingAttr source : makes.shardings)
      for (ShardingAttr target : needs.shardings)
        sent.push_back(nodes[from].isReceived && source == target ? 0 : getSendCost(type, target));
  if (from == to) { // a state returned unchanged
    for (auto [cost, i] : llvm::zip_equal(nodes[from].costs, makes.of))
      cost += table[i * needs.shardings.size() + i];
    return;
  }
  Link &link = edges[std::minmax(from, to)];
  link.payer = payer;
  link.receiver = receiver;
  link.uses.push_back({from, to, fromTensor, toTensor, &table, std::move(sent)});
}

size_t SplitProblem::getPlace(const Use &use, size_t first, size_t second) const {
  const Column &makes = nodes[use.from].tensors[use.fromTensor];
  const Column &needs = nodes[use.to].tensors[use.toTensor];
  bool isSwapped = use.from > use.to;
  return makes.of[isSwapped ? second : first] * needs.shardings.size() +
         needs.of[isSwapped ? first : second];
}

solver::Cost SplitProblem::getReshards(const Link &link, size_t first, size_t second) const {
  solver::Cost cost = 0;
  for (const Use &use : link.uses)
    cost = std::min(solver::infiniteCost, cost + (*use.reshards)[getPlace(use, first, second)]);
  return cost;
}

solver::Cost SplitProblem::getTransfers(const Link &link, size_t first, size_t second) const {
  solver::Cost cost = 0;
  for (const Use &use : link.uses)
    if (!use.transfers.empty())
      cost += use.transfers[getPlace(use, first, second)];
  return cost;
}

/// A state's next value goes where the state is kept; other results go where the user wants them,
/// or stay where they are made.
void SplitProblem::connectReturn(func::FuncOp func) {
  auto terminator = cast<func::ReturnOp>(func.front().getTerminator());
  for (auto [i, value] : llvm::enumerate(terminator.getOperands())) {
    auto type = cast<RankedTensorType>(value.getType());
    unsigned node = getSource(value).first;
    auto state = func.getResultAttrOfType<StringAttr>(i, loom::kState);
    if (auto kept = stateNodes.find(state); state && kept != stateNodes.end()) {
      Operation *producer = value.getDefiningOp();
      addEdge(node, 0, kept->second, 0, type, {}, producer ? producer : terminator);
      continue;
    }
    auto given = func.getResultAttrOfType<ShardingAttr>(i, kSharding);
    if (!given)
      continue;
    for (auto [cost, strategy] : llvm::zip_equal(nodes[node].costs, nodes[node].tensors[0].of))
      cost = std::min(
          solver::infiniteCost,
          cost + findReshard(type, nodes[node].tensors[0].shardings[strategy], given).cost);
  }
}

/// The operation that pays to reshard a value: its producer, or the reader if that one floats.
static Operation *getPayer(Value value, Operation *reader) {
  Operation *producer = value.getDefiningOp();
  return producer && !isFloating(producer) ? producer : reader;
}

SplitProblem::Taking SplitProblem::getCutter(Value value, Operation *reader) const {
  Operation *producer = value.getDefiningOp();
  if (!producer || isFloating(producer) || isa<loom::GetWeightOp>(producer))
    return Taking::CutsItself;
  // In a bound only what any program pays: several readers may share a cut, or one may need none,
  // and only products and convolutions stay calls in all programs.
  bool cutsApart = boundsTime ? value.hasOneUse() && reader &&
                                    isa<loom::DotGeneralOp, loom::ConvolutionOp>(reader)
                              : !reader || !loom::readsAnywhere(reader, libraries);
  return cutsApart ? Taking::CutsApart : Taking::CutsItself;
}

SplitProblem::Reader SplitProblem::getReader(unsigned from, OpOperand &operand) const {
  Operation *reader = operand.getOwner();
  bool isDeclared = nodes[from].splits.empty();
  if (!isDeclared && loom::staysInRegisters(operand.get(), libraries))
    return {loom::isEpilogue(reader, libraries) ? Taking::Epilogue : Taking::SameKernel, {}};
  DenseI64ArrayAttr order;
  if (loom::isWrittenTransposed(reader, libraries))
    order = cast<loom::TransposeOp>(reader).getPermutationAttr();
  return {getCutter(operand.get(), reader), order};
}

void SplitProblem::connectReceived(Value value) {
  for (OpOperand *use : loom::listUses(value)) {
    auto [source, tensor] = getSource(value);
    auto [target, first] = getSource(value, use->getOwner());
    if (target != source && !edges.contains(std::minmax(source, target)))
      addEdge(source, tensor, target, first, cast<RankedTensorType>(value.getType()),
              {getCutter(value, nullptr), {}}, value.getDefiningOp(), use->getOwner());
  }
}

void SplitProblem::connectOperations(func::FuncOp func) {
  for (Operation &op : func.front().without_terminator()) {
    unsigned node = opNodes.lookup(&op);
    for (OpOperand &operand : op.getOpOperands()) {
      Value value = operand.get();
      auto [source, tensor] = getSource(value, &op);
      Reader reader = getReader(source, operand);
      reader.isBeside = hasWorkBeside(value, &op);
      addEdge(source, tensor, node, operand.getOperandNumber(),
              cast<RankedTensorType>(value.getType()), reader, getPayer(value, &op),
              nodes[source].isReceived ? &op : nullptr);
    }
    for (Value result : op.getResults())
      connectReceived(result);
    for (auto [i, result] : llvm::enumerate(op.getResults()))
      if (auto value = valueNodes.find(result); value != valueNodes.end())
        addEdge(node, op.getNumOperands() + i, value->second, 0,
                cast<RankedTensorType>(result.getType()),
                {getCutter(result, loom::getOnlyReader(result)),
                 {},
                 hasWorkBeside(result, llvm::to_vector(result.getUsers()))},
                result.use_empty() ? &op
                                   : getPayer(result, loom::listUses(result).front()->getOwner()));
  }
  connectReturn(func);
}

void SplitProblem::forEachCost(const solver::Assignment &assignment, bool transfers,
                               llvm::function_ref<void(Operation *, solver::Cost)> visit) const {
  for (auto [node, choice] : llvm::zip_equal(nodes, assignment))
    visit(node.payer, node.costs[choice]);
  for (const auto &[ends, link] : edges) {
    size_t first = assignment[ends.first], second = assignment[ends.second];
    visit(link.payer, getReshards(link, first, second));
    if (transfers && link.receiver) {
      visit(link.payer, getTransfers(link, first, second));
      visit(link.receiver, getTransfers(link, first, second));
    }
  }
}

double SplitProblem::getStepSeconds(const solver::Assignment &assignment) const {
  std::vector<double> parts(functions.size() * stages, 0);
  forEachCost(assignment, /*transfers=*/true,
              [&](Operation *op, solver::Cost cost) { parts[getPart(op)] += toSeconds(cost); });
  double seconds = 0;
  for (size_t i = 0; i < functions.size(); ++i) {
    auto own = llvm::ArrayRef(parts).slice(i * stages, stages);
    seconds += std::accumulate(own.begin(), own.end(), 0.0) +
               static_cast<double>(microbatches - 1) * *llvm::max_element(own);
  }
  return seconds;
}

double SplitProblem::getStepBound(solver::Cost cost) const {
  return toSeconds(cost) *
         (1 + static_cast<double>(microbatches - 1) / static_cast<double>(stages));
}

StageCosts SplitProblem::getStageCosts(const solver::Assignment &assignment) const {
  llvm::DenseMap<Operation *, double> seconds;
  forEachCost(assignment, /*transfers=*/false,
              [&](Operation *op, solver::Cost cost) { seconds[op] += toSeconds(cost); });
  llvm::DenseMap<Value, double> bytes;
  for (func::FuncOp func : functions)
    for (Operation &op : func.front().without_terminator())
      for (Value result : op.getResults())
        bytes[result] = static_cast<double>(
            getLocalBytes(cast<RankedTensorType>(result.getType()), getChosen(result, assignment)));
  return {[seconds](Operation *op) { return seconds.lookup(op); },
          [bytes](Value value) { return bytes.lookup(value); }};
}

/// The sharding of a value without a node: as it is made, or, if it is made in partial sums, as its
/// reader takes it. A weight whose storage was not given lies as its own node has it, whose memory
/// was counted.
ShardingAttr SplitProblem::getChosen(Value value, const solver::Assignment &assignment) const {
  if (value.getDefiningOp<loom::GetWeightOp>() && !getStorage(value)) {
    unsigned weight = opNodes.lookup(value.getDefiningOp());
    return nodes[weight].tensors.front().get(assignment[weight]);
  }
  auto [node, tensor] = getSource(value);
  ShardingAttr made = nodes[node].tensors[tensor].get(assignment[node]);
  if (made.getUnreduced().empty())
    return made;
  OpOperand &use = *value.getUses().begin();
  unsigned reader = opNodes.lookup(use.getOwner());
  return nodes[reader].tensors[use.getOperandNumber()].get(assignment[reader]);
}

void SplitProblem::apply(const solver::Assignment &assignment, StringRef origin) {
  auto set = [&](Value value) {
    ShardingAttr given = dist::getSharding(value);
    if (!given || !isClosed(given))
      setSharding(value, getChosen(value, assignment), origin);
  };
  for (func::FuncOp func : functions) {
    llvm::for_each(func.getArguments(), set);
    for (Operation &op : func.front().without_terminator()) {
      llvm::for_each(op.getResults(), set);
      unsigned node = opNodes.lookup(&op);
      if (!isa<loom::GetWeightOp>(op) && loom::getBodies(&op).empty())
        op.setAttr(kSplits, nodes[node].splits[assignment[node]]);
    }
  }
}

llvm::DenseSet<StringAttr> SplitProblem::getUsedAxes() const {
  llvm::DenseSet<StringAttr> used;
  auto visit = [&](Value value) {
    for (DimShardingAttr dim : dist::getSharding(value).getDims())
      used.insert_range(dim.getAxes());
  };
  auto visitWork = [&](Operation &op) {
    if (auto splits = op.getAttrOfType<SplitsAttr>(kSplits))
      for (DimShardingAttr factor : splits.getFactors())
        used.insert_range(factor.getAxes());
  };
  for (func::FuncOp func : functions) {
    llvm::for_each(func.getArguments(), visit);
    for (Operation &op : func.front().without_terminator()) {
      llvm::for_each(op.getResults(), visit);
      visitWork(op);
    }
  }
  return used;
}
