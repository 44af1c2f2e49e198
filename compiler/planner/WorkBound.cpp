//===- WorkBound.cpp - the least time of a program's work -----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/planner/WorkBound.h"

#include "dialects/dist/Factors.h"
#include "dialects/loom/Control.h"
#include "dialects/loom/Work.h"
#include "passes/shard/MicroBatches.h"
#include "passes/shard/StageCuts.h"

#include "llvm/ADT/EquivalenceClasses.h"

using namespace mlir;
using namespace gridloom;

/// In rising order. Takes sqrt(number) steps: a batch may be billions.
static std::vector<int64_t> listDivisors(int64_t number) {
  std::vector<int64_t> small, large;
  for (int64_t divisor = 1; divisor <= number / divisor; ++divisor) {
    if (number % divisor)
      continue;
    small.push_back(divisor);
    if (divisor != number / divisor)
      large.push_back(number / divisor);
  }
  small.insert(small.end(), large.rbegin(), large.rend());
  return small;
}

namespace {
/// The least time of one operation over all ways to divide its factors.
class Divisions {
public:
  Divisions(Operation *op, const cluster::Machine &machine)
      : work(op, machine, /*isBound=*/true), types(dist::getTensorTypes(op)),
        rule(cast<dist::ShardingRuleInterface>(op).getShardingRule()), parts(rule.sizes.size(), 1) {
    sizes.resize(types.size());
    for (RankedTensorType type : types)
      elementBytes.push_back(
          static_cast<double>(loom::getByteSize(type.clone(ArrayRef<int64_t>()))));
  }

  /// Tries all numbers of parts per factor whose product divides `devices`; `cut` further divides
  /// one parallel factor, or none.
  double findLeast(int64_t devices, int64_t cut) {
    least = std::numeric_limits<double>::infinity();
    divisors = listDivisors(devices);
    divide(0, devices);
    if (cut > 1)
      for (size_t factor = 0; factor < parts.size(); ++factor)
        if (rule.kinds[factor] == dist::FactorKind::Parallel && rule.sizes[factor] > 1) {
          parts[factor] = cut;
          divide(0, devices);
          parts[factor] = 1;
        }
    return least;
  }

private:
  void divide(size_t factor, int64_t devices) {
    if (factor == parts.size())
      return weigh();
    divide(factor + 1, devices);
    // A factor of one element cannot be divided. More parts than elements take as long as one part
    // per element, but that may be no divisor.
    if (rule.kinds[factor] == dist::FactorKind::NeedReplication || rule.sizes[factor] == 1)
      return;
    int64_t before = parts[factor];
    for (int64_t count : divisors) { // includes all divisors of the devices left
      if (count == 1 || devices % count)
        continue;
      parts[factor] = before * count;
      divide(factor + 1, devices / count);
      if (parts[factor] >= rule.sizes[factor])
        break;
    }
    parts[factor] = before;
  }

  static double roundUp(int64_t size, int64_t count) {
    int64_t part = (size + count - 1) / count;
    return static_cast<double>(part);
  }

  void weigh() {
    double share = 1;
    for (auto [size, count] : llvm::zip_equal(rule.sizes, parts))
      if (count > 1 && size > 0)
        share *= roundUp(size, count) / static_cast<double>(size);
    SmallVector<int64_t> first;
    for (auto [i, type] : llvm::enumerate(types)) {
      sizes[i] = elementBytes[i];
      for (auto [size, factors] : llvm::zip_equal(type.getShape(), rule.tensors[i])) {
        int64_t count = 1;
        for (int64_t factor : factors)
          count *= parts[factor];
        sizes[i] *= roundUp(size, count);
        if (i == 0)
          first.push_back((size + count - 1) / count);
      }
    }
    least = std::min(least, work.getSeconds(share, sizes, first));
  }

  loom::SharedWork work;
  SmallVector<RankedTensorType> types;
  dist::ShardingRule rule;
  SmallVector<int64_t> parts;       ///< by factor
  SmallVector<double> elementBytes; ///< by tensor
  SmallVector<double> sizes;        ///< by tensor, bytes of a device's part
  std::vector<int64_t> divisors;    ///< of the devices
  double least = 0;
};
} // namespace

WorkBound::WorkBound(ModuleOp module, const cluster::Machine &machine) : machine(machine) {
  for (auto func : module.getOps<func::FuncOp>())
    if (!loom::isBody(func))
      addProgram(func);
}

/// What decides the time of an operation: all but its values.
static std::string getKey(Operation *op, bool isCut, const loom::Libraries &libraries) {
  std::string key;
  llvm::raw_string_ostream os(key);
  os << op->getName() << (isCut ? " cut" : "") << op->getAttrDictionary().getAsOpaquePointer();
  for (RankedTensorType type : dist::getTensorTypes(op))
    os << ' ' << type.getAsOpaquePointer();
  os << ' ' << loom::describePlace(op, libraries);
  return key;
}

/// Numbers of micro-batches divide this: the rows of all inputs, which are cut along their leading
/// dimension. 1 with states, loops or branches, which are not cut.
static int64_t getBatch(func::FuncOp func) {
  bool isWhole = false;
  func.walk([&](Operation *op) { isWhole |= loom::isControl(op); });
  return isWhole ? 1 : std::max<int64_t>(1, countRows(func));
}

