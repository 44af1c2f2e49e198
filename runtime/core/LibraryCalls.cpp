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
  problem.bias = convolution.bias();
  problem.residual = convolution.residual();
  problem.relu = convolution.relu();
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

bool gridloom::rt::hasBias(const schema::Matmul &matmul) {
  return matmul.epilogue() == schema::Matmul::BIAS ||
         matmul.epilogue() == schema::Matmul::BIAS_RELU ||
         matmul.epilogue() == schema::Matmul::BIAS_GELU;
}

static std::string describeEpilogue(schema::Matmul::Epilogue epilogue) {
  static constexpr const char *texts[] = {"",        " + bias",       " + relu", " + bias + relu",
                                          " + gelu", " + bias + gelu"};
  return texts[epilogue];
}

std::string gridloom::rt::describe(const schema::Library &call) {
  if (call.has_convolution()) {
    const schema::Convolution &convolution = call.convolution();
    return "convolution " + format(convolution.input()) + " with " + format(convolution.weight()) +
           (convolution.bias() ? " + bias" : "") + (convolution.residual() ? " + residual" : "") +
           (convolution.relu() ? " + relu" : "");
  }
  if (call.has_attention())
    return "attention " + format(call.attention().sizes()) +
           (call.attention().mask_size() ? " masked" : "") +
           (call.attention().causal() ? " causal" : "");
  return "matmul " + format(call.matmul().sizes()) +
         (call.matmul().residual() ? " + residual" : "") +
         describeEpilogue(call.matmul().epilogue());
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

/// Elements of sizes that a stride tells apart.
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
                      (convolution.bias() ? double(convolution.output(1)) : 0) +
                      (convolution.residual() ? output : 0);
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
         results = countDistinct({m, n}, batch, matmul.out()) * (matmul.residual() ? 2 : 1) +
                   (hasBias(matmul) ? double(n) : 0);
  auto result = DataType(matmul.out_type() ? matmul.out_type() : matmul.type());
  return uint64_t(operands) * sizeOf(DataType(matmul.type())) + uint64_t(results) * sizeOf(result);
}
