//===- ApplyAnnotations.cpp - the user's shardings --------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/dist/Sharding.h"
#include "passes/shard/DeviceConfiguration.h"
#include "passes/shard/Shard.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

namespace gridloom {
#define GEN_PASS_DEF_APPLYANNOTATIONS
#include "passes/shard/Passes.h.inc"
} // namespace gridloom

namespace {
/// One --shard: the name and, per dimension, the axes.
struct Annotation {
  StringRef name;
  SmallVector<SmallVector<StringRef>> dims;
};

struct ApplyAnnotationsPass : public gridloom::impl::ApplyAnnotationsBase<ApplyAnnotationsPass> {
  using ApplyAnnotationsBase::ApplyAnnotationsBase;

  void runOnOperation() override {
    MeshOp meshOp = getMesh(getOperation());
    // The model's own come first: what the command line says of a value replaces them.
    if (failed(applyAnnotations(getOperation())))
      return signalPassFailure();
    if (shard.empty())
      return;
    if (!meshOp) {
      getOperation().emitError("shardings need a mesh; none was declared");
      return signalPassFailure();
    }
    Mesh mesh(meshOp);
    for (const std::string &text : shard)
      if (failed(applyOne(text, mesh)))
        return signalPassFailure();
  }

private:
  LogicalResult parse(StringRef text, Annotation &annotation);
  LogicalResult check(const Annotation &annotation, const Mesh &mesh);
  FailureOr<ShardingAttr> makeSharding(const Annotation &annotation, RankedTensorType type,
                                       const Mesh &mesh);
  LogicalResult applyOne(StringRef text, const Mesh &mesh);
};
} // namespace

LogicalResult ApplyAnnotationsPass::parse(StringRef text, Annotation &annotation) {
  // The name may hold '='; the sharding starts at the last "=[".
  size_t split = text.rfind("=[");
  auto malformed = [&] {
    return getOperation().emitError("cannot read --shard '")
           << text << "'; write NAME=[{axis,...},{},...]";
  };
  if (split == StringRef::npos || split == 0 || !text.ends_with("]"))
    return malformed();
  annotation.name = text.take_front(split);
  StringRef body = text.drop_front(split + 2).drop_back().trim();
  while (!body.empty()) {
    size_t close = body.find('}');
    if (!body.consume_front("{") || close == StringRef::npos)
      return malformed();
    SmallVector<StringRef> axes;
    for (StringRef axis : llvm::split(body.take_front(close - 1), ','))
      if (StringRef name = axis.trim().trim('"'); !name.empty())
        axes.push_back(name);
    annotation.dims.push_back(axes);
    body = body.drop_front(close).ltrim();
    if (body.consume_front(","))
      body = body.ltrim();
    else if (!body.empty())
      return malformed();
  }
  return success();
}

LogicalResult ApplyAnnotationsPass::check(const Annotation &annotation, const Mesh &mesh) {
  llvm::StringSet<> seen;
  for (const auto &axes : annotation.dims)
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
  Layout layout;
  for (const auto &axes : annotation.dims) {
    Layout::Dim dim;
    for (StringRef axis : axes)
      dim.axes.push_back(StringAttr::get(&getContext(), axis));
    layout.dims.push_back(dim);
  }
  return layout.getAttr(mesh);
}

LogicalResult ApplyAnnotationsPass::applyOne(StringRef text, const Mesh &mesh) {
  Annotation annotation;
  if (failed(parse(text, annotation)) || failed(check(annotation, mesh)))
    return failure();
  bool found = false, failedOnce = false;
  auto place = [&](RankedTensorType type, llvm::function_ref<void(ShardingAttr)> set) {
    FailureOr<ShardingAttr> sharding = makeSharding(annotation, type, mesh);
    found = true;
    if (failed(sharding))
      failedOnce = true;
    else
      set(*sharding);
  };
  auto named = [&](DictionaryAttr attrs) {
    auto name = attrs ? attrs.getAs<StringAttr>(loom::kName) : StringAttr();
    return name && name.getValue() == annotation.name;
  };
  for (auto func : getOperation().getOps<func::FuncOp>()) {
    for (BlockArgument argument : func.getArguments())
      if (!failedOnce && named(func.getArgAttrDict(argument.getArgNumber())))
        place(cast<RankedTensorType>(argument.getType()),
              [&](ShardingAttr sharding) { setSharding(argument, sharding, "user"); });
    for (unsigned i = 0; i < func.getNumResults(); ++i)
      if (!failedOnce && named(func.getResultAttrDict(i)))
        place(cast<RankedTensorType>(func.getResultTypes()[i]), [&](ShardingAttr sharding) {
          func.setResultAttr(i, kSharding, sharding);
          func.setResultAttr(i, kOrigin, StringAttr::get(&getContext(), "user"));
        });
    func.walk([&](ShardingRuleInterface op) {
      // A weight's 16-bit copy is another tensor and goes by the weight's name.
      auto weight = dyn_cast<loom::GetWeightOp>(*op);
      bool hit = (weight && weight.getName() == annotation.name) ||
                 loom::getNodeName(op.getLoc()) == annotation.name;
      if (hit && !failedOnce && op->getNumResults() == 1)
        place(cast<RankedTensorType>(op->getResult(0).getType()),
              [&](ShardingAttr sharding) { setSharding(op->getResult(0), sharding, "user"); });
    });
  }
  if (!found)
    return getOperation().emitError("--shard names '")
           << annotation.name << "', which is no input, output, weight or node of the model";
  return failure(failedOnce);
}