/// The operation that makes the value, without broadcasts; null for inputs, weights and constants,
/// which are in every stage that reads them.
static Operation *getAnchor(Value value) {
  Operation *maker = value.getDefiningOp();
  while (maker && isFloating(maker))
    maker = maker->getNumOperands() ? maker->getOperand(0).getDefiningOp() : nullptr;
  return maker;
}

static int64_t countPieces(func::FuncOp func) {
  llvm::EquivalenceClasses<Operation *> pieces;
  for (Operation &op : func.front().without_terminator()) {
    if (isFloating(&op))
      continue;
    pieces.insert(&op);
    for (Value operand : op.getOperands())
      if (Operation *maker = getAnchor(operand))
        pieces.unionSets(maker, &op);
  }
  return static_cast<int64_t>(pieces.getNumClasses());
}

void WorkBound::addProgram(func::FuncOp func) {
  Program program;
  program.batch = getBatch(func);
  program.pieces = countPieces(func);
  llvm::DenseMap<Operation *, double> runs = {{func, 1}};
  SmallVector<func::FuncOp> functions = {func};
  loom::forEachBody(func, [&](Operation *op, func::FuncOp body) {
    auto loop = dyn_cast<loom::WhileOp>(op);
    runs[body] = (loop ? static_cast<double>(loop.getTrips().value_or(1)) : 1) *
                 runs.lookup(op->getParentOp());
    functions.push_back(body);
  });
  double launch = loom::getLaunchSeconds(machine);
  loom::Libraries libraries = loom::Libraries::of(machine, /*isBound=*/true);
  llvm::StringMap<size_t> numbers;
  for (func::FuncOp function : functions) {
    // Values computed from an input: micro-batches cut all of them.
    llvm::DenseSet<Value> fromInputs(function.args_begin(), function.args_end());
    for (Operation &op : function.front().without_terminator()) {
      bool isCut = llvm::any_of(op.getOperands(),
                                [&](Value operand) { return fromInputs.contains(operand); });
      if (isCut)
        fromInputs.insert_range(op.getResults());
      if (!isa<loom::CostInterface>(op) || !isa<dist::ShardingRuleInterface>(op) ||
          loom::isControl(&op))
        continue;
      if (loom::findPlace(&op, libraries) == loom::Place::Kernel &&
          loom::getComputeSeconds(&op, machine) > 0)
        program.launches += runs.lookup(function) * launch;
      auto [entry, isNew] =
          numbers.try_emplace(getKey(&op, isCut, libraries), program.kinds.size());
      if (isNew)
        program.kinds.push_back({&op, isCut});
      program.kinds[entry->second].times += runs.lookup(function);
    }
  }
  programs.push_back(std::move(program));
}

double WorkBound::getSeconds(const Kind &kind, int64_t devices, int64_t microbatches) {
  int64_t cut = kind.isCut ? microbatches : 1;
  auto [entry, isNew] = known.try_emplace({kind.op, devices, cut}, 0);
  if (isNew)
    entry->second = Divisions(kind.op, machine).findLeast(devices, cut);
  return entry->second;
}

double WorkBound::getSeconds(const Program &program, int64_t devices, int64_t microbatches) {
  double seconds = 0;
  for (const Kind &kind : program.kinds)
    seconds += kind.times * getSeconds(kind, devices, microbatches);
  return seconds;
}

double WorkBound::getSeconds(int64_t devices) {
  double seconds = 0;
  for (const Program &program : programs)
    seconds += getSeconds(program, devices, 1);
  return seconds;
}

/// For a micro-batch, in sending and receiving stages together.
double WorkBound::getTransferSeconds(const Program &program, int64_t stages) const {
  double latency = std::numeric_limits<double>::infinity();
  for (const cluster::Level &level : machine.levels)
    latency = std::min(latency, level.latencySeconds);
  auto transfers = static_cast<double>(std::max<int64_t>(0, stages - program.pieces));
  return machine.levels.empty() ? 0 : 2 * transfers * (cluster::getStartSeconds(machine) + latency);
}

/// The least over all numbers of micro-batches above one. Each micro-batch launches every
/// operation.
double WorkBound::getMicroBatchedSeconds(const Program &program, int64_t devices, int64_t stages,
                                         double most) {
  double least = most;
  for (int64_t count : listDivisors(program.batch)) {
    if (count == 1)
      continue;
    double times = 1 + static_cast<double>(count - 1) / static_cast<double>(stages);
    if (times * program.launches >= least)
      break;
    least = std::min(least, times * (getSeconds(program, devices / stages, count) +
                                     getTransferSeconds(program, stages)));
  }
  return least;
}

double WorkBound::getStagedSeconds(int64_t devices, double most,
                                   llvm::function_ref<double(int64_t stages)> getSearched) {
  double least = most;
  for (int64_t stages = 2; stages <= devices; ++stages) {
    if (devices % stages)
      continue;
    // If no program has micro-batches, and if at least one has.
    double whole = 0, mixed = 0, transfers = 0, extra = std::numeric_limits<double>::infinity();
    for (const Program &program : programs) {
      double transfer = getTransferSeconds(program, stages),
             alone = getSeconds(program, devices / stages, 1) + transfer,
             parts = getMicroBatchedSeconds(program, devices, stages, most);
      whole += alone;
      transfers += transfer;
      mixed += std::min(alone, parts);
      extra = std::min(extra, std::max(0.0, parts - alone));
    }
    mixed += extra;
    if (getSearched && whole < std::min(mixed, least))
      whole = std::max(whole, getSearched(stages) + transfers);
    least = std::min({least, whole, mixed});
  }
  return least;
}
