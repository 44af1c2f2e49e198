//===- DeviceConfiguration.cpp - a model's own device annotations ---------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/shard/DeviceConfiguration.h"

#include "dialects/loom/Loom.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

//===----------------------------------------------------------------------===//
// Names in lines
//===----------------------------------------------------------------------===//

std::string gridloom::escapeStored(StringRef name) {
  std::string text;
  for (char c : name)
    if (c == '\n')
      text += "\\n";
    else if (c == '*' || c == '\\')
      text += {'\\', c};
    else
      text += c;
  return text;
}

std::string gridloom::unescapeStored(StringRef line, bool &isPattern) {
  std::string text;
  isPattern = false;
  for (size_t i = 0; i < line.size(); ++i) {
    bool isEscape =
        line[i] == '\\' && i + 1 < line.size() && StringRef("n*\\").contains(line[i + 1]);
    isPattern |= line[i] == '*';
    i += isEscape;
    text += isEscape && line[i] == 'n' ? '\n' : line[i];
  }
  return text;
}

/// Limit on devices: more than anyone annotates, and few enough to try every mesh.
static constexpr int64_t kMaxConfigured = 1 << 16;

namespace {
struct Axis {
  std::string name;
  int64_t size;
};

/// A candidate mesh. Devices are counted row-major over the axes.
struct Shape {
  SmallVector<Axis> axes;
  int64_t stageAxis = -1;

  int64_t getStride(size_t axis) const {
    int64_t stride = 1;
    for (const Axis &minor : ArrayRef(axes).drop_front(axis + 1))
      stride *= minor.size;
    return stride;
  }
  int64_t getCoordinate(int64_t device, size_t axis) const {
    return device / getStride(axis) % axes[axis].size;
  }
  int64_t getSize() const { return axes.empty() ? 1 : getStride(0) * axes[0].size; }
};

/// One tensor's annotation, as the module's attribute holds it.
struct Annotation {
  explicit Annotation(DictionaryAttr attr);

  struct Dim {
    int64_t axis, size, parts, granule;
  };

  StringRef name, what;
  NodeResult result;
  SmallVector<Dim> dims;
  SmallVector<ArrayRef<int64_t>> groups;

  Location getLoc(MLIRContext *context) const {
    return NameLoc::get(StringAttr::get(context, result.node));
  }
};

/// Per annotated dimension, mesh axes from major to minor.
using DimAxes = SmallVector<SmallVector<size_t>>;
} // namespace

Annotation::Annotation(DictionaryAttr attr)
    : name(attr.getAs<StringAttr>("name")), what(attr.getAs<StringAttr>("what")) {
  result.node = attr.getAs<StringAttr>("node").str();
  if (auto index = attr.getAs<IntegerAttr>("index"))
    result.index = index.getInt();
  if (auto count = attr.getAs<IntegerAttr>("count"))
    result.count = count.getInt();
  if (auto readers = attr.getAs<ArrayAttr>("readers"))
    for (auto reader : readers.getAsRange<StringAttr>())
      result.readers.push_back(reader.str());
  result.isOutput = attr.contains("output");
  for (auto dim : attr.getAs<ArrayAttr>("dims").getAsRange<DenseI64ArrayAttr>())
    dims.push_back({dim[0], dim[1], dim[2], dim[3]});
  for (auto group : attr.getAs<ArrayAttr>("groups").getAsRange<DenseI64ArrayAttr>())
    groups.push_back(group.asArrayRef());
}

static DictionaryAttr getAnnotations(ModuleOp module) {
  return module->getAttrOfType<DictionaryAttr>(kAnnotations);
}

static std::vector<Annotation> getValues(DictionaryAttr annotations) {
  std::vector<Annotation> values;
  for (auto value : annotations.getAs<ArrayAttr>("values").getAsRange<DictionaryAttr>())
    values.emplace_back(value);
  return values;
}

//===----------------------------------------------------------------------===//
// From device lists to mesh axes
//===----------------------------------------------------------------------===//

