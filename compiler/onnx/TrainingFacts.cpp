//===- TrainingFacts.cpp - what a file says of training -------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/TrainingFacts.h"

#include "onnx-ml.pb.h"

using namespace gridloom;
using namespace gridloom::onnx_import;

std::string onnx_import::readTrainingFacts(const std::string &path, TrainingFacts &facts) {
  Model model;
  if (std::string error = readGraph(path, model); !error.empty())
    return error;
  for (const rt::OnnxTensor &tensor : model.tensors)
    if (tensor.isInitializer)
      facts.initializers.push_back({tensor.name, isFloat(tensor.type), tensor.shape.empty()});
  for (const onnx::NodeProto &node : model.proto->graph().node()) {
    facts.biasedConvolutions +=
        node.op_type() == "Conv" && node.input_size() > 2 && !node.input(2).empty();
    facts.hasBatchNormalization |= node.op_type() == "BatchNormalization";
    facts.hasDropout |= node.op_type() == "Dropout";
  }
  return findEqualWeights(model, facts.equal);
}
