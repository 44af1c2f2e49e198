//===- ModelBrief.cpp - interface and size of a model ---------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/ModelBrief.h"

#include "compiler/onnx/GraphImporter.h"
#include "compiler/onnx/ModelSummary.h"
#include "support/Document.h"
#include "support/Text.h"

#include "onnx-ml.pb.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"

using namespace gridloom;
using namespace gridloom::onnx_import;

std::string gridloom::describe(const BriefValue &value) {
  if (!value.hasShape)
    return value.name + " " + value.type + " without a shape";
  std::string shape;
  for (const BriefDim &dim : value.dims)
    shape += (shape.empty() ? "" : ", ") + (dim.isOpen() ? dim.name : std::to_string(dim.size));
  return value.name + " " + value.type + " [" + shape + "]";
}

static BriefValue describeValue(const onnx::ValueInfoProto &value) {
  const onnx::TypeProto_Tensor &type = value.type().tensor_type();
  BriefValue brief{value.name(), formatElementType(type.elem_type()), {}, type.has_shape()};
  for (int i = 0; i < type.shape().dim_size(); ++i)
    brief.dims.push_back({getDimName(value, i), type.shape().dim(i).dim_value()});
  return brief;
}

std::string gridloom::readBrief(const std::string &path, ModelBrief &brief) {
  Model model;
  if (std::string error = readGraph(path, model); !error.empty())
    return error;
  uint64_t bytes = 0;
  llvm::StringSet<> weights;
  for (const rt::OnnxTensor &tensor : model.tensors) {
    weights.insert(tensor.name);
    bytes += tensor.getSize();
  }
  const onnx::GraphProto &graph = model.proto->graph();
  brief.size =
      formatCount(graph.node_size(), "node") + ", " + bytesCell(bytes).text + " of weights";
  for (const onnx::ValueInfoProto &input : graph.input())
    if (!weights.contains(input.name()))
      brief.inputs.push_back(describeValue(input));
  for (const onnx::ValueInfoProto &output : graph.output())
    brief.outputs.push_back(describeValue(output));
  for (const BriefValue &input : brief.inputs)
    for (const BriefDim &dim : input.dims)
      if (dim.isOpen() && !llvm::is_contained(brief.dims, dim.name))
        brief.dims.push_back(dim.name);
  return "";
}
