//===- Annotations.cpp - multi-device annotations of a model --------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/Annotations.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/Support/MathExtras.h"

#include "onnx-ml.pb.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::onnx_import;

//===----------------------------------------------------------------------===//
// GraphIndex
//===----------------------------------------------------------------------===//

GraphIndex::GraphIndex(const onnx::GraphProto &graph) : graph(graph) {
  for (const onnx::TensorProto &tensor : graph.initializer())
    weights.insert(tensor.name());
  for (const onnx::ValueInfoProto &input : graph.input())
    if (!weights.contains(input.name()))
      inputs.insert(input.name());
  for (const onnx::ValueInfoProto &output : graph.output())
    outputs.insert(output.name());
  for (int node = 0; node < graph.node_size(); ++node) {
    for (const std::string &input : graph.node(node).input())
      readers[input].push_back(node);
    for (int i = 0; i < graph.node(node).output_size(); ++i)
      producers.try_emplace(graph.node(node).output(i), node, i);
  }
}

std::string GraphIndex::getNodeName(const onnx::GraphProto &graph, int index) {
  const onnx::NodeProto &node = graph.node(index);
  return node.name().empty() ? node.op_type() + "_" + std::to_string(index) : node.name();
}

std::optional<NodeResult> GraphIndex::findResult(StringRef tensor) const {
  auto producer = producers.find(tensor);
  if (producer == producers.end())
    return std::nullopt;
  auto [node, position] = producer->second;
  NodeResult result;
  result.node = getNodeName(graph, node);
  result.count = 0;
  for (int i = 0; i < graph.node(node).output_size(); ++i) {
    if (i == position)
      result.index = result.count;
    result.count += isUsed(graph.node(node).output(i)) || i == position;
  }
  if (auto found = readers.find(tensor); found != readers.end())
    for (int reader : found->second)
      result.readers.push_back(getNodeName(graph, reader));
  result.isOutput = outputs.contains(tensor);
  return result;
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

namespace {
class AnnotationReader {
public:
  AnnotationReader(const Model &model, ModuleOp module)
      : proto(*model.proto), graph(proto.graph()), index(graph), module(module),
        builder(module.getContext()) {}
  LogicalResult run();

private:
  InFlightDiagnostic error(int node) {
    return emitError(NameLoc::get(builder.getStringAttr(GraphIndex::getNodeName(graph, node))));
  }
  bool isConfiguration(StringRef name) const {
    return llvm::any_of(proto.configuration(),
                        [&](const auto &known) { return known.name() == name; });
  }
  LogicalResult readNode(int node, const onnx::NodeDeviceConfigurationProto &annotation);
  LogicalResult readSpec(int node, const onnx::ShardingSpecProto &spec);
  FailureOr<ArrayAttr> readDims(int node, const onnx::ShardingSpecProto &spec, int64_t &shards);
  FailureOr<ArrayAttr> readGroups(int node, const onnx::ShardingSpecProto &spec, int64_t shards);
  void keep(int node, StringRef tensor, ArrayAttr dims, ArrayAttr groups);

  const onnx::ModelProto &proto;
  const onnx::GraphProto &graph;
  GraphIndex index;
  ModuleOp module;
  Builder builder;
  int64_t devices = 0, stages = 1;
  /// By tensor. If several nodes annotate one, its producer's annotation counts, else the first.
  llvm::MapVector<StringAttr, std::pair<int, DictionaryAttr>> values;
  SmallVector<Attribute> nodes;
};
} // namespace

/// One attribute per sharded axis: axis, size or 0, shards, elements per block.
FailureOr<ArrayAttr> AnnotationReader::readDims(int node, const onnx::ShardingSpecProto &spec,
                                                int64_t &shards) {
  auto fail = [&] { return error(node) << "the annotation of '" << spec.tensor_name() << "' "; };
  SmallVector<Attribute> dims;
  llvm::SmallDenseSet<int64_t> seen;
  shards = 1;
  for (const onnx::ShardedDimProto &dim : spec.sharded_dim()) {
    if (!seen.insert(dim.axis()).second)
      return fail() << "cuts axis " << dim.axis() << " twice";
    // Several entries are row-major factors of the axis. Only the first ones may be cut; those
    // after the last cut one stay together.
    int64_t size = 1, parts = 1, granule = 1;
    bool isPartial = false; // an earlier factor is whole or in pieces of several
    for (const onnx::SimpleShardedDimProto &part : dim.simple_sharding()) {
      int64_t length = part.has_dim_value() ? part.dim_value() : 0, count = part.num_shards();
      if (count < 1 || count > devices)
        return fail() << "cuts axis " << dim.axis() << " into " << count
                      << " shards; the configuration has " << devices << " devices";
      if (length < 0 || (length == 0 && dim.simple_sharding_size() > 1))
        return fail() << "does not give the sizes of axis " << dim.axis();
      if (count > 1 && isPartial)
        return fail() << "cuts axis " << dim.axis()
                      << " inside of what an outer factor leaves together";
      isPartial |= length != count;
      granule *= count == 1 && parts > 1 ? length : 1;
      if (llvm::MulOverflow(size, length, size))
        return fail() << "gives axis " << dim.axis() << " more elements than 64 bits count";
      // Neither factor exceeds the number of devices, which is of 32 bits.
      parts *= count;
      if (shards * parts > devices)
        return fail() << "has " << shards * parts << " shards; the configuration has " << devices
                      << " devices";
    }
    shards *= parts;
    dims.push_back(builder.getDenseI64ArrayAttr({dim.axis(), size, parts, granule}));
  }
  return builder.getArrayAttr(dims);
}

/// The devices of each shard.
FailureOr<ArrayAttr> AnnotationReader::readGroups(int node, const onnx::ShardingSpecProto &spec,
                                                  int64_t shards) {
  auto fail = [&] { return error(node) << "the annotation of '" << spec.tensor_name() << "' "; };
  if (spec.device_size() != shards)
    return fail() << "lists " << spec.device_size() << " devices or groups for " << shards
                  << " shards";
  SmallVector<Attribute> groups;
  for (int64_t device : spec.device()) {
    SmallVector<int64_t> members = {device};
    for (const onnx::IntIntListEntryProto &entry : spec.index_to_device_group_map())
      if (entry.key() == device)
        members.assign(entry.value().begin(), entry.value().end());
    for (int64_t member : members)
      if (member < 0 || member >= devices)
        return fail() << "names device " << member << "; the configuration has 0 to "
                      << devices - 1;
    groups.push_back(builder.getDenseI64ArrayAttr(members));
  }
  return builder.getArrayAttr(groups);
}

void AnnotationReader::keep(int node, StringRef tensor, ArrayAttr dims, ArrayAttr groups) {
  std::optional<NodeResult> result = index.findResult(tensor);
  std::string name = GraphIndex::getNodeName(graph, node);
  bool isProducer = result && result->node == name;
  SmallVector<NamedAttribute> entries;
  auto add = [&](StringRef key, Attribute value) {
    entries.push_back(builder.getNamedAttr(key, value));
  };
  add("name", builder.getStringAttr(tensor));
  add("node", builder.getStringAttr(result ? result->node : name));
  add("what", builder.getStringAttr(result                  ? "result"
                                    : index.isInput(tensor) ? "input"
                                                            : "weight"));
  if (result) {
    add("index", builder.getI64IntegerAttr(result->index));
    add("count", builder.getI64IntegerAttr(result->count));
    SmallVector<StringRef> readers(result->readers.begin(), result->readers.end());
    add("readers", builder.getStrArrayAttr(readers));
    if (result->isOutput)
      add("output", builder.getUnitAttr());
  }
  add("dims", dims);
  add("groups", groups);
  DictionaryAttr value = builder.getDictionaryAttr(entries);
  auto [it, isNew] = values.try_emplace(builder.getStringAttr(tensor), node, value);
  if (isNew)
    return;
  DictionaryAttr first = it->second.second;
  if (first.get("dims") != dims || first.get("groups") != groups)
    mlir::emitRemark(NameLoc::get(builder.getStringAttr(name)))
        << "'" << tensor << "' is annotated otherwise at '"
        << GraphIndex::getNodeName(graph, it->second.first) << "'; "
        << (isProducer ? "this one makes it and counts" : "that one counts");
  if (isProducer)
    it->second = {node, value};
}

LogicalResult AnnotationReader::readSpec(int node, const onnx::ShardingSpecProto &spec) {
  const onnx::NodeProto &reader = graph.node(node);
  if (!llvm::is_contained(reader.input(), spec.tensor_name()) &&
      !llvm::is_contained(reader.output(), spec.tensor_name()))
    return error(node) << "the annotation names '" << spec.tensor_name()
                       << "', which the node neither reads nor makes";
  int64_t shards = 1;
  FailureOr<ArrayAttr> dims = readDims(node, spec, shards);
  if (failed(dims))
    return failure();
  if (spec.device_size() == 0 && shards == 1)
    return success(); // an empty annotation
  FailureOr<ArrayAttr> groups = readGroups(node, spec, shards);
  if (failed(groups))
    return failure();
  keep(node, spec.tensor_name(), *dims, *groups);
  return success();
}

LogicalResult AnnotationReader::readNode(int node,
                                         const onnx::NodeDeviceConfigurationProto &annotation) {
  if (!isConfiguration(annotation.configuration_id())) {
    std::string names;
    for (const onnx::DeviceConfigurationProto &known : proto.configuration())
      names += (names.empty() ? "" : ", ") + known.name();
    return error(node) << "is annotated for the configuration '" << annotation.configuration_id()
                       << "'; the model's are: " << (names.empty() ? "none" : names);
  }
  if (annotation.configuration_id() != proto.configuration(0).name())
    return success();
  for (const onnx::ShardingSpecProto &spec : annotation.sharding_spec())
    if (failed(readSpec(node, spec)))
      return failure();
  if (!annotation.has_pipeline_stage())
    return success();
  int64_t stage = annotation.pipeline_stage();
  if (stage < 0 || stage >= devices)
    return error(node) << "is annotated with pipeline stage " << stage << "; the configuration has "
                       << devices << " devices";
  stages = std::max(stages, stage + 1);
  nodes.push_back(builder.getDictionaryAttr(
      {builder.getNamedAttr("node", builder.getStringAttr(GraphIndex::getNodeName(graph, node))),
       builder.getNamedAttr("stage", builder.getI64IntegerAttr(stage))}));
  return success();
}

LogicalResult AnnotationReader::run() {
  if (proto.configuration_size() > 0) {
    devices = proto.configuration(0).num_devices();
    if (devices < 1)
      return module.emitError("the device configuration '")
             << proto.configuration(0).name() << "' has " << devices << " devices";
    if (proto.configuration_size() > 1)
      module.emitRemark("the model has several device configurations; '")
          << proto.configuration(0).name() << "', the first, is used";
  }
  for (int node = 0; node < graph.node_size(); ++node)
    for (const onnx::NodeDeviceConfigurationProto &annotation :
         graph.node(node).device_configurations())
      if (failed(readNode(node, annotation)))
        return failure();
  if (values.empty() && nodes.empty())
    return success();
  NamedAttrList list;
  list.set("devices", builder.getI64IntegerAttr(devices));
  list.set("stages", builder.getI64IntegerAttr(stages));
  for (const onnx::StringStringEntryProto &entry : proto.metadata_props())
    if (entry.key() == kMeshKey)
      list.set("mesh", builder.getStringAttr(entry.value()));
    else if (entry.key() == kStageAxisKey)
      list.set("stage_axis", builder.getStringAttr(entry.value()));
    else if (entry.key() == kStorageKey)
      list.set("storage", builder.getStringAttr(entry.value()));
  SmallVector<Attribute> annotations;
  for (const auto &[tensor, annotation] : values)
    annotations.push_back(annotation.second);
  list.set("values", builder.getArrayAttr(annotations));
  list.set("nodes", builder.getArrayAttr(nodes));
  module->setAttr(kAnnotations, list.getDictionary(module.getContext()));
  return success();
}

LogicalResult onnx_import::importAnnotations(const Model &model, ModuleOp module) {
  return AnnotationReader(model, module).run();
}
