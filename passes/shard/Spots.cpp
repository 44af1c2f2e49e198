//===- Spots.cpp - the values of a program that can be split, by name -----===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/shard/Spots.h"

#include "dialects/loom/Control.h"
#include "passes/shard/StageCuts.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/Support/JSON.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

RankedTensorType Spot::getType() const {
  return cast<RankedTensorType>(value ? value.getType()
                                      : func::FuncOp(func).getResultTypes()[result]);
}

ShardingAttr Spot::get() const {
  return value ? getSharding(value)
               : func::FuncOp(func).getResultAttrOfType<ShardingAttr>(result, kSharding);
}

std::string Spot::getOrigin() const {
  auto origin = value ? gridloom::dist::getOrigin(value)
                      : func::FuncOp(func).getResultAttrOfType<OriginAttr>(result, kOrigin);
  return origin ? origin.describe() : "";
}

void Spot::set(ShardingAttr sharding, StringRef origin) const {
  if (value)
    return setSharding(value, sharding, origin);
  func::FuncOp target = func;
  target.setResultAttr(result, kSharding, sharding);
  target.setResultAttr(result, kOrigin, OriginAttr::get(target.getContext(), origin));
}

//===----------------------------------------------------------------------===//
// Names
//===----------------------------------------------------------------------===//

std::string gridloom::getFirstNode(Operation *op) {
  std::string nodes = loom::getNodeName(op->getLoc());
  StringRef first = StringRef(nodes).split(" + ").first;
  return first.empty() ? op->getName().stripDialect().str() : llvm::json::fixUTF8(first);
}

namespace {
/// Makes names unique.
class Names {
public:
  std::string take(std::string name) {
    int &count = uses[name];
    if (++count == 1)
      return name;
    return take(name + "#" + std::to_string(count));
  }

private:
  llvm::StringMap<int> uses;
};
} // namespace

/// Names the operations of a list, in their order.
static SmallVector<NamedOp, 0> nameOps(ArrayRef<Operation *> ops, StringRef scope, Names &names) {
  llvm::StringMap<Operation *> last;
  SmallVector<NamedOp, 0> named;
  for (Operation *op : ops) {
    named.push_back({"", scope.str() + getFirstNode(op), op});
    last[named.back().base] = op;
  }
  // A node's own name must not go to an inner operation of another node.
  for (NamedOp &entry : named)
    if (last.lookup(entry.base) == entry.op)
      entry.full = names.take(entry.base);
  for (NamedOp &entry : named)
    if (entry.full.empty())
      entry.full = names.take(entry.base + ":" + entry.op->getName().stripDialect().str());
  return named;
}

SmallVector<NamedOp, 0> gridloom::nameStagedOps(func::FuncOp func) {
  SmallVector<Operation *> ops;
  for (Operation &op : func.front().without_terminator())
    if (!isFloating(&op))
      ops.push_back(&op);
  Names names;
  return nameOps(ops, "", names);
}

/// The program's name of a weight, or the model's if it is only another form of one of the model's
/// weights.
static std::string getWeightName(loom::GetWeightOp weight, const llvm::StringSet<> &stored) {
  std::string node = loom::getNodeName(weight.getLoc());
  return llvm::json::fixUTF8(stored.contains(node) ? StringRef(node) : weight.getName());
}

namespace {
class SpotNamer {
public:
  SpotNamer(SmallVector<NamedSpot, 0> &spots, ModuleOp module) : spots(spots) {
    for (auto weight : module.getOps<loom::WeightOp>())
      stored.insert(weight.getSymName());
  }

  void addOps(func::FuncOp func, const std::string &scope) {
    SmallVector<Operation *> ops;
    for (Operation &op : func.front().without_terminator()) {
      if (auto weight = dyn_cast<loom::GetWeightOp>(op)) {
        std::string base = getWeightName(weight, stored);
        spots.push_back({StrategySection::Weights, weights.take(base), base, {weight.getResult()}});
      } else {
        ops.push_back(&op);
      }
    }
    for (const NamedOp &named : nameOps(ops, scope, nodes)) {
      for (auto [i, value] : llvm::enumerate(named.op->getResults())) {
        std::string name = i ? named.full + ":" + std::to_string(i) : named.full;
        spots.push_back({StrategySection::Nodes, name, name, {value}});
      }
      for (auto [i, link] : llvm::enumerate(loom::getBodies(named.op))) {
        const char *part = isa<loom::IfOp>(named.op) ? (i == 0 ? "/then/" : "/else/") : "/body/";
        addOps(link.body, named.full + part);
      }
    }
  }

private:
  SmallVector<NamedSpot, 0> &spots;
  Names nodes, weights;
  llvm::StringSet<> stored; ///< the model's weights
};
} // namespace

