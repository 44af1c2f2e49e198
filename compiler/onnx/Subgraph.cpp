//===- Subgraph.cpp - graphs within nodes ---------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/GraphImporter.h"
#include "compiler/onnx/OpTable.h"
#include "compiler/onnx/Sequences.h"

#include "onnx-ml.pb.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::onnx_import;

GraphImporter::GraphImporter(GraphImporter &parent, const onnx::GraphProto &graph, Location loc,
                             OpBuilder builder, Captures *captures)
    : parent(&parent), callee(parent.callee), captures(captures),
      prefix(loom::getNodeName(loc) + "/"), callPrefix(parent.callPrefix), model(parent.model),
      graph(graph), pool(parent.pool), bindings(parent.bindings), builder(builder),
      function(parent.function), options(parent.options), functions(parent.functions),
      lengths(parent.lengths), marks(parent.marks), attributes(parent.attributes) {}

/// Adds the names that `graph` reads from the graphs around it.
static void addFreeNames(const onnx::GraphProto &graph, SmallVector<std::string> &names) {
  llvm::StringSet<> defined;
  for (const onnx::TensorProto &tensor : graph.initializer())
    defined.insert(tensor.name());
  for (const onnx::ValueInfoProto &input : graph.input())
    defined.insert(input.name());
  for (const onnx::NodeProto &node : graph.node())
    for (const std::string &output : node.output())
      defined.insert(output);
  auto add = [&](const std::string &name) {
    if (!name.empty() && !defined.contains(name))
      names.push_back(name);
  };
  for (const onnx::NodeProto &node : graph.node())
    llvm::for_each(getReadNames(node), add);
  for (const onnx::ValueInfoProto &output : graph.output())
    add(output.name());
}

SmallVector<std::string> onnx_import::getReadNames(const onnx::NodeProto &node) {
  SmallVector<std::string> names(node.input().begin(), node.input().end());
  // Gradient names tensors of its graph.
  bool isGradient = node.op_type() == "Gradient" && node.domain() == kTrainingDomain;
  for (const onnx::AttributeProto &attribute : node.attribute()) {
    if (attribute.has_g())
      addFreeNames(attribute.g(), names);
    if (isGradient && attribute.has_s())
      names.push_back(attribute.s());
    if (isGradient)
      names.append(attribute.strings().begin(), attribute.strings().end());
  }
  return names;
}

/// Constants and weights are copied into the body; other values become its arguments.
Value GraphImporter::read(Value outer) {
  if (!captures)
    return outer;
  if (Operation *op = outer.getDefiningOp();
      isa_and_nonnull<loom::ConstantOp, loom::GetWeightOp>(op))
    return builder.clone(*op)->getResult(0);
  if (isSequence(outer)) {
    SmallVector<Value> elements =
        llvm::map_to_vector(getElements(outer), [&](Value element) { return read(element); });
    return makeSequence(builder, outer.getLoc(), elements);
  }
  Value &argument = (*captures)[outer];
  if (!argument)
    argument = builder.getInsertionBlock()->addArgument(outer.getType(), outer.getLoc());
  return argument;
}

func::FuncOp GraphImporter::createBody(Location loc, StringRef suffix) {
  ModuleOp module = getModule();
  std::string stem = (function.getSymName() + "_" + suffix).str(), symbol = stem;
  for (int i = 2; module.lookupSymbol(symbol) || pool.contains(symbol); ++i)
    symbol = stem + std::to_string(i);
  OpBuilder at(module.getContext());
  at.setInsertionPointToEnd(module.getBody());
  auto body = func::FuncOp::create(at, loc, symbol, at.getFunctionType({}, {}));
  body->setAttr(loom::kBody, at.getUnitAttr());
  body.getBody().emplaceBlock();
  return body;
}

