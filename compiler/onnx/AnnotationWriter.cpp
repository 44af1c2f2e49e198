//===- AnnotationWriter.cpp - a model with its shardings in it ------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/AnnotationWriter.h"

#include "compiler/onnx/Annotations.h"
#include "dialects/dist/Splits.h"
#include "dialects/loom/Loom.h"
#include "passes/shard/StrategyWriter.h"
#include "support/FileSwap.h"

#include "onnx-ml.pb.h"

#include <set>

using namespace mlir;
using namespace gridloom;
using namespace gridloom::onnx_import;

namespace fs = std::filesystem;

/// The first IR version with device configurations.
static constexpr int64_t kAnnotatedIr = 11;
/// Above this size a model's weights are not copied.
static constexpr uint64_t kMaxCopiedBytes = 1u << 30;
static constexpr const char *kConfiguration = "gridloom";

//===----------------------------------------------------------------------===//
// From the program
//===----------------------------------------------------------------------===//

namespace {
class Collector {
public:
  Collector(ModuleOp module, func::FuncOp func, const onnx::GraphProto &graph,
            ModelShardings &shardings)
      : func(func), graph(graph), index(graph), nodes(func), mesh(dist::getMesh(module)),
        shardings(shardings) {
    if (auto axis = module->getAttrOfType<StringAttr>(dist::kStageAxis))
      stageAxis = axis;
  }
  void run();

private:
  bool isSpatial(StringAttr axis) const {
    return axis != stageAxis && axis.getValue() != dist::MeshOp::kMicroAxis &&
           mesh.getSize(axis) > 1;
  }
  void describeMesh();
  void add(StringRef tensor, Value value, const std::set<int64_t> &stages);
  void addStorage(StringRef name, Value value);
  std::set<int64_t> getStages(Value value) const;
  int64_t getStage(Operation *op) const {
    auto stage = op->getAttrOfType<IntegerAttr>(dist::kStage);
    return stage ? stage.getInt() : 0;
  }

  func::FuncOp func;
  const onnx::GraphProto &graph;
  GraphIndex index;
  NodeValues nodes;
  dist::Mesh mesh;
  StringAttr stageAxis;
  ModelShardings &shardings;
  SmallVector<dist::Mesh::Axis> axes; ///< of devices, without micro-batches
};
} // namespace

void Collector::describeMesh() {
  for (const dist::Mesh::Axis &axis : mesh.getAxes()) {
    if (axis.name.getValue() == dist::MeshOp::kMicroAxis)
      continue;
    axes.push_back(axis);
    shardings.devices *= axis.size;
    shardings.mesh +=
        (shardings.mesh.empty() ? "" : ",") + axis.name.str() + "=" + std::to_string(axis.size);
  }
  if (stageAxis && mesh.getSize(stageAxis) > 1)
    shardings.stageAxis = stageAxis.str();
  auto dims = func->getAttrOfType<DictionaryAttr>(loom::kDims);
  shardings.hasSizes = !dims || dims.empty();
}

std::set<int64_t> Collector::getStages(Value value) const {
  std::set<int64_t> stages;
  for (Operation *user : value.getUsers())
    if (!isa<func::ReturnOp>(user))
      stages.insert(getStage(user));
  return stages;
}

