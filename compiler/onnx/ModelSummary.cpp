//===- ModelSummary.cpp - contents of an ONNX file ------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/ModelSummary.h"

#include "compiler/onnx/ModelReader.h"
#include "support/Document.h"

#include "onnx-ml.pb.h"

#include <algorithm>
#include <map>

using namespace gridloom;
using namespace gridloom::onnx_import;

/// Rows of the table of the largest weights.
static constexpr size_t kLargestWeights = 10;

static std::string formatShape(const onnx::TensorShapeProto &shape) {
  std::string text;
  for (const onnx::TensorShapeProto::Dimension &dim : shape.dim()) {
    text += text.empty() ? "" : ", ";
    text += dim.has_dim_value()       ? std::to_string(dim.dim_value())
            : dim.dim_param().empty() ? "?"
                                      : dim.dim_param();
  }
  return "[" + text + "]";
}

std::string gridloom::onnx_import::formatElementType(int type) {
  std::string name = onnx::TensorProto::DataType_Name(onnx::TensorProto::DataType(type));
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return tolower(c); });
  return name.empty() ? "type " + std::to_string(type) : name;
}

static void addValues(Document &document, const std::string &title,
                      const google::protobuf::RepeatedPtrField<onnx::ValueInfoProto> &values,
                      const std::map<std::string, bool> &weights) {
  document.addTable(title, {"name", "type", "shape"});
  for (const onnx::ValueInfoProto &value : values) {
    if (weights.count(value.name()))
      continue;
    const onnx::TypeProto &type = value.type();
    bool isTensor = type.has_tensor_type();
    document.addRow({value.name(),
                     isTensor ? formatElementType(type.tensor_type().elem_type()) : "no tensor",
                     isTensor ? formatShape(type.tensor_type().shape()) : ""});
  }
}

/// Counts the operators of a graph and of the graphs in its nodes' attributes.
static void countOperators(const google::protobuf::RepeatedPtrField<onnx::NodeProto> &nodes,
                           std::map<std::string, int64_t> &counts, int depth = 0) {
  constexpr int kDeepest = 64; // as protobuf's own limit on messages within messages
  for (const onnx::NodeProto &node : nodes) {
    bool isStandard = node.domain().empty() || node.domain() == "ai.onnx";
    ++counts[isStandard ? node.op_type() : node.domain() + "." + node.op_type()];
    for (const onnx::AttributeProto &attribute : node.attribute())
      if (attribute.has_g() && depth < kDeepest)
        countOperators(attribute.g().node(), counts, depth + 1);
  }
}

static void addWeights(Document &document, std::vector<rt::OnnxTensor> tensors) {
  std::stable_sort(tensors.begin(), tensors.end(),
                   [](const auto &x, const auto &y) { return x.getSize() > y.getSize(); });
  tensors.resize(std::min(tensors.size(), kLargestWeights));
  document.addTable("largest_weights", {"name", "type", "shape", "bytes", "file"});
  for (const rt::OnnxTensor &tensor : tensors) {
    std::string shape;
    for (int64_t size : tensor.getNumberShape())
      shape += (shape.empty() ? "" : ", ") + std::to_string(size);
    document.addRow({tensor.name, std::string(tensor.getTypeName()), "[" + shape + "]",
                     bytesCell(tensor.getSize()), tensor.file.empty() ? "model" : tensor.file});
  }
}

std::string gridloom::onnx_import::summarizeModel(const std::string &path, Document &document) {
  Model model;
  if (std::string error = readGraph(path, model); !error.empty())
    return error;
  const onnx::ModelProto &proto = *model.proto;
  document.addField("model", path);
  document.addField("file", bytesCell(std::filesystem::file_size(path)));
  document.addField("ir_version", proto.ir_version());
  std::string opsets;
  for (const onnx::OperatorSetIdProto &opset : proto.opset_import())
    opsets += (opsets.empty() ? "" : ", ") + (opset.domain().empty() ? "ai.onnx" : opset.domain()) +
              " " + std::to_string(opset.version());
  document.addField("opsets", opsets);
  if (!proto.producer_name().empty())
    document.addField("producer", proto.producer_name() +
                                      (proto.producer_version().empty() ? "" : " ") +
                                      proto.producer_version());
  uint64_t bytes = 0;
  int64_t parameters = 0;
  std::map<std::string, bool> weights;
  for (const rt::OnnxTensor &tensor : model.tensors) {
    weights[tensor.name] = true;
    bytes += tensor.getSize();
    int64_t elements = 1;
    for (int64_t size : tensor.getNumberShape())
      elements *= size;
    parameters += elements;
  }
  document.addField("parameters", parameters);
  document.addField("weights", bytesCell(bytes));
  document.addField("nodes", proto.graph().node_size());
  document.addField("functions", proto.functions_size());
  addValues(document, "inputs", proto.graph().input(), weights);
  addValues(document, "outputs", proto.graph().output(), {});
  std::map<std::string, int64_t> counts;
  countOperators(proto.graph().node(), counts);
  document.addTable("operators", {"operator", "nodes"});
  for (const auto &[name, count] : counts)
    document.addRow({name, count});
  addWeights(document, model.tensors);
  return "";
}
