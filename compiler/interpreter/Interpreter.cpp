//===- Interpreter.cpp - the reference interpreter ------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/interpreter/Interpreter.h"

#include "compiler/interpreter/Machine.h"
#include "dialects/loom/DrawAttr.h"

#include "llvm/Support/FormatVariadic.h"

#include <map>

using namespace mlir;
using namespace gridloom;
using loom::HostTensor;

SmallVector<Specialisation> gridloom::getSpecialisations(ModuleOp module) {
  SmallVector<Specialisation> list;
  for (auto function : module.getOps<func::FuncOp>()) {
    auto entry = function->getAttrOfType<StringAttr>(loom::kEntry);
    if (!entry)
      continue;
    auto dims = function->getAttrOfType<DictionaryAttr>(loom::kDims);
    auto stage = function->getAttrOfType<IntegerAttr>(dist::kStage);
    Specialisation *found = llvm::find_if(list, [&](const Specialisation &candidate) {
      return stage && candidate.partitioned && candidate.entry == entry.getValue() &&
             candidate.dims == dims;
    });
    if (found == list.end()) {
      list.push_back({entry.str(), dims, stage != nullptr, {}});
      found = &list.back();
    }
    size_t index = stage ? stage.getInt() : 0;
    found->stages.resize(std::max(found->stages.size(), index + 1));
    found->stages[index] = function;
  }
  return list;
}

/// The axis whose coordinate is the stage; none in a program of one stage.
static StringRef getStageAxis(ModuleOp module) {
  if (auto name = module->getAttrOfType<StringAttr>(dist::kStageAxis))
    return name.getValue();
  auto list = getSpecialisations(module);
  bool piped =
      llvm::any_of(list, [](const Specialisation &item) { return item.stages.size() > 1; });
  return piped ? "pipe" : "";
}

Interpreter::Interpreter(ModuleOp module, WeightProvider &weights, InterpreterOptions options)
    : module(module), weights(weights), options(std::move(options)) {
  if (dist::MeshOp op = dist::getMesh(module))
    mesh = DeviceMesh(op, getStageAxis(module));
}

namespace {

/// An output that is assembled from its shards.
struct Assembly {
  HostTensor tensor;
  /// The place that gave each shard, by the shard's start.
  std::map<std::vector<int64_t>, std::pair<Place, HostTensor>> shards;
};

/// Binds arguments to inputs and collects results, of one run.
class Bindings {
public:
  Bindings(const DeviceMesh &mesh, const InterpreterOptions &options, const NamedTensors &inputs,
           WeightProvider &weights, bool partitioned)
      : mesh(mesh), options(options), inputs(inputs), weights(weights), partitioned(partitioned) {}

  FailureOr<TensorList> bind(func::FuncOp function, Place place);
  LogicalResult take(func::FuncOp function, Place place, TensorList results);
  NamedTensors finish() {
    NamedTensors outputs;
    for (auto &entry : assemblies)
      outputs[entry.first()] = std::move(entry.second.tensor);
    return outputs;
  }

private:
  /// An argument's state, as earlier runs left it; null if there is none.
  const HostTensor *findState(func::FuncOp function, unsigned argument);
  FailureOr<HostTensor> makeState(func::FuncOp function, unsigned argument);
  ShardBox getBox(dist::ShardingAttr sharding, ArrayRef<int64_t> shape, Place place) {
    return getShardBox(mesh, partitioned ? sharding : dist::ShardingAttr(), shape, place);
  }
  SmallVector<int64_t> getGlobalShape(func::FuncOp function, unsigned index);
  LogicalResult takeOne(func::FuncOp function, Place place, StringRef name,
                        dist::ShardingAttr sharding, ArrayRef<int64_t> shape,
                        const HostTensor &tensor);