void Collector::add(StringRef tensor, Value value, const std::set<int64_t> &stages) {
  dist::ShardingAttr sharding = dist::getSharding(value);
  if (!sharding)
    return;
  ModelShardings::Tensor result;
  SmallVector<SmallVector<StringAttr>> cuts;
  int64_t shards = 1;
  for (auto [dim, layout] : llvm::enumerate(sharding.getDims())) {
    SmallVector<StringAttr> list;
    llvm::copy_if(layout.getAxes(), std::back_inserter(list),
                  [&](StringAttr axis) { return isSpatial(axis); });
    if (list.empty())
      continue;
    int64_t parts = mesh.getSize(list);
    result.dims.push_back({static_cast<int64_t>(dim),
                           cast<RankedTensorType>(value.getType()).getDimSize(dim), parts,
                           layout.getGranule()});
    cuts.push_back(list);
    shards *= parts;
  }
  result.groups.resize(shards);
  for (int64_t device = 0; device < shardings.devices; ++device) {
    int64_t rest = device, stage = 0;
    llvm::DenseMap<StringAttr, int64_t> coordinate;
    for (const dist::Mesh::Axis &axis : llvm::reverse(axes)) {
      coordinate[axis.name] = rest % axis.size;
      rest /= axis.size;
    }
    if (!shardings.stageAxis.empty())
      stage = coordinate[stageAxis];
    if (!stages.empty() && !shardings.stageAxis.empty() && !stages.count(stage))
      continue;
    int64_t shard = 0;
    for (const auto &list : cuts)
      for (StringAttr axis : list)
        shard = shard * mesh.getSize(axis) + coordinate[axis];
    result.groups[shard].push_back(device);
  }
  shardings.tensors.try_emplace(tensor.str(), std::move(result));
}

/// Records how a value is stored where that differs from its sharding.
void Collector::addStorage(StringRef name, Value value) {
  dist::ShardingAttr storage = dist::getStorage(value), sharding = dist::getSharding(value);
  if (!storage || !sharding || dist::Sharding(storage) == dist::Sharding(sharding) ||
      llvm::any_of(storage.getDims(),
                   [](dist::DimShardingAttr dim) { return dim.getGranule() > 1; }))
    return;
  shardings.storage += (shardings.storage.empty() ? "" : "\n") + escapeStored(name) + "=stored" +
                       printSharding(dist::Sharding(storage));
}

void Collector::run() {
  describeMesh();
  for (BlockArgument argument : func.getArguments())
    if (auto name = func.getArgAttrOfType<StringAttr>(argument.getArgNumber(), loom::kName)) {
      add(name, argument, getStages(argument));
      addStorage(name, argument);
    }
  // A weight is read by one operation per stage, a small one by several. If their shardings differ,
  // it gets no annotation, and propagation finds them again.
  llvm::MapVector<StringAttr, std::pair<Value, std::set<int64_t>>> weights;
  llvm::DenseSet<StringAttr> disputed;
  func.walk([&](loom::GetWeightOp op) {
    // A weight's 16-bit copy is split as the weight, whose name is in its location.
    StringAttr name = op.getNameAttr().getAttr();
    if (!index.isWeight(name))
      name = StringAttr::get(op.getContext(), loom::getNodeName(op.getLoc()));
    auto &[value, stages] = weights[name];
    bool isFirst = !value;
    value = value ? value : Value(op.getResult());
    if (dist::getSharding(value) != dist::getSharding(op.getResult()))
      disputed.insert(name);
    stages.insert(getStage(op));
    if (isFirst && index.isWeight(op.getName()))
      addStorage(op.getName(), op.getResult());
  });
  for (auto &[name, weight] : weights)
    if (index.isWeight(name) && !disputed.contains(name))
      add(name, weight.first, weight.second);
  for (int node = 0; node < graph.node_size(); ++node) {
    std::string name = GraphIndex::getNodeName(graph, node);
    for (const std::string &output : graph.node(node).output()) {
      std::optional<NodeResult> result = index.findResult(output);
      Value value = result && result->node == name ? nodes.find(*result) : Value();
      if (!value || !value.getDefiningOp())
        continue;
      add(output, value, {getStage(value.getDefiningOp())});
    }
    // Nodes that are repeated in every stage that reads them have no stage.
    if (!shardings.stageAxis.empty())
      for (Operation *op : nodes.getOperations(name))
        if (op->getNumOperands() > 0 && !isa<loom::BroadcastOp>(op))
          shardings.stages[name] = getStage(op);
  }
}

std::string gridloom::collectShardings(ModuleOp module, const fs::path &path,
                                       ModelShardings &shardings) {
  Model model;
  if (std::string error = readGraph(path, model); !error.empty())
    return error;
  for (auto func : module.getOps<func::FuncOp>())
    if (func->hasAttr(loom::kEntry)) {
      Collector(module, func, model.proto->graph(), shardings).run();
      return "";
    }
  return "the program has no entry";
}

