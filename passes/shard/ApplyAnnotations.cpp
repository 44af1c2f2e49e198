//===- ApplyAnnotations.cpp - the user's shardings --------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/dist/Splits.h"
#include "passes/shard/DeviceConfiguration.h"
#include "passes/shard/NamePatterns.h"
#include "passes/shard/Shard.h"
#include "passes/shard/Spots.h"

#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

namespace gridloom {
#define GEN_PASS_DEF_APPLYANNOTATIONS
#include "passes/shard/Passes.h.inc"
} // namespace gridloom

namespace {
/// One --shard: its text, the name and, per dimension, the axes.
struct Annotation {
  StringRef text, name;
  bool isExact = false;   ///< not a pattern, even if the name has a star
  bool isStorage = false; ///< NAME=stored[{axis},...]: how a weight or state lies in memory
  SmallVector<SmallVector<StringRef>> dims;
  SmallVector<StringRef> unreduced; ///< partial sums' axes: the last entry {unreduced:{axis,...}}
};

struct ApplyAnnotationsPass : public gridloom::impl::ApplyAnnotationsBase<ApplyAnnotationsPass> {
  using ApplyAnnotationsBase::ApplyAnnotationsBase;

  void runOnOperation() override {
    MeshOp meshOp = getMesh(getOperation());
    // The model's own come first: the command line may add to them.
    std::string stored = getStoredLines();
    if (failed(applyAnnotations(getOperation(), stageAxis)) || failed(applyStored(stored, meshOp)))
      return signalPassFailure();
    if (!shard.empty() && !meshOp) {
      getOperation().emitError("shardings need a mesh; none was declared");
      return signalPassFailure();
    }
    for (const std::string &text : shard)
      if (failed(applyOne(text, Mesh(meshOp))))
        return signalPassFailure();
    if (failed(checkStates()))
      return signalPassFailure();
    joinStates(getOperation());
  }

private:
  std::string getStoredLines();
  LogicalResult applyStored(StringRef lines, MeshOp meshOp);
  LogicalResult parse(StringRef text, Annotation &annotation);
  LogicalResult check(const Annotation &annotation, const Mesh &mesh);
  FailureOr<ShardingAttr> makeSharding(const Annotation &annotation, RankedTensorType type,
                                       const Mesh &mesh);
  LogicalResult applyOne(StringRef text, const Mesh &mesh, bool isExact = false);
  LogicalResult place(const Annotation &annotation, const Mesh &mesh, Spot spot);
  LogicalResult checkStates();
  std::string describePin(const Spot &spot) const;
  LogicalResult applyStorage(const Annotation &annotation, const Mesh &mesh);
  LogicalResult placeStorage(const Annotation &annotation, const Mesh &mesh, Value value);

  /// The --shard that set a spot's sharding.
  llvm::DenseMap<std::pair<const void *, unsigned>, StringRef> texts;
  /// The --shard that set a value's storage.
  llvm::DenseMap<Value, StringRef> storageTexts;
};
} // namespace

/// The lines of the model's annotations that say how weights and states lie in memory.
std::string ApplyAnnotationsPass::getStoredLines() {
  auto annotations = getOperation()->getAttrOfType<DictionaryAttr>(kAnnotations);
  auto lines = annotations ? annotations.getAs<StringAttr>("storage") : StringAttr();
  return lines ? lines.str() : "";
}

LogicalResult ApplyAnnotationsPass::applyStored(StringRef lines, MeshOp meshOp) {
  for (StringRef line : llvm::split(lines, '\n'))
    if (meshOp && line.contains("=stored[")) {
      // Interned, because errors about contradictions quote it later.
      bool isPattern = false;
      std::string text = unescapeStored(line, isPattern);
      StringRef kept = StringAttr::get(&getContext(), text).getValue();
      if (failed(applyOne(kept, Mesh(meshOp), !isPattern)))
        return failure();
    }
  return success();
}