  const DeviceMesh &mesh;
  const InterpreterOptions &options;
  const NamedTensors &inputs;
  WeightProvider &weights;
  bool partitioned;
  llvm::StringMap<Assembly> assemblies;
};

static int64_t getStage(func::FuncOp function) {
  auto stage = function->getAttrOfType<IntegerAttr>(dist::kStage);
  return stage ? stage.getInt() : 0;
}

const HostTensor *Bindings::findState(func::FuncOp function, unsigned argument) {
  auto state = function.getArgAttrOfType<StringAttr>(argument, loom::kState);
  if (!state || !options.states)
    return nullptr;
  auto found = options.states->find({getStage(function), state.str()});
  return found == options.states->end() ? nullptr : &found->second;
}

/// A drawn state, as the runtime initialises it.
static FailureOr<HostTensor> makeDrawn(func::FuncOp function, RankedTensorType type,
                                       Attribute attribute) {
  std::optional<Draw> draw = loom::readDraw(attribute);
  Type element = type.getElementType();
  if (!draw || (!element.isF32() && !element.isF64()))
    return function.emitError() << "a state of " << type << " cannot be drawn as " << attribute;
  HostTensor tensor(*loom::getElementKind(element), type.getShape());
  auto fill = [&](auto values) { draw->fill(0, values.size(), values.data()); };
  if (element.isF32())
    fill(tensor.getMutableValues<float>());
  else
    fill(tensor.getMutableValues<double>());
  return tensor;
}

/// A state before its first call, whole.
FailureOr<HostTensor> Bindings::makeState(func::FuncOp function, unsigned argument) {
  auto init = function.getArgAttrOfType<StringAttr>(argument, loom::kInit);
  Attribute drawn = function.getArgAttr(argument, loom::kDraw);
  if (!init) {
    auto type = cast<RankedTensorType>(function.getArgumentTypes()[argument]);
    if (auto global = function.getArgAttrOfType<TypeAttr>(argument, loom::kGlobalType))
      type = cast<RankedTensorType>(global.getValue());
    if (drawn)
      return makeDrawn(function, type, drawn);
    return HostTensor(*loom::getElementKind(type.getElementType()), type.getShape());
  }
  auto weight = function->getParentOfType<ModuleOp>().lookupSymbol<loom::WeightOp>(init);
  if (!weight)
    return function.emitError() << "argument " << argument << " begins with '" << init.getValue()
                                << "', which is not a weight";
  return weights.load(weight);
}

FailureOr<TensorList> Bindings::bind(func::FuncOp function, Place place) {
  TensorList arguments;
  for (auto [i, type] : llvm::enumerate(function.getArgumentTypes())) {
    auto name = function.getArgAttrOfType<StringAttr>(i, loom::kName);
    if (!name)
      return function.emitError() << "argument " << i << " has no name";
    auto found = inputs.find(name.getValue());
    const HostTensor *state = findState(function, i);
    HostTensor tensor;
    if (state) {
      tensor = *state;
    } else if (found != inputs.end()) {
      tensor = found->second;
    } else if (function.getArgAttr(i, loom::kState)) {
      FailureOr<HostTensor> made = makeState(function, i);
      if (failed(made))
        return failure();
      tensor = *std::move(made);
    } else {
      return function.emitError() << "input '" << name.getValue() << "' has no value";
    }
    // A state is given as the model declares it, and may be kept in 16 bits.
    std::optional<loom::ElementKind> kind =
        loom::getElementKind(cast<RankedTensorType>(type).getElementType());
    if (function.getArgAttr(i, loom::kState) && tensor.getKind() == loom::ElementKind::F32 &&
        (kind == loom::ElementKind::F16 || kind == loom::ElementKind::BF16))
      tensor = HostTensor::fromDoubles(*kind, tensor.getShape(), tensor.toDoubles());
    auto sharding = function.getArgAttrOfType<dist::ShardingAttr>(i, dist::kSharding);
    auto tensorType = cast<RankedTensorType>(type);
    // In exact mode, earlier runs leave states in Exact elements.
    bool isExact = state && options.exact && kind && loom::isFloatKind(*kind) &&
                   tensor.getKind() == loom::ElementKind::Exact;
    if (tensor.getRank() != tensorType.getRank() || (tensor.getKind() != kind && !isExact))
      return function.emitError() << "input '" << name.getValue() << "' is of rank "
                                  << tensor.getRank() << " and type "
                                  << loom::nameOf(tensor.getKind()) << ", it must fit " << type;
    ShardBox box = getBox(sharding, tensor.getShape(), place);
    if (ArrayRef(box.sizes) != tensorType.getShape())
      return function.emitError() << "input '" << name.getValue() << "' has shape ["
                                  << tensor.getShape() << "] and shards of [" << ArrayRef(box.sizes)
                                  << "], the program expects " << type;
    auto global = function.getArgAttrOfType<TypeAttr>(i, loom::kGlobalType);
    if (partitioned && global &&
        cast<RankedTensorType>(global.getValue()).getShape() != tensor.getShape())
      return function.emitError() << "input '" << name.getValue() << "' has shape ["
                                  << tensor.getShape() << "], the program takes "
                                  << global.getValue();
    if (options.exact && !isExact)
      tensor = tensor.toExactMode();
    arguments.push_back(tensor.extract(box.starts, box.sizes));
  }
  return arguments;
}

SmallVector<int64_t> Bindings::getGlobalShape(func::FuncOp function, unsigned index) {
  if (auto type = function.getResultAttrOfType<TypeAttr>(index, loom::kGlobalType);
      type && partitioned)
    return SmallVector<int64_t>(cast<RankedTensorType>(type.getValue()).getShape());
  // Without a global type sizes divide.
  SmallVector<int64_t> shape(cast<RankedTensorType>(function.getResultTypes()[index]).getShape());
  auto sharding = function.getResultAttrOfType<dist::ShardingAttr>(index, dist::kSharding);
  if (partitioned && sharding)
    for (auto [size, dim] : llvm::zip_equal(shape, sharding.getDims()))
      size *= mesh.getSize(dim.getAxes());
  return shape;
}

LogicalResult Bindings::take(func::FuncOp function, Place place, TensorList results) {
  for (auto [i, tensor] : llvm::enumerate(results)) {
    auto name = function.getResultAttrOfType<StringAttr>(i, loom::kName);
    if (!name)
      return function.emitError() << "result " << i << " has no name";
    auto sharding = function.getResultAttrOfType<dist::ShardingAttr>(i, dist::kSharding);
    if (partitioned && sharding && !sharding.getUnreduced().empty())
      return function.emitError() << "output '" << name.getValue() << "' is still a partial sum";
    if (failed(takeOne(function, place, name.getValue(), sharding, getGlobalShape(function, i),
                       tensor)))
      return failure();
  }
  return success();
}

/// An integer, or the field element of a float in exact mode.
static int64_t getWord(const HostTensor &tensor, int64_t index) {
  if (tensor.getKind() == loom::ElementKind::Exact)
    return tensor.getValues<int64_t>()[index];
  return tensor.toInts()[index];
}

/// The first place where two tensors of one shape differ, for a message.
static std::string describeDifference(const HostTensor &first, const HostTensor &second) {
  size_t size = first.getElementSize();
  for (int64_t i = 0; i < first.getNumElements(); ++i) {
    if (std::memcmp(first.getData() + i * size, second.getData() + i * size, size) == 0)
      continue;
    if (loom::isFloatKind(first.getKind()))
      return llvm::formatv("element {0} is {1:e8} and {2:e8}", i, first.toDoubles()[i],
                           second.toDoubles()[i]);
    return llvm::formatv("element {0} is {1} and {2}", i, getWord(first, i), getWord(second, i));
  }
  return "they have different shapes";
}

LogicalResult Bindings::takeOne(func::FuncOp function, Place place, StringRef name,
                                dist::ShardingAttr sharding, ArrayRef<int64_t> shape,
                                const HostTensor &tensor) {
  ShardBox box = getBox(sharding, shape, place);
  if (ArrayRef(box.sizes) != tensor.getShape())
    return function.emitError() << "output '" << name << "' has shape [" << shape
                                << "] and so shards of [" << ArrayRef(box.sizes)
                                << "], the program gives [" << tensor.getShape() << "]";
  auto [entry, isNew] = assemblies.try_emplace(name);
  Assembly &assembly = entry->second;
  if (isNew) {
    assembly.tensor = HostTensor(tensor.getKind(), shape);
    assembly.tensor.fillWithPoison();
  }
  // Replicas must be equal, except in their padding.
  SmallVector<int64_t> valid, zero(shape.size(), 0);
  for (auto [start, size, extent] : llvm::zip_equal(box.starts, box.sizes, shape))
    valid.push_back(std::clamp<int64_t>(extent - start, 0, size));
  HostTensor part = tensor.extract(zero, valid);
  std::vector<int64_t> key(box.starts.begin(), box.starts.end());
  auto [shard, isFirst] = assembly.shards.try_emplace(key, place, part);
  if (isFirst) {
    assembly.tensor.insert(tensor, box.starts);
    return success();
  }
  auto &[other, kept] = shard->second;
  if (!kept.isBitwiseEqual(part))
    return function.emitError() << "output '" << name << "' differs between its replicas on rank "
                                << other.rank << " (micro-batch " << other.micro << ") and rank "
                                << place.rank << " (micro-batch " << place.micro
                                << "): " << describeDifference(kept, part);
  return success();
}

} // namespace