//===----------------------------------------------------------------------===//
// Into the model
//===----------------------------------------------------------------------===//

namespace {
class Annotator {
public:
  Annotator(onnx::ModelProto &model, const ModelShardings &shardings)
      : model(model), shardings(shardings) {}
  void run();

private:
  void addSpec(onnx::NodeDeviceConfigurationProto &annotation, const std::string &tensor);
  void setMetadata(const std::string &key, const std::string &value);

  onnx::ModelProto &model;
  const ModelShardings &shardings;
};
} // namespace

void Annotator::addSpec(onnx::NodeDeviceConfigurationProto &annotation, const std::string &tensor) {
  auto found = shardings.tensors.find(tensor);
  if (tensor.empty() || found == shardings.tensors.end() ||
      llvm::any_of(annotation.sharding_spec(),
                   [&](const auto &spec) { return spec.tensor_name() == tensor; }))
    return;
  onnx::ShardingSpecProto &spec = *annotation.add_sharding_spec();
  spec.set_tensor_name(tensor);
  for (const ModelShardings::Dim &dim : found->second.dims) {
    onnx::ShardedDimProto &sharded = *spec.add_sharded_dim();
    sharded.set_axis(dim.axis);
    onnx::SimpleShardedDimProto &cut = *sharded.add_simple_sharding();
    cut.set_num_shards(dim.parts);
    if (dim.granule > 1) {
      // Blocks that stay together are a minor factor of the axis.
      cut.set_dim_value(dim.size / dim.granule);
      onnx::SimpleShardedDimProto &block = *sharded.add_simple_sharding();
      block.set_dim_value(dim.granule);
      block.set_num_shards(1);
    } else if (shardings.hasSizes) {
      cut.set_dim_value(dim.size);
    }
  }
  for (auto [shard, group] : llvm::enumerate(found->second.groups)) {
    if (group.size() == 1) {
      spec.add_device(group.front());
      continue;
    }
    int64_t key = -1 - static_cast<int64_t>(shard);
    spec.add_device(key);
    onnx::IntIntListEntryProto &entry = *spec.add_index_to_device_group_map();
    entry.set_key(key);
    for (int64_t device : group)
      entry.add_value(device);
  }
}

void Annotator::setMetadata(const std::string &key, const std::string &value) {
  auto *list = model.mutable_metadata_props();
  for (int i = list->size(); i-- > 0;)
    if (list->Get(i).key() == key)
      list->DeleteSubrange(i, 1);
  if (value.empty())
    return;
  onnx::StringStringEntryProto &entry = *list->Add();
  entry.set_key(key);
  entry.set_value(value);
}

void Annotator::run() {
  model.set_ir_version(std::max<int64_t>(model.ir_version(), kAnnotatedIr));
  model.clear_configuration();
  onnx::DeviceConfigurationProto &configuration = *model.add_configuration();
  configuration.set_name(kConfiguration);
  configuration.set_num_devices(shardings.devices);
  setMetadata(kMeshKey.str(), shardings.mesh);
  setMetadata(kStageAxisKey.str(), shardings.stageAxis);
  setMetadata(kStorageKey.str(), shardings.storage);
  onnx::GraphProto &graph = *model.mutable_graph();
  GraphIndex index(graph);
  for (int i = 0; i < graph.node_size(); ++i) {
    onnx::NodeProto &node = *graph.mutable_node(i);
    node.clear_device_configurations();
    onnx::NodeDeviceConfigurationProto annotation;
    annotation.set_configuration_id(kConfiguration);
    // A value read from another node has the sharding of its producer.
    for (const std::string &input : node.input())
      if (index.isInput(input) || index.isWeight(input))
        addSpec(annotation, input);
    for (const std::string &output : node.output())
      addSpec(annotation, output);
    if (auto stage = shardings.stages.find(GraphIndex::getNodeName(graph, i));
        stage != shardings.stages.end())
      annotation.set_pipeline_stage(static_cast<int32_t>(stage->second));
    if (annotation.sharding_spec_size() > 0 || annotation.has_pipeline_stage())
      *node.add_device_configurations() = std::move(annotation);
  }
}