LogicalResult ApplyAnnotationsPass::parse(StringRef text, Annotation &annotation) {
  annotation.text = text;
  // The name may hold '='; the sharding starts at the last "=[".
  constexpr StringLiteral stored = "=stored[";
  size_t split = text.rfind(stored), start = split + stored.size();
  annotation.isStorage = split != StringRef::npos;
  if (!annotation.isStorage) {
    split = text.rfind("=[");
    start = split + 2;
  }
  auto malformed = [&] {
    return getOperation().emitError("cannot read --shard '")
           << text << "'; write NAME=[{axis,...},{},...]";
  };
  auto readAxes = [](StringRef list) {
    SmallVector<StringRef> axes;
    for (StringRef axis : llvm::split(list, ','))
      if (StringRef name = axis.trim().trim('"'); !name.empty())
        axes.push_back(name);
    return axes;
  };
  if (split == StringRef::npos || split == 0 || !text.ends_with("]"))
    return malformed();
  annotation.name = text.take_front(split);
  StringRef body = text.drop_front(start).drop_back().trim();
  while (!body.empty()) {
    size_t close = body.find('}');
    if (!body.consume_front("{") || close == StringRef::npos)
      return malformed();
    StringRef list = body.take_front(close - 1).trim();
    body = body.drop_front(close).ltrim();
    if (list.consume_front("unreduced")) {
      list = list.ltrim();
      bool isList = list.consume_front(":");
      list = list.ltrim();
      if (!isList || !list.consume_front("{") || body != "}" || annotation.isStorage)
        return malformed();
      annotation.unreduced = readAxes(list);
      return success();
    }
    annotation.dims.push_back(readAxes(list));
    if (body.consume_front(","))
      body = body.ltrim();
    else if (!body.empty())
      return malformed();
  }
  return success();
}

LogicalResult ApplyAnnotationsPass::check(const Annotation &annotation, const Mesh &mesh) {
  llvm::StringSet<> seen;
  SmallVector<SmallVector<StringRef>> lists = annotation.dims;
  lists.push_back(annotation.unreduced);
  for (const auto &axes : lists)
    for (StringRef axis : axes) {
      if (llvm::none_of(mesh.getAxes(),
                        [&](const Mesh::Axis &known) { return known.name == axis; })) {
        std::string names;
        for (const Mesh::Axis &known : mesh.getAxes())
          names += (names.empty() ? "" : ", ") + known.name.str();
        return getOperation().emitError("--shard '")
               << annotation.name << "' names axis '" << axis << "'; the mesh has " << names;
      }
      if (!seen.insert(axis).second)
        return getOperation().emitError("--shard '")
               << annotation.name << "' names axis '" << axis << "' twice";
      if (axis == stageAxis && mesh.getSize(StringAttr::get(&getContext(), axis)) > 1)
        return getOperation().emitError("--shard '")
               << annotation.name << "' names axis '" << axis
               << "', along which devices run different pipeline stages; use another axis";
    }
  return success();
}

FailureOr<ShardingAttr> ApplyAnnotationsPass::makeSharding(const Annotation &annotation,
                                                           RankedTensorType type,
                                                           const Mesh &mesh) {
  if (static_cast<int64_t>(annotation.dims.size()) != type.getRank()) {
    getOperation().emitError("--shard '") << annotation.name << "' has " << annotation.dims.size()
                                          << " dimensions; the value is " << type;
    return failure();
  }
  Sharding sharding;
  for (const auto &axes : annotation.dims) {
    Sharding::Dim dim;
    for (StringRef axis : axes)
      dim.axes.push_back(StringAttr::get(&getContext(), axis));
    sharding.dims.push_back(dim);
  }
  for (StringRef axis : annotation.unreduced)
    sharding.unreduced.push_back(StringAttr::get(&getContext(), axis));
  return sharding.getAttr(mesh);
}