/// The shard of every device; -1 if it has none. Nullopt if a device has two or does not exist.
static std::optional<std::vector<int64_t>> getShardOfDevice(const Annotation &annotation,
                                                            int64_t devices) {
  std::vector<int64_t> shardOf(devices, -1);
  for (auto [shard, group] : llvm::enumerate(annotation.groups))
    for (int64_t device : group) {
      if (device < 0 || device >= devices || shardOf[device] >= 0)
        return std::nullopt;
      shardOf[device] = shard;
    }
  return shardOf;
}

/// A shard's index along each annotated dimension.
static SmallVector<int64_t> getIndex(const Annotation &annotation, int64_t shard) {
  SmallVector<int64_t> index(annotation.dims.size());
  for (size_t dim = index.size(); dim-- > 0; shard /= annotation.dims[dim].parts)
    index[dim] = shard % annotation.dims[dim].parts;
  return index;
}

/// The mesh axes that cut each dimension; nullopt if no choice of axes puts every shard where the
/// annotation has it.
static std::optional<DimAxes> fit(const Annotation &annotation, const Shape &shape) {
  int64_t devices = shape.getSize();
  std::optional<std::vector<int64_t>> shardOf = getShardOfDevice(annotation, devices);
  if (!shardOf)
    return std::nullopt;
  // In each stage, all devices hold the tensor or none.
  int64_t base = -1;
  SmallVector<int64_t> perStage(shape.stageAxis < 0 ? 1 : shape.axes[shape.stageAxis].size, 0);
  for (int64_t device = 0; device < devices; ++device)
    if ((*shardOf)[device] >= 0) {
      base = base < 0 ? device : base;
      ++perStage[shape.stageAxis < 0 ? 0 : shape.getCoordinate(device, shape.stageAxis)];
    }
  if (base < 0 || llvm::any_of(
                      perStage,
                      [&](int64_t count) {
                        return count != 0 &&
                               count != devices / static_cast<int64_t>(perStage.size());
                      }))
    return std::nullopt;

  // An axis cuts the dimension whose shard index changes by a step along the axis.
  DimAxes axes(annotation.dims.size());
  SmallVector<SmallVector<std::pair<int64_t, size_t>>> steps(annotation.dims.size());
  for (size_t axis = 0; axis < shape.axes.size(); ++axis) {
    if (static_cast<int64_t>(axis) == shape.stageAxis || shape.axes[axis].size == 1)
      continue;
    SmallVector<int64_t> index = getIndex(annotation, (*shardOf)[base + shape.getStride(axis)]);
    SmallVector<int64_t> first = getIndex(annotation, (*shardOf)[base]);
    for (auto [dim, value] : llvm::enumerate(index))
      if (value != first[dim])
        steps[dim].push_back({value - first[dim], axis});
  }
  for (auto [dim, list] : llvm::enumerate(steps)) {
    llvm::sort(list, std::greater<>());
    for (auto [step, axis] : list)
      axes[dim].push_back(axis);
  }
  for (int64_t device = 0; device < devices; ++device) {
    if ((*shardOf)[device] < 0)
      continue;
    for (auto [dim, index] : llvm::enumerate(getIndex(annotation, (*shardOf)[device]))) {
      int64_t expected = 0, parts = 1;
      for (size_t axis : axes[dim]) {
        expected = expected * shape.axes[axis].size + shape.getCoordinate(device, axis);
        parts *= shape.axes[axis].size;
      }
      if (expected != index || parts != annotation.dims[dim].parts)
        return std::nullopt;
    }
  }
  return axes;
}

static const Annotation *findMisfit(ArrayRef<Annotation> values, const Shape &shape) {
  const auto *misfit =
      llvm::find_if(values, [&](const Annotation &annotation) { return !fit(annotation, shape); });
  return misfit == values.end() ? nullptr : misfit;
}

//===----------------------------------------------------------------------===//
// The mesh
//===----------------------------------------------------------------------===//

