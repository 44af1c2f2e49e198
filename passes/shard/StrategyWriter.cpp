//===- StrategyWriter.cpp - a program's shardings as a strategy file ------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/shard/StrategyWriter.h"

#include "dialects/dist/Splits.h"
#include "passes/shard/FactorNames.h"
#include "passes/shard/MicroBatches.h"
#include "passes/shard/NamePatterns.h"
#include "passes/shard/Shard.h"
#include "passes/shard/Spots.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

std::vector<DimSplit> gridloom::getSplit(const Sharding &sharding) {
  std::vector<DimSplit> dims;
  for (const Sharding::Dim &dim : sharding.dims) {
    DimSplit &split = dims.emplace_back();
    for (StringAttr axis : dim.axes)
      split.axes.push_back(axis.str());
    split.granule = dim.axes.empty() ? 1 : dim.granule;
  }
  return dims;
}

std::string gridloom::printSharding(const Sharding &sharding) {
  std::vector<std::string> unreduced;
  for (StringAttr axis : sharding.unreduced)
    unreduced.push_back(axis.str());
  return printSplit(getSplit(sharding), unreduced);
}

namespace {
/// The names and texts of a specialisation, by section.
using Texts = std::array<std::vector<NamedText>, kNumStrategySections>;

class Collector {
public:
  explicit Collector(ModuleOp module) : module(module), mesh(Mesh::get(module)) {
    if (auto axis = module->getAttrOfType<StringAttr>(kStageAxis))
      stageAxis = axis;
  }
  StrategyFile run();

private:
  void describeMesh(StrategyFile &file) const;
  void describeUnpacked(StrategyFile &file);
  Texts describe(func::FuncOp func) const;
  std::optional<NamedText> describeSplits(const NamedSpot &named) const;
  bool isForced(const Spot &spot, const Sharding &sharding) const;

  ModuleOp module;
  Mesh mesh;
  StringAttr stageAxis;
};
} // namespace

void Collector::describeMesh(StrategyFile &file) const {
  for (const Mesh::Axis &axis : mesh.getAxes()) {
    if (axis.name.getValue() == MeshOp::kMicroAxis)
      file.microbatches = axis.size;
    else
      file.mesh.push_back({axis.name.str(), axis.size});
  }
  if (stageAxis)
    file.stageAxis = stageAxis.str();
  if (std::optional<int64_t> parts = getTrainedParts(module))
    file.microbatches = *parts;
}

/// The nodes whose weights were unpacked, as patterns if these match no other node.
void Collector::describeUnpacked(StrategyFile &file) {
  auto unpacked = module->getAttrOfType<ArrayAttr>(kUnpacked);
  if (!unpacked)
    return;
  llvm::StringSet<> names;
  for (auto name : unpacked.getAsRange<StringAttr>())
    names.insert(name.getValue());
  std::vector<NamedText> texts;
  llvm::StringSet<> seen;
  module.walk([&](loom::DotGeneralOp dot) {
    std::string name = getFirstNode(dot);
    bool isUnpacked = names.contains(name);
    if (seen.insert(name).second)
      texts.push_back({name, name, isUnpacked ? "unpack" : "", isUnpacked});
  });
  std::vector<std::pair<std::string, std::string>> folded = foldNames(texts, FoldStyle::Repeats);
  bool fits = llvm::none_of(folded, [](const auto &line) { return line.second.empty(); });
  for (const auto &[key, text] : folded)
    if (fits)
      file.unpack.emplace_back().key = key;
  for (const NamedText &name : texts)
    if (!fits && name.needed)
      file.unpack.emplace_back().key = name.full;
}

/// The shardings in which an operation's splits make its results.
static SmallVector<Sharding> getMade(Operation *op, const Mesh &mesh) {
  ShardingRule rule = cast<ShardingRuleInterface>(op).getShardingRule();
  FailureOr<OpSplits> splits = readSplits(op, rule, mesh); // VerifySharded has seen them
  return to_vector(
      ArrayRef(getSplitShardings(op, rule, *splits, mesh)).take_back(op->getNumResults()));
}

/// Whether the sharding is the only possible one.
bool Collector::isForced(const Spot &spot, const Sharding &sharding) const {
  RankedTensorType type = spot.getType();
  if (auto result = dyn_cast_or_null<OpResult>(spot.value);
      result && result.getOwner()->hasAttr(kSplits) &&
      !getMade(result.getOwner(), mesh)[result.getResultNumber()].unreduced.empty())
    return false; // the file has to say where it is reduced
  return type.getRank() == 0 ||
         (type.getNumElements() == 1 &&
          llvm::all_of(sharding.dims, [](const Sharding::Dim &dim) { return dim.axes.empty(); }) &&
          llvm::none_of(mesh.getAxes(), [](const Mesh::Axis &axis) { return axis.size == 1; }));
}