/// The values of a small tensor that the file's message still holds.
static std::optional<loom::HostTensor> decode(const onnx::TensorProto &tensor,
                                              loom::ElementKind kind) {
  SmallVector<int64_t> shape(tensor.dims().begin(), tensor.dims().end());
  // A small message may declare a huge tensor.
  constexpr int64_t kMaxElements = 1 << 20;
  if (!isReasonable(shape) || loom::countElements(shape) > kMaxElements)
    return std::nullopt;
  loom::HostTensor result(kind, shape);
  char *data = result.getMutableData();
  size_t count = result.getNumElements(), size = loom::sizeOf(kind);
  bool held = false;
  auto take = [&](const auto &values) {
    held = static_cast<size_t>(values.size()) == count;
    for (size_t i = 0; held && i < count; ++i) {
      auto value = values.Get(i);
      std::memcpy(data + i * size, &value, std::min(size, sizeof(value)));
    }
  };
  if (tensor.has_raw_data()) {
    held = tensor.raw_data().size() == count * size;
    if (held)
      std::memcpy(data, tensor.raw_data().data(), count * size);
  } else if (kind == loom::ElementKind::F32) {
    take(tensor.float_data());
  } else if (kind == loom::ElementKind::F64) {
    take(tensor.double_data());
  } else if (kind == loom::ElementKind::I64) {
    take(tensor.int64_data());
  } else if (kind == loom::ElementKind::U32 || kind == loom::ElementKind::U64) {
    take(tensor.uint64_data());
  } else {
    take(tensor.int32_data());
  }
  if (!held)
    return std::nullopt;
  if (kind == loom::ElementKind::Bool)
    for (uint8_t &value : result.getMutableValues<uint8_t>())
      value = value != 0;
  return result;
}

Value GraphImporter::getSubgraphTensor(StringRef name, const Emitter &reader) {
  const onnx::TensorProto *tensor = nullptr;
  for (const onnx::TensorProto &initializer : graph.initializer())
    if (initializer.name() == name)
      tensor = &initializer;
  for (const onnx::NodeProto &node : graph.node())
    if (node.op_type() == "Constant" && node.output_size() == 1 && node.output(0) == name)
      for (const onnx::AttributeProto &attribute : node.attribute())
        if (const auto *given = resolve(attribute); given && attribute.name() == "value")
          tensor = &given->t();
  if (!tensor) {
    reader.error() << "the constant '" << name << "' has no tensor";
    return {};
  }
  Type element = getElementType(builder.getContext(), tensor->data_type());
  if (!element) {
    reader.error() << "'" << name << "' has element type " << getTypeName(tensor->data_type())
                   << ", which is not supported";
    return {};
  }
  std::optional<loom::HostTensor> value = decode(*tensor, *loom::getElementKind(element));
  if (!value) {
    reader.error() << "'" << name << "' is too large for a tensor of a subgraph; make it an "
                   << "initializer of the main graph";
    return {};
  }
  return loom::ConstantOp::create(builder, NameLoc::get(builder.getStringAttr(name)),
                                  value->toAttribute(builder.getContext()));
}

FailureOr<SmallVector<Value>> GraphImporter::importSubgraph(ValueRange inputs) {
  if (static_cast<int>(inputs.size()) != graph.input_size()) {
    StringRef node = StringRef(prefix).drop_back();
    return emitError(NameLoc::get(builder.getStringAttr(node)))
           << "graph '" << graph.name() << "' of node '" << node << "' has " << graph.input_size()
           << " inputs, expected " << inputs.size();
  }
  if (failed(sortNodes()))
    return failure();
  for (auto [input, value] : llvm::zip_equal(graph.input(), inputs))
    values[input.name()] = value;
  for (int index : order)
    if (failed(importNode(index)))
      return failure();
  SmallVector<Value> outputs;
  for (const onnx::ValueInfoProto &output : graph.output()) {
    Location loc = NameLoc::get(builder.getStringAttr(output.name()));
    outputs.push_back(
        getValue(output.name(), Emitter(builder, loc, "output '" + output.name() + "'")));
    if (!outputs.back())
      return failure();
    if (Type narrow = getNarrow(output.name()))
      return emitError(loc) << "output '" << output.name() << "' of a subgraph is of " << narrow
                            << ", which is not supported; convert it (Cast)";
  }
  return outputs;
}