LogicalResult ApplyAnnotationsPass::place(const Annotation &annotation, const Mesh &mesh,
                                          Spot spot) {
  FailureOr<ShardingAttr> sharding = makeSharding(annotation, spot.getType(), mesh);
  if (failed(sharding))
    return failure();
  Operation *maker = spot.value ? spot.value.getDefiningOp() : nullptr;
  if (!annotation.unreduced.empty() && (!maker || isa<loom::GetWeightOp>(maker)))
    return getOperation().emitError("--shard '")
           << annotation.text << "' declares '" << annotation.name
           << "' unreduced, which is an input, output or weight; only nodes leave partial sums";
  StringRef &text = texts[spot.getKey()];
  if (ShardingAttr before = spot.get(); before && before != *sharding) {
    return getOperation().emitError("--shard '")
           << annotation.text << "' contradicts " << describePin(spot) << "; keep one of them";
  }
  text = annotation.text;
  spot.set(*sharding, "user");
  return success();
}

/// Who asked for the sharding of a spot: "--shard 'x=[{data}]'".
std::string ApplyAnnotationsPass::describePin(const Spot &spot) const {
  if (StringRef text = texts.lookup(spot.getKey()); !text.empty())
    return ("--shard '" + text + "'").str();
  std::string sharding;
  llvm::raw_string_ostream(sharding) << spot.get();
  return "the " + spot.getOrigin() + ", which is " + sharding;
}

/// Requires a state to have one sharding, as input and as output.
LogicalResult ApplyAnnotationsPass::checkStates() {
  std::optional<StateConflict> conflict = findStateConflict(getOperation());
  if (!conflict)
    return success();
  return getOperation().emitError()
         << describePin(conflict->second) << " contradicts " << describePin(conflict->first) << ": "
         << conflict->firstName << " and " << conflict->secondName
         << " are one state; keep one of them";
}

LogicalResult ApplyAnnotationsPass::placeStorage(const Annotation &annotation, const Mesh &mesh,
                                                 Value value) {
  FailureOr<ShardingAttr> sharding =
      makeSharding(annotation, cast<RankedTensorType>(value.getType()), mesh);
  if (failed(sharding))
    return failure();
  if (ShardingAttr before = getStorage(value); before && before != *sharding)
    return getOperation().emitError("--shard '")
           << annotation.text << "' contradicts --shard '" << storageTexts.lookup(value)
           << "'; keep one of them";
  storageTexts[value] = annotation.text;
  setStorage(value, *sharding);
  return success();
}

LogicalResult ApplyAnnotationsPass::applyStorage(const Annotation &annotation, const Mesh &mesh) {
  SmallVector<Value> values;
  auto isMeant = [&](StringRef name) {
    return annotation.isExact ? name == annotation.name : matchesPattern(annotation.name, name);
  };
  auto named = [&](DictionaryAttr attrs) {
    auto name = attrs ? attrs.getAs<StringAttr>(loom::kName) : StringAttr();
    return name && isMeant(name.getValue());
  };
  for (auto func : getOperation().getOps<func::FuncOp>()) {
    for (BlockArgument argument : func.getArguments()) {
      DictionaryAttr attrs = func.getArgAttrDict(argument.getArgNumber());
      if (attrs && attrs.get(loom::kState) && named(attrs))
        values.push_back(argument);
    }
    for (auto weight : func.getOps<loom::GetWeightOp>())
      if (isMeant(weight.getName()))
        values.push_back(weight.getOutput());
  }
  if (values.empty())
    return getOperation().emitError("--shard says how '")
           << annotation.name << "' is stored, which "
           << (annotation.name.contains('*') ? "matches" : "is")
           << " no weight of the model, nor the input of a state";
  for (Value value : values)
    if (failed(placeStorage(annotation, mesh, value)))
      return failure();
  return success();
}