/// Calls `visit` for the ordered factorisations of `rest` into `count` factors of two or more,
/// until it returns true.
static bool forEachFactorisation(int64_t rest, size_t count, SmallVectorImpl<int64_t> &factors,
                                 llvm::function_ref<bool()> visit) {
  if (count == 0)
    return rest == 1 && visit();
  for (int64_t factor = 2; factor <= rest; ++factor) {
    if (rest % factor)
      continue;
    factors.push_back(factor);
    bool done = forEachFactorisation(rest / factor, count - 1, factors, visit);
    if (done)
      return true;
    factors.pop_back();
  }
  return false;
}

/// The mesh with the fewest axes that can express all annotations.
static std::optional<Shape> inferShape(ArrayRef<Annotation> values, int64_t devices,
                                       int64_t stages) {
  Shape shape;
  auto matches = [&](ArrayRef<int64_t> factors) {
    for (int64_t stageAxis = -1; stageAxis < static_cast<int64_t>(factors.size()); ++stageAxis) {
      if ((stages > 1) != (stageAxis >= 0) || (stageAxis >= 0 && factors[stageAxis] != stages))
        continue;
      shape = {};
      shape.stageAxis = stageAxis;
      for (auto [i, factor] : llvm::enumerate(factors))
        shape.axes.push_back({static_cast<int64_t>(i) == stageAxis
                                  ? "pipe"
                                  : "axis" + std::to_string(shape.axes.size()),
                              factor});
      if (!findMisfit(values, shape))
        return true;
    }
    return false;
  };
  for (size_t count = 0; count <= 16; ++count) {
    SmallVector<int64_t> factors;
    if (forEachFactorisation(devices, count, factors, [&] { return matches(factors); }))
      return shape;
  }
  return std::nullopt;
}

/// Parses "data=2,pipe=2" with the name of the stages' axis; nullopt if malformed.
static std::optional<Shape> parseShape(StringRef mesh, StringRef stageAxis, int64_t stages) {
  Shape shape;
  for (StringRef part : llvm::split(mesh, ',')) {
    auto [name, number] = part.split('=');
    int64_t size;
    if (part.empty())
      continue;
    if (name.empty() || number.getAsInteger(10, size) || size < 1 || size > kMaxConfigured)
      return std::nullopt;
    bool named = stageAxis.empty() ? name == "pipe" || name == "stage" : name == stageAxis;
    if (named && stages > 1)
      shape.stageAxis = shape.axes.size();
    shape.axes.push_back({name.str(), size});
  }
  return shape;
}

static std::string print(const Shape &shape) {
  std::string text;
  for (const Axis &axis : shape.axes)
    text += (text.empty() ? "" : ",") + axis.name + "=" + std::to_string(axis.size);
  return text;
}

/// The mesh the user or the model names, checked against the annotations.
static FailureOr<Shape> checkShape(ModuleOp module, ArrayRef<Annotation> values, StringRef mesh,
                                   StringRef stageAxis, int64_t devices, int64_t stages) {
  std::optional<Shape> shape = parseShape(mesh, stageAxis, stages);
  if (!shape)
    return module.emitError("cannot read the mesh '") << mesh << "'; write name=size,...";
  if (shape->getSize() != devices)
    return module.emitError("the mesh ")
           << mesh << " has " << shape->getSize()
           << " devices; the model's device configuration has " << devices;
  if (stages > 1 && (shape->stageAxis < 0 || shape->axes[shape->stageAxis].size < stages))
    return module.emitError("the model's annotations have ")
           << stages << " pipeline stages; the mesh " << mesh << " has no axis 'pipe' of that size";
  if (const Annotation *misfit = findMisfit(values, *shape))
    return emitError(misfit->getLoc(module.getContext()))
           << "the annotation of '" << misfit->name << "' puts its shards where the mesh " << mesh
           << " cannot";
  return *shape;
}

//===----------------------------------------------------------------------===//
// Onto values
//===----------------------------------------------------------------------===//