/// The name of an argument or result; its position if it has none.
static std::string getBindingName(DictionaryAttr attributes, unsigned position) {
  auto name = attributes ? attributes.getAs<StringAttr>(loom::kName) : StringAttr();
  return name ? llvm::json::fixUTF8(name.getValue()) : std::to_string(position);
}

SmallVector<NamedSpot, 0> gridloom::nameSpots(func::FuncOp func) {
  SmallVector<NamedSpot, 0> spots;
  Names inputs, outputs;
  for (BlockArgument argument : func.getArguments()) {
    unsigned i = argument.getArgNumber();
    std::string name = inputs.take(getBindingName(func.getArgAttrDict(i), i));
    spots.push_back({StrategySection::Inputs, name, name, {argument}});
  }
  for (unsigned i = 0; i < func.getNumResults(); ++i) {
    std::string name = outputs.take(getBindingName(func.getResultAttrDict(i), i));
    spots.push_back({StrategySection::Outputs, name, name, {Value(), func, i}});
  }
  SpotNamer(spots, func->getParentOfType<ModuleOp>()).addOps(func, "");
  return spots;
}

std::string gridloom::nameSpecialisation(func::FuncOp func) {
  auto entry = func->getAttrOfType<StringAttr>(loom::kEntry);
  std::string text = entry ? entry.str() : func.getSymName().str(), separator = " ";
  if (auto dims = func->getAttrOfType<DictionaryAttr>(loom::kDims))
    for (NamedAttribute dim : dims) {
      text += separator + dim.getName().str() + "=" +
              std::to_string(cast<IntegerAttr>(dim.getValue()).getInt());
      separator = ",";
    }
  return llvm::json::fixUTF8(text);
}

SmallVector<func::FuncOp> gridloom::listSpecialisations(ModuleOp module) {
  SmallVector<func::FuncOp> functions;
  for (auto func : module.getOps<func::FuncOp>())
    if (!loom::isBody(func))
      functions.push_back(func);
  return functions;
}

//===----------------------------------------------------------------------===//
// States
//===----------------------------------------------------------------------===//

std::optional<StateConflict> gridloom::findStateConflict(ModuleOp module) {
  llvm::MapVector<StringAttr, SmallVector<std::pair<Spot, std::string>>> states;
  for (func::FuncOp func : listSpecialisations(module)) {
    for (BlockArgument argument : func.getArguments()) {
      unsigned i = argument.getArgNumber();
      if (auto state = func.getArgAttrOfType<StringAttr>(i, loom::kState))
        states[state].push_back(
            {{argument}, "input '" + getBindingName(func.getArgAttrDict(i), i) + "'"});
    }
    for (unsigned i = 0; i < func.getNumResults(); ++i)
      if (auto state = func.getResultAttrOfType<StringAttr>(i, loom::kState))
        states[state].push_back(
            {{Value(), func, i}, "output '" + getBindingName(func.getResultAttrDict(i), i) + "'"});
  }
  for (const auto &[state, places] : states) {
    const std::pair<Spot, std::string> *pinned = nullptr;
    for (const auto &place : places) {
      ShardingAttr sharding = place.first.get();
      // An open sharding follows the others.
      if (!sharding ||
          llvm::any_of(sharding.getDims(), [](DimShardingAttr dim) { return dim.getOpen(); }))
        continue;
      if (pinned && pinned->first.get() != sharding)
        return StateConflict{state.getValue(), pinned->first, place.first, pinned->second,
                             place.second};
      pinned = pinned ? pinned : &place;
    }
  }
  return std::nullopt;
}

void gridloom::joinStates(ModuleOp module) {
  for (auto func : module.getOps<func::FuncOp>())
    for (unsigned i = 0; i < func.getNumResults(); ++i) {
      auto state = func.getResultAttrOfType<StringAttr>(i, loom::kState);
      auto sharding = func.getResultAttrOfType<ShardingAttr>(i, kSharding);
      if (!state || !sharding)
        continue;
      for (BlockArgument argument : func.getArguments())
        if (func.getArgAttrOfType<StringAttr>(argument.getArgNumber(), loom::kState) == state)
          setSharding(argument, sharding, func.getResultAttrOfType<OriginAttr>(i, kOrigin));
    }
}
