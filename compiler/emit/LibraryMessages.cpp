//===- LibraryMessages.cpp - library calls as protobuf ----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/emit/LibraryMessages.h"

#include "compiler/emit/StageBuilder.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace gridloom;

static RankedTensorType getTensor(Value buffer) {
  return cast<plan::BufferType>(buffer.getType()).getTensor();
}

static schema::Epilogue::Activation toSchemaActivation(plan::Activation activation) {
  switch (activation) {
  case plan::Activation::None:
    return schema::Epilogue::NONE;
  case plan::Activation::Relu:
    return schema::Epilogue::RELU;
  case plan::Activation::Gelu:
    return schema::Epilogue::GELU;
  }
  llvm_unreachable("an activation of no kind");
}

static void fillEpilogue(plan::EpilogueAttr attr, schema::Epilogue &epilogue) {
  epilogue.set_bias(attr.getBias());
  epilogue.set_residual(attr.getResidual());
  epilogue.set_activation(toSchemaActivation(attr.getActivation()));
}

static void fillMatmul(plan::MatmulAttr descriptor, Type operand, Type result,
                       schema::Matmul &matmul) {
  for (int64_t size : descriptor.getSizes())
    matmul.add_sizes(size);
  for (int64_t stride : descriptor.getLhs())
    matmul.add_lhs(stride);
  for (int64_t stride : descriptor.getRhs())
    matmul.add_rhs(stride);
  for (int64_t stride : descriptor.getOut())
    matmul.add_out(stride);
  matmul.set_alpha(descriptor.getAlphaValue());
  fillEpilogue(descriptor.getEpilogue(), *matmul.mutable_epilogue());
  matmul.set_type(toSchemaType(operand));
  matmul.set_out_type(toSchemaType(result));
  matmul.set_tf32(descriptor.getTf32());
  matmul.set_workspace_limit(32ull << 20);
}

static void assign(google::protobuf::RepeatedField<int64_t> &field, ArrayRef<int64_t> values) {
  field.Assign(values.begin(), values.end());
}

static void fillConvolution(plan::ConvolutionAttr descriptor, Type element,
                            schema::Convolution &convolution) {
  assign(*convolution.mutable_input(), descriptor.getInput());
  assign(*convolution.mutable_input_strides(), descriptor.getInputStrides());
  assign(*convolution.mutable_weight(), descriptor.getWeight());
  assign(*convolution.mutable_weight_strides(), descriptor.getWeightStrides());
  assign(*convolution.mutable_output(), descriptor.getOutput());
  assign(*convolution.mutable_output_strides(), descriptor.getOutputStrides());
  assign(*convolution.mutable_strides(), descriptor.getStrides());
  assign(*convolution.mutable_low(), descriptor.getLow());
  assign(*convolution.mutable_high(), descriptor.getHigh());
  assign(*convolution.mutable_dilations(), descriptor.getDilations());
  convolution.set_groups(descriptor.getGroups());
  fillEpilogue(descriptor.getEpilogue(), *convolution.mutable_epilogue());
  convolution.set_tf32(descriptor.getTf32());
  convolution.set_type(toSchemaType(element));
  convolution.set_workspace_limit(256ull << 20);
}

static void fillAttention(plan::AttentionAttr descriptor, Type element,
                          schema::Attention &attention) {
  assign(*attention.mutable_sizes(), descriptor.getSizes());
  assign(*attention.mutable_query(), descriptor.getQuery());
  assign(*attention.mutable_key(), descriptor.getKey());
  assign(*attention.mutable_value(), descriptor.getValue());
  assign(*attention.mutable_out(), descriptor.getOut());
  assign(*attention.mutable_mask(), descriptor.getMask());
  attention.set_scale(descriptor.getScale().getValueAsDouble());
  attention.set_causal(descriptor.getCausal());
  attention.set_type(toSchemaType(element));
  attention.set_workspace_limit(256ull << 20);
}

void gridloom::fillLibrary(plan::LibraryOp op, schema::Library &library) {
  Type element = getTensor(op.getOutputs()[0]).getElementType();
  llvm::TypeSwitch<Attribute>(op.getDescriptor())
      .Case([&](plan::MatmulAttr attr) {
        Type operand = getTensor(op.getInputs()[0]).getElementType();
        fillMatmul(attr, operand, element, *library.mutable_matmul());
      })
      .Case([&](plan::ConvolutionAttr attr) {
        fillConvolution(attr, element, *library.mutable_convolution());
      })
      .Case([&](plan::AttentionAttr attr) {
        fillAttention(attr, element, *library.mutable_attention());
      });
}