static bool isEmpty(const onnx::TensorProto &tensor) {
  for (int64_t dim : tensor.dims())
    if (dim == 0)
      return true;
  return false;
}

static bool hasData(const onnx::TensorProto &tensor) {
  return tensor.has_raw_data() || tensor.float_data_size() || tensor.int32_data_size() ||
         tensor.int64_data_size() || tensor.double_data_size() || tensor.uint64_data_size() ||
         tensor.string_data_size() || tensor.external_data_size() || isEmpty(tensor);
}

/// Turns the weights that were not read with the graph into external data in their original file.
static std::string referToOriginal(const Model &model, onnx::GraphProto &graph) {
  llvm::StringMap<const rt::OnnxTensor *> tensors;
  for (const rt::OnnxTensor &tensor : model.tensors)
    tensors[tensor.name] = &tensor;
  for (onnx::TensorProto &tensor : *graph.mutable_initializer()) {
    if (hasData(tensor))
      continue;
    auto found = tensors.find(tensor.name());
    if (found == tensors.end() || !found->second->inPlace)
      return "'" + tensor.name() + "' cannot be read in place from " + model.path.string() +
             ", which is too large to be copied; save the model with raw data";
    tensor.set_data_location(onnx::TensorProto::EXTERNAL);
    for (const auto &[key, value] :
         {std::pair<std::string, std::string>("location", model.path.filename().string()),
          {"offset", std::to_string(found->second->offset)},
          {"length", std::to_string(found->second->bytes)}}) {
      onnx::StringStringEntryProto &entry = *tensor.add_external_data();
      entry.set_key(key);
      entry.set_value(value);
    }
  }
  for (const onnx::NodeProto &node : graph.node())
    for (const onnx::AttributeProto &attribute : node.attribute())
      if (attribute.has_t() && !hasData(attribute.t()))
        return "node '" + node.name() + "' holds a tensor that cannot be referred to from " +
               "another file; save it as an initializer";
  return "";
}

static bool hasExternalData(const onnx::GraphProto &graph) {
  return llvm::any_of(graph.initializer(), [](const onnx::TensorProto &tensor) {
    return tensor.external_data_size() > 0;
  });
}

static std::string save(const onnx::ModelProto &model, const fs::path &output) {
  std::string bytes;
  if (!model.SerializeToString(&bytes))
    return "the annotated model is larger than 2 GiB, which protobuf cannot hold";
  std::string reason = replaceFile(output, {bytes});
  return reason.empty() ? "" : "cannot write '" + output.string() + "': " + reason;
}

std::string gridloom::writeAnnotated(const fs::path &path, const ModelShardings &shardings,
                                     const fs::path &output) {
  std::error_code error;
  if (fs::equivalent(path, output, error))
    return "--emit-onnx would write over the model '" + path.string() + "'";
  Model model;
  bool copies = fs::file_size(path, error) <= kMaxCopiedBytes;
  if (std::string text = readGraph(path, model, /*withWeights=*/copies); !text.empty())
    return text;
  for (const rt::OnnxTensor &tensor : model.tensors)
    if (!tensor.file.empty() && fs::equivalent(path.parent_path() / tensor.file, output, error))
      return "--emit-onnx would write over '" + output.string() + "', which holds weights of '" +
             path.string() + "'";
  if (fs::is_regular_file(output, error) && output.extension() != ".onnx")
    return "--emit-onnx '" + output.string() + "' exists and is no .onnx file; choose another file";
  onnx::ModelProto annotated = *model.proto;
  if (!copies)
    if (std::string text = referToOriginal(model, *annotated.mutable_graph()); !text.empty())
      return text;
  fs::path folder = fs::weakly_canonical(fs::absolute(path).parent_path(), error);
  if (hasExternalData(annotated.graph()) &&
      folder != fs::weakly_canonical(fs::absolute(output).parent_path(), error))
    return "--emit-onnx '" + output.string() + "': the model's weights stay in files beside it; " +
           "write into '" + folder.string() + "'";
  Annotator(annotated, shardings).run();
  return save(annotated, output);
}