/// Why `module` no longer has an initializer of this name; "" if it never was one.
static std::string explainGone(ModuleOp module, StringRef name) {
  if (auto folded = module->getAttrOfType<ArrayAttr>(loom::kFolded))
    for (auto entry : folded.getAsRange<DictionaryAttr>())
      if (entry.getAs<StringAttr>("name").getValue() == name) {
        auto reader = entry.getAs<StringAttr>("reader");
        return "which was folded into a constant" +
               (reader ? " for node '" + reader.str() + "'; name that node's output instead"
                       : std::string());
      }
  std::string reader;
  module.walk([&](loom::DerivedOp derived) {
    derived.getBody().walk([&](loom::GetWeightOp weight) {
      if (reader.empty() && weight.getName() == name)
        reader = loom::getNodeName(derived.getLoc());
    });
  });
  return reader.empty() ? ""
                        : "which only node '" + reader +
                              "' reads, once, when weights are loaded; name that node instead";
}

/// Whether the operation computes its node's result, which others read, and not a step towards it.
static bool givesResult(Operation *op) {
  std::string node = loom::getNodeName(op->getLoc());
  return !isa<loom::GetWeightOp>(op) && llvm::any_of(op->getUsers(), [&](Operation *user) {
    return loom::getNodeName(user->getLoc()) != node;
  });
}

/// A node may be operations of several ranks. Of nodes where some lack the given rank, keeps only
/// the operation that computes the node's result.
static void keepResults(SmallVectorImpl<Spot> &spots, size_t rank) {
  llvm::StringSet<> mixed;
  auto getOp = [](const Spot &spot) { return spot.value ? spot.value.getDefiningOp() : nullptr; };
  for (const Spot &spot : spots)
    if (Operation *op = getOp(spot); op && spot.getType().getRank() != static_cast<int64_t>(rank))
      mixed.insert(loom::getNodeName(op->getLoc()));
  llvm::StringSet<> resulting;
  for (const Spot &spot : spots)
    if (Operation *op = getOp(spot); op && givesResult(op))
      resulting.insert(loom::getNodeName(op->getLoc()));
  llvm::erase_if(spots, [&](const Spot &spot) {
    Operation *op = getOp(spot);
    std::string node = op ? loom::getNodeName(op->getLoc()) : "";
    return op && mixed.contains(node) && resulting.contains(node) && !givesResult(op);
  });
}

LogicalResult ApplyAnnotationsPass::applyOne(StringRef text, const Mesh &mesh, bool isExact) {
  Annotation annotation;
  if (failed(parse(text, annotation)) || failed(check(annotation, mesh)))
    return failure();
  annotation.isExact = isExact;
  if (annotation.isStorage)
    return applyStorage(annotation, mesh);
  SmallVector<Spot> spots;
  auto named = [&](DictionaryAttr attrs) {
    auto name = attrs ? attrs.getAs<StringAttr>(loom::kName) : StringAttr();
    return name && matchesPattern(annotation.name, name.getValue());
  };
  for (auto func : getOperation().getOps<func::FuncOp>()) {
    for (BlockArgument argument : func.getArguments())
      if (named(func.getArgAttrDict(argument.getArgNumber())))
        spots.push_back({argument});
    for (unsigned i = 0; i < func.getNumResults(); ++i)
      if (named(func.getResultAttrDict(i)))
        spots.push_back({Value(), func, i});
    func.walk([&](ShardingRuleInterface op) {
      // A weight's 16-bit copy is another tensor, found by the weight's name.
      auto weight = dyn_cast<loom::GetWeightOp>(*op);
      bool hit = (weight && matchesPattern(annotation.name, weight.getName())) ||
                 matchesPattern(annotation.name, loom::getNodeName(op.getLoc()));
      if (hit && op->getNumResults() == 1)
        spots.push_back({op->getResult(0)});
    });
  }
  keepResults(spots, annotation.dims.size());
  if (std::string gone = spots.empty() ? explainGone(getOperation(), annotation.name) : "";
      !gone.empty())
    return getOperation().emitError("--shard names '") << annotation.name << "', " << gone;
  if (spots.empty())
    return getOperation().emitError("--shard names '")
           << annotation.name << "', which " << (annotation.name.contains('*') ? "matches" : "is")
           << " no input, output, weight or node of the model";
  for (const Spot &spot : spots)
    if (failed(place(annotation, mesh, spot)))
      return failure();
  return success();
}
