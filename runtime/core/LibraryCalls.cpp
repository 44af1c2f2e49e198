//===- LibraryCalls.cpp - a plan's library calls --------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/core/LibraryCalls.h"

using namespace gridloom;
using namespace gridloom::rt;

using Numbers = google::protobuf::RepeatedField<int64_t>;

static std::span<const int64_t> toSpan(const Numbers &numbers) {
  return {numbers.data(), size_t(numbers.size())};
}

static Epilogue toEpilogue(const schema::Epilogue &epilogue) {
  static_assert(int(Activation::None) == schema::Epilogue::NONE &&
                int(Activation::Relu) == schema::Epilogue::RELU &&
                int(Activation::Gelu) == schema::Epilogue::GELU);
  return {epilogue.bias(), epilogue.residual(), Activation(epilogue.activation())};
}

MatmulProblem gridloom::rt::toProblem(const schema::Matmul &matmul) {
  MatmulProblem problem;
  problem.type = DataType(matmul.type());
  if (matmul.out_type())
    problem.outType = DataType(matmul.out_type());
  problem.tf32 = matmul.tf32();
  problem.sizes = toSpan(matmul.sizes());
  problem.lhs = toSpan(matmul.lhs());
  problem.rhs = toSpan(matmul.rhs());
  problem.out = toSpan(matmul.out());
  problem.alpha = matmul.alpha();
  problem.epilogue = toEpilogue(matmul.epilogue());
  problem.workspaceLimit = matmul.workspace_limit();
  return problem;
}

ConvolutionProblem gridloom::rt::toProblem(const schema::Convolution &convolution) {
  ConvolutionProblem problem;
  problem.type = DataType(convolution.type());
  problem.input = toSpan(convolution.input());
  problem.inputStrides = toSpan(convolution.input_strides());
  problem.weight = toSpan(convolution.weight());
  problem.weightStrides = toSpan(convolution.weight_strides());
  problem.output = toSpan(convolution.output());
  problem.outputStrides = toSpan(convolution.output_strides());
  problem.strides = toSpan(convolution.strides());
  problem.low = toSpan(convolution.low());
  problem.high = toSpan(convolution.high());
  problem.dilations = toSpan(convolution.dilations());
  problem.groups = convolution.groups();
  problem.epilogue = toEpilogue(convolution.epilogue());
  problem.tf32 = convolution.tf32();
  problem.workspaceLimit = convolution.workspace_limit();
  return problem;
}

AttentionProblem gridloom::rt::toProblem(const schema::Attention &attention) {
  AttentionProblem problem;
  problem.type = problem.maskType = DataType(attention.type());
  problem.sizes = toSpan(attention.sizes());
  problem.query = toSpan(attention.query());
  problem.key = toSpan(attention.key());
  problem.value = toSpan(attention.value());
  problem.out = toSpan(attention.out());
  problem.mask = toSpan(attention.mask());
  problem.scale = attention.scale();
  problem.causal = attention.causal();
  problem.workspaceLimit = attention.workspace_limit();
  return problem;
}

static std::string format(const Numbers &sizes) {
  std::string text;
  for (int64_t size : sizes)
    text += (text.empty() ? "" : "x") + std::to_string(size);
  return text;
}

static const char *describeActivation(schema::Epilogue::Activation activation) {
  static constexpr const char *texts[] = {"", " + relu", " + gelu"};
  return texts[activation];
}

std::string gridloom::rt::describe(const schema::Library &call) {
  const schema::Epilogue &epilogue =
      call.has_convolution() ? call.convolution().epilogue() : call.matmul().epilogue();
  std::string bias = epilogue.bias() ? " + bias" : "",
              residual = epilogue.residual() ? " + residual" : "";
  if (call.has_convolution())
    return "convolution " + format(call.convolution().input()) + " with " +
           format(call.convolution().weight()) + bias + residual +
           describeActivation(epilogue.activation());
  if (call.has_attention())
    return "attention " + format(call.attention().sizes()) +
           (call.attention().mask_size() ? " masked" : "") +
           (call.attention().causal() ? " causal" : "");
  return "matmul " + format(call.matmul().sizes()) + residual + bias +
         describeActivation(epilogue.activation());
}

static double multiply(std::span<const int64_t> sizes) {
  double product = 1;
  for (int64_t size : sizes)
    product *= double(size);
  return product;
}

double gridloom::rt::getFlops(const schema::Library &call) {
  if (call.has_convolution())
    return 2 * multiply(toSpan(call.convolution().output())) *
           multiply(toSpan(call.convolution().weight()).subspan(1));
  std::span<const int64_t> sizes =
      toSpan(call.has_attention() ? call.attention().sizes() : call.matmul().sizes());
  if (call.has_attention())
    return 2 * multiply(sizes.first(4)) * double(sizes[4] + sizes[5]);
  return 2 * multiply(sizes);
}

/// Distinct elements: the product of the sizes whose stride is not 0.
static double countDistinct(std::initializer_list<int64_t> sizes, std::span<const int64_t> outer,
                            const Numbers &strides) {
  double count = 1;
  size_t i = 0;
  auto add = [&](int64_t size) { count *= strides.Get(int(i++)) ? double(size) : 1; };
  for (int64_t size : outer)
    add(size);
  for (int64_t size : sizes)
    add(size);
  return count;
}

uint64_t gridloom::rt::getBytes(const schema::Library &call) {
  if (call.has_convolution()) {
    const schema::Convolution &convolution = call.convolution();
    double output = multiply(toSpan(convolution.output()));
    double elements = multiply(toSpan(convolution.input())) +
                      multiply(toSpan(convolution.weight())) + output +
                      (convolution.epilogue().bias() ? double(convolution.output(1)) : 0) +
                      (convolution.epilogue().residual() ? output : 0);
    return uint64_t(elements) * sizeOf(DataType(convolution.type()));
  }
  if (call.has_attention()) {
    const schema::Attention &attention = call.attention();
    std::span<const int64_t> sizes = toSpan(attention.sizes()), outer = sizes.first(2);
    double elements = countDistinct({sizes[2], sizes[4]}, outer, attention.query()) +
                      countDistinct({sizes[3], sizes[4]}, outer, attention.key()) +
                      countDistinct({sizes[3], sizes[5]}, outer, attention.value()) +
                      countDistinct({sizes[2], sizes[5]}, outer, attention.out());
    if (attention.mask_size())
      elements += countDistinct({sizes[2], sizes[3]}, outer, attention.mask());
    return uint64_t(elements) * sizeOf(DataType(attention.type()));
  }
  const schema::Matmul &matmul = call.matmul();
  std::span<const int64_t> sizes = toSpan(matmul.sizes()), batch = sizes.first(sizes.size() - 3);
  int64_t m = sizes[batch.size()], n = sizes[batch.size() + 1], k = sizes[batch.size() + 2];
  double operands = countDistinct({m, k}, batch, matmul.lhs()) +
                    countDistinct({k, n}, batch, matmul.rhs()),
         results =
             countDistinct({m, n}, batch, matmul.out()) * (matmul.epilogue().residual() ? 2 : 1) +
             (matmul.epilogue().bias() ? double(n) : 0);
  auto result = DataType(matmul.out_type() ? matmul.out_type() : matmul.type());
  return uint64_t(operands) * sizeOf(DataType(matmul.type())) + uint64_t(results) * sizeOf(result);
}