/// How an operation, named by its first result, is split; only needed if its tensors' shardings
/// imply something else.
std::optional<NamedText> Collector::describeSplits(const NamedSpot &named) const {
  auto result = dyn_cast_or_null<OpResult>(named.spot.value);
  if (named.section != StrategySection::Nodes || !result || result.getResultNumber() > 0)
    return std::nullopt;
  Operation *op = result.getOwner();
  auto attr = op->getAttrOfType<SplitsAttr>(kSplits);
  if (!attr)
    return std::nullopt;
  ShardingRule rule = cast<ShardingRuleInterface>(op).getShardingRule();
  OpSplits implied;
  implied.factors = *getImpliedSplits(op, rule, mesh); // every value has a sharding
  std::vector<FactorSplit> factors;
  for (auto [name, factor] : llvm::zip_equal(getFactorNames(op, rule), attr.getFactors())) {
    if (factor.getAxes().empty())
      continue;
    FactorSplit &split = factors.emplace_back();
    split.name = name;
    split.split.granule = factor.getGranule();
    for (StringAttr axis : factor.getAxes())
      split.split.axes.push_back(axis.str());
  }
  bool isImplied = implied.getAttr(op->getContext()).getFactors() == attr.getFactors();
  return NamedText{named.full, named.base, printFactors(factors), /*needed=*/!isImplied};
}

Texts Collector::describe(func::FuncOp func) const {
  Texts texts;
  if (mesh.getAxes().empty())
    return texts; // there is nothing to decide
  for (const NamedSpot &named : nameSpots(func)) {
    ShardingAttr attr = named.spot.get();
    if (!attr)
      continue;
    Sharding sharding(attr);
    texts[static_cast<size_t>(named.section)].push_back(
        {named.full, named.base, printSharding(sharding),
         /*needed=*/!isForced(named.spot, sharding)});
    if (std::optional<NamedText> splits = describeSplits(named))
      texts[static_cast<size_t>(StrategySection::Splits)].push_back(std::move(*splits));
    if (ShardingAttr storage = named.spot.value ? getStorage(named.spot.value) : ShardingAttr())
      texts[static_cast<size_t>(StrategySection::Storage)].push_back(
          {named.full, named.base, printSharding(Sharding(storage)),
           /*needed=*/Sharding(storage) != sharding});
  }
  if (!stageAxis)
    return texts;
  for (const NamedOp &named : nameStagedOps(func))
    if (auto stage = named.op->getAttrOfType<IntegerAttr>(kStage))
      texts[static_cast<size_t>(StrategySection::Stages)].push_back(
          {named.full, named.base, std::to_string(stage.getInt())});
  return texts;
}

/// The specialisation with the largest inputs: its splits suit other sizes best.
static func::FuncOp findLargest(ArrayRef<func::FuncOp> functions) {
  auto countElements = [](func::FuncOp func) {
    int64_t count = 0;
    for (Type type : func.getArgumentTypes())
      count += cast<RankedTensorType>(type).getNumElements();
    return count;
  };
  return *llvm::max_element(functions, [&](func::FuncOp a, func::FuncOp b) {
    return countElements(a) < countElements(b);
  });
}

static std::vector<StrategyLine> fold(ArrayRef<NamedText> names, StrategySection section) {
  std::vector<StrategyLine> lines;
  for (auto &[key, text] : foldNames(
           names, section == StrategySection::Stages ? FoldStyle::Prefixes : FoldStyle::Repeats)) {
    StrategyLine &line = lines.emplace_back();
    line.key = key;
    line.text = text;
  }
  return lines;
}

/// Sets `needed` of the names that common lines apply to, to whether these say something else.
/// Returns whether no name is needed.
static bool findDifferences(ArrayRef<StrategyLine> common, std::vector<NamedText> &names) {
  SmallVector<StringRef> keys;
  for (const StrategyLine &line : common)
    keys.push_back(line.key);
  NameTable table(keys);
  bool same = true;
  for (NamedText &name : names) {
    auto found = table.find(name.full, name.base);
    if (!found.empty())
      name.needed = llvm::any_of(found, [&](unsigned i) { return common[i].text != name.text; });
    same &= !name.needed;
  }
  return same;
}

StrategyFile Collector::run() {
  StrategyFile file;
  describeMesh(file);
  describeUnpacked(file);
  SmallVector<func::FuncOp> functions = listSpecialisations(module);
  if (functions.empty())
    return file;
  func::FuncOp largest = findLargest(functions);
  std::vector<std::pair<func::FuncOp, Texts>> all;
  for (func::FuncOp func : functions)
    all.emplace_back(func, describe(func));
  // Names that the largest lacks are taken from the first that has them.
  llvm::stable_sort(all, [&](const auto &a, const auto &b) {
    return (a.first == largest) > (b.first == largest);
  });
  for (size_t section = 0; section < kNumStrategySections; ++section) {
    std::vector<NamedText> names;
    llvm::StringSet<> seen;
    for (const auto &[func, texts] : all)
      for (const NamedText &name : texts[section])
        if (seen.insert(name.full).second)
          names.push_back(name);
    file.common.sections[section] = fold(names, static_cast<StrategySection>(section));
  }
  for (auto &[func, texts] : all) {
    StrategyException exception;
    exception.name = nameSpecialisation(func);
    bool same = true;
    for (size_t section = 0; section < kNumStrategySections; ++section) {
      if (findDifferences(file.common.sections[section], texts[section]))
        continue;
      same = false;
      exception.table.sections[section] =
          fold(texts[section], static_cast<StrategySection>(section));
    }
    if (!same)
      file.specialisations.push_back(std::move(exception));
  }
  return file;
}

StrategyFile gridloom::collectStrategy(ModuleOp module) { return Collector(module).run(); }