FailureOr<NamedTensors> Interpreter::run(const Specialisation &specialisation,
                                         const NamedTensors &inputs) {
  bool partitioned = specialisation.partitioned;
  for (func::FuncOp function : specialisation.stages)
    if (!function)
      return emitError(module.getLoc())
             << "entry '" << specialisation.entry << "' lacks the function of a stage";
  Evaluator evaluator(module, weights, {options.exact, /*poisonOutside=*/partitioned});
  Machine machine(mesh, evaluator, options);
  Bindings bindings(mesh, options, inputs, weights, partitioned);
  auto bind = [&](func::FuncOp function, Place place) { return bindings.bind(function, place); };
  auto take = [&](func::FuncOp function, Place place, TensorList results) {
    return bindings.take(function, place, std::move(results));
  };
  if (failed(machine.run(specialisation.stages, partitioned, bind, take)))
    return failure();
  NamedTensors outputs = bindings.finish();
  for (func::FuncOp function : specialisation.stages)
    for (unsigned i = 0; options.states && i < function.getNumResults(); ++i)
      if (auto state = function.getResultAttrOfType<StringAttr>(i, loom::kState))
        (*options.states)[{getStage(function), state.str()}] =
            outputs[function.getResultAttrOfType<StringAttr>(i, loom::kName).getValue()];
  return outputs;
}