/// The sharding of a value of `type`; fails, with an error, if there is none.
static FailureOr<Sharding> makeSharding(const Annotation &annotation, const Shape &shape,
                                        RankedTensorType type) {
  MLIRContext *context = type.getContext();
  auto error = [&] {
    return emitError(annotation.getLoc(context))
           << "the annotation of '" << annotation.name << "' ";
  };
  std::optional<DimAxes> axes = fit(annotation, shape);
  if (!axes)
    return error() << "puts its shards where the mesh " << print(shape) << " cannot";
  Sharding sharding = Sharding::replicated(type.getRank());
  for (auto [dim, list] : llvm::zip_equal(annotation.dims, *axes)) {
    if (dim.axis < -type.getRank() || dim.axis >= type.getRank())
      return error() << "cuts axis " << dim.axis << "; the tensor is " << type;
    int64_t axis = dim.axis < 0 ? dim.axis + type.getRank() : dim.axis;
    int64_t size = type.getDimSize(axis);
    if (dim.size && dim.size != size)
      return error() << "gives axis " << axis << " " << dim.size << " elements; it has " << size;
    if (dim.parts > 1 && dim.parts * dim.granule > size)
      return error() << "cuts axis " << axis << " of " << size << " elements into " << dim.parts
                     << " shards of " << dim.granule << " or more";
    Sharding::Dim &target = sharding.dims[axis];
    if (!target.axes.empty())
      return error() << "cuts axis " << axis << " twice";
    for (size_t index : list)
      target.axes.push_back(StringAttr::get(context, shape.axes[index].name));
    if (!target.axes.empty())
      target.granule = dim.granule;
  }
  return sharding;
}

namespace {
class Applier {
public:
  /// Without a mesh the annotations are only checked.
  Applier(ModuleOp module, MeshOp meshOp, StringRef stageAxis)
      : module(module), annotations(getAnnotations(module)), meshOp(meshOp), stageAxis(stageAxis) {}
  LogicalResult run();

private:
  LogicalResult applyValues(func::FuncOp func, bool isFirst);
  LogicalResult applyValue(const Annotation &annotation, Value value, const Sharding &sharding);
  void applyStages(func::FuncOp func);
  SmallVector<Value> findValues(const Annotation &annotation, func::FuncOp func,
                                const NodeValues &nodes) const;

  ModuleOp module;
  DictionaryAttr annotations;
  MeshOp meshOp;
  StringRef stageAxis;
  Shape shape;
};
} // namespace

SmallVector<Value> Applier::findValues(const Annotation &annotation, func::FuncOp func,
                                       const NodeValues &nodes) const {
  SmallVector<Value> found;
  if (annotation.what == "input") {
    for (BlockArgument argument : func.getArguments())
      if (auto name = func.getArgAttrOfType<StringAttr>(argument.getArgNumber(), loom::kName);
          name && name.getValue() == annotation.name)
        found.push_back(argument);
  } else if (annotation.what == "weight") {
    func.walk([&](loom::GetWeightOp op) {
      if (op.getName() == annotation.name)
        found.push_back(op.getResult());
    });
  } else if (Value value = nodes.find(annotation.result)) {
    found.push_back(value);
  }
  return found;
}

LogicalResult Applier::applyValue(const Annotation &annotation, Value value,
                                  const Sharding &sharding) {
  Mesh mesh(meshOp);
  Location loc = annotation.getLoc(module.getContext());
  auto axis = StringAttr::get(module.getContext(), stageAxis);
  if (mesh.getSize(axis) > 1 && sharding.usesAxis(axis))
    return emitError(loc) << "the annotation of '" << annotation.name << "' cuts over axis '"
                          << stageAxis
                          << "', along which devices run different pipeline stages; give the axis "
                             "another name";
  ShardingAttr attr = sharding.getAttr(mesh);
  // Simplification merges equal tensors into one value.
  if (ShardingAttr before = getSharding(value)) {
    OriginAttr origin = getOrigin(value);
    if (before != attr)
      mlir::emitRemark(loc) << "the annotation of '" << annotation.name
                            << "' is not used: its value is " << before << " by the "
                            << (origin ? origin.describe() : "model");
    return success();
  }
  setSharding(value, attr, "annotation of node '" + annotation.result.node + "'");
  return success();
}

