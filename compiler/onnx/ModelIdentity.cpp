//===- ModelIdentity.cpp - digest of a model's graph ----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/ModelIdentity.h"

#include "compiler/onnx/Annotations.h"
#include "support/Sha256.h"

#include "onnx-ml.pb.h"

using namespace gridloom;
using namespace gridloom::onnx_import;

static constexpr size_t kDigits = 32;

namespace {
/// Encodes a graph, each text with its length, so that no two graphs have the same encoding.
class Describer {
public:
  explicit Describer(ModelIdentity &identity) : identity(identity) {}

  void add(const onnx::GraphProto &graph) {
    for (const onnx::ValueInfoProto &input : graph.input())
      addNamed("input", input.name());
    for (const onnx::TensorProto &tensor : graph.initializer()) {
      addNamed("initializer", tensor.name());
      add(tensor);
    }
    for (int i = 0; i < graph.node_size(); ++i) {
      addNamed("node", GraphIndex::getNodeName(graph, i));
      add(graph.node(i));
    }
    for (const onnx::ValueInfoProto &output : graph.output())
      addNamed("output", output.name());
    add("end");
  }

  void add(const onnx::FunctionProto &function) {
    addNamed("function", function.name());
    add(function.domain());
    for (const onnx::NodeProto &node : function.node()) {
      addNamed("node", node.name());
      add(node);
    }
    add("end");
  }

  const std::string &getText() const { return text; }

private:
  void add(const std::string &part) { text += std::to_string(part.size()) + ":" + part; }
  void add(int64_t number) { add(std::to_string(number)); }
  void addNamed(const char *what, const std::string &name) {
    add(std::string(what));
    add(name);
    identity.names.insert(name);
  }
  void add(const char *word) { add(std::string(word)); }

  void add(const onnx::TensorProto &tensor) {
    add(tensor.data_type());
    for (int64_t size : tensor.dims())
      add(size);
  }

  void add(const onnx::AttributeProto &attribute) {
    add(attribute.name());
    add(attribute.type());
    add(attribute.i());
    add(std::to_string(attribute.f()));
    add(attribute.s());
    for (int64_t value : attribute.ints())
      add(value);
    for (float value : attribute.floats())
      add(std::to_string(value));
    for (const std::string &value : attribute.strings())
      add(value);
    if (attribute.has_t())
      add(attribute.t());
    if (attribute.has_g())
      add(attribute.g());
    for (const onnx::GraphProto &graph : attribute.graphs())
      add(graph);
  }

  void add(const onnx::NodeProto &node) {
    add(node.domain());
    add(node.op_type());
    for (const std::string &input : node.input())
      add(input);
    add("to");
    for (const std::string &output : node.output())
      add(output);
    for (const onnx::AttributeProto &attribute : node.attribute())
      add(attribute);
  }

  ModelIdentity &identity;
  std::string text;
};
} // namespace

std::string gridloom::readIdentity(const std::filesystem::path &path, ModelIdentity &identity) {
  Model model;
  if (std::string error = readGraph(path, model); !error.empty())
    return error;
  identity.name = model.proto->graph().name();
  Describer describer(identity);
  describer.add(model.proto->graph());
  for (const onnx::FunctionProto &function : model.proto->functions())
    describer.add(function);
  identity.graph = sha256(describer.getText()).substr(0, kDigits);
  return "";
}
