//===- ModelBrief.cpp - what to know before compiling a model -------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/ModelBrief.h"

#include "compiler/onnx/GraphImporter.h"
#include "compiler/onnx/ModelSummary.h"
#include "runtime/cli/Document.h"

#include "onnx-ml.pb.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"

using namespace gridloom;
using namespace gridloom::onnx_import;

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
      std::to_string(graph.node_size()) + " nodes, " + rt::bytesCell(bytes).text + " of weights";
  for (const onnx::ValueInfoProto &input : graph.input()) {
    if (weights.contains(input.name()))
      continue;
    const onnx::TypeProto_Tensor &type = input.type().tensor_type();
    std::string shape;
    for (int i = 0; i < type.shape().dim_size(); ++i) {
      std::string name = getDimName(input, i);
      shape +=
          (i ? ", " : "") + (name.empty() ? std::to_string(type.shape().dim(i).dim_value()) : name);
      if (!name.empty() && !llvm::is_contained(brief.dims, name))
        brief.dims.push_back(name);
    }
    brief.inputs.push_back(input.name() + " " + formatElementType(type.elem_type()) + " [" + shape +
                           "]");
  }
  return "";
}