LogicalResult Applier::applyValues(func::FuncOp func, bool isFirst) {
  NodeValues nodes(func);
  for (const Annotation &annotation : getValues(annotations)) {
    SmallVector<Value> found = findValues(annotation, func, nodes);
    if (found.empty() && isFirst && meshOp)
      mlir::emitRemark(annotation.getLoc(module.getContext()))
          << "the annotation of '" << annotation.name
          << "' is not used: the compiled program has no such value";
    for (Value value : found) {
      FailureOr<Sharding> sharding =
          makeSharding(annotation, shape, cast<RankedTensorType>(value.getType()));
      if (failed(sharding))
        return failure();
      if (meshOp && failed(applyValue(annotation, value, *sharding)))
        return failure();
    }
  }
  return success();
}

void Applier::applyStages(func::FuncOp func) {
  auto list = annotations.getAs<ArrayAttr>("nodes");
  if (!list || annotations.getAs<IntegerAttr>("stages").getInt() < 2)
    return;
  NodeValues nodes(func);
  for (auto node : list.getAsRange<DictionaryAttr>())
    for (Operation *op : nodes.getOperations(node.getAs<StringAttr>("node")))
      op->setAttr(kStage, node.getAs<IntegerAttr>("stage"));
}

LogicalResult Applier::run() {
  auto stageAxis = annotations.getAs<StringAttr>("stage_axis");
  std::optional<Shape> parsed = parseShape(annotations.getAs<StringAttr>("mesh").getValue(),
                                           stageAxis ? stageAxis.getValue() : "",
                                           annotations.getAs<IntegerAttr>("stages").getInt());
  shape = *parsed;
  bool isFirst = true;
  for (auto func : module.getOps<func::FuncOp>()) {
    if (!func->hasAttr(loom::kEntry))
      continue;
    if (failed(applyValues(func, isFirst)))
      return failure();
    if (meshOp)
      applyStages(func);
    isFirst = false;
  }
  return success();
}

LogicalResult gridloom::resolveMesh(ModuleOp module, StringRef mesh) {
  DictionaryAttr annotations = getAnnotations(module);
  if (!annotations)
    return success();
  int64_t devices = annotations.getAs<IntegerAttr>("devices").getInt();
  int64_t stages = annotations.getAs<IntegerAttr>("stages").getInt();
  auto text = [&](StringRef key) {
    auto attr = annotations.getAs<StringAttr>(key);
    return attr ? attr.getValue() : StringRef();
  };
  if (devices > kMaxConfigured)
    return module.emitError("the model's device configuration has ")
           << devices << " devices; at most " << kMaxConfigured << " can be used";
  std::vector<Annotation> values = getValues(annotations);
  Shape shape;
  if (StringRef named = mesh.empty() ? text("mesh") : mesh; !named.empty()) {
    FailureOr<Shape> checked =
        checkShape(module, values, named, text("stage_axis"), devices, stages);
    if (failed(checked))
      return failure();
    shape = *checked;
  } else if (std::optional<Shape> inferred = inferShape(values, devices, stages)) {
    shape = *inferred;
  } else {
    return module.emitError("no mesh of the ")
           << devices
           << " devices of the model's configuration can express all of its annotations; "
           << "every tensor must be cut regularly over all devices of its stage";
  }
  NamedAttrList list(annotations);
  Builder builder(module.getContext());
  list.set("mesh", builder.getStringAttr(print(shape)));
  if (shape.stageAxis >= 0)
    list.set("stage_axis", builder.getStringAttr(shape.axes[shape.stageAxis].name));
  module->setAttr(kAnnotations, list.getDictionary(module.getContext()));
  return Applier(module, MeshOp(), "").run();
}

LogicalResult gridloom::applyAnnotations(ModuleOp module, StringRef stageAxis) {
  MeshOp meshOp = getMesh(module);
  if (!getAnnotations(module))
    return success();
  if (failed(resolveMesh(module, "")) || !meshOp)
    return failure();
  LogicalResult result = Applier(module, meshOp, stageAxis).run();
  module->removeAttr(kAnnotations);
  return result;
}
