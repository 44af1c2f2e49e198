//===- CuDnnAttention.cpp - attention through cuDNN -----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// cuDNN takes attention as a graph of its parts: two products with a softmax between them, which is
// made of reductions and pointwise operations. The scores stay on chip, in f32.
//
//===----------------------------------------------------------------------===//

#include "runtime/core/Error.h"
#include "runtime/device/cuda/CuDnnGraph.h"

#include <limits>

namespace gridloom::rt {

using namespace cudnn;
using Dims = CuDnnGraph::Dims;
using Tensor = CuDnnGraph::Tensor;

static std::string describe(const AttentionProblem &problem) {
  std::string text = "attention of " + std::string(nameOf(problem.type));
  const char *names[] = {" batch ", ", heads ", ", queries ", ", keys ", ", depth ", ", values "};
  for (size_t i = 0; i < problem.sizes.size() && i < 6; ++i)
    text += names[i] + std::to_string(problem.sizes[i]);
  return text + (problem.mask.empty() ? "" : ", masked") + (problem.causal ? ", causal" : "");
}

namespace {

struct Attention {
  Attention(const AttentionProblem &problem, const std::string &description)
      : type(toCuDnnType(problem.type, description)),
        sizes(problem.sizes.begin(), problem.sizes.end()),
        query(problem.query.begin(), problem.query.end()),
        key(problem.key.begin(), problem.key.end()),
        value(problem.value.begin(), problem.value.end()),
        out(problem.out.begin(), problem.out.end()), mask(problem.mask.begin(), problem.mask.end()),
        scale(static_cast<float>(problem.scale)), causal(problem.causal) {
    if (!mask.empty())
      maskType = toCuDnnType(problem.maskType, description);
  }

  Dims with(int64_t rows, int64_t columns) const { return {sizes[0], sizes[1], rows, columns}; }

  void build(CuDnnGraph &graph) const {
    int64_t queries = sizes[2], keys = sizes[3], depth = sizes[4], depthOut = sizes[5];
    Tensor q = graph.addOperand(type, with(queries, depth), query);
    // The first product's right-hand side is the key transposed.
    Tensor k = graph.addOperand(type, with(depth, keys), {key[0], key[1], key[3], key[2]});
    Tensor v = graph.addOperand(type, with(keys, depthOut), value);
    Tensor bias = mask.empty() ? CuDnnGraph::none : addMask(graph);
    Tensor o = graph.addOperand(type, with(queries, depthOut), out);

    Dims shape = with(queries, keys);
    auto apply = [&](Constant mode, Tensor x, Tensor b, Constant result = DATA_FLOAT) {
      Tensor made = graph.addVirtual(result, shape);
      graph.apply(mode, x, b, made);
      return made;
    };
    Tensor scores = graph.addVirtual(DATA_FLOAT, shape);
    graph.multiply(q, k, scores);
    scores = apply(POINTWISE_MUL, scores, graph.addNumber(scale, 4));
    if (bias != CuDnnGraph::none)
      scores = apply(POINTWISE_ADD, scores, bias);
    if (causal)
      scores = hideLaterKeys(graph, scores);

    auto reduce = [&](Constant operation, Tensor x) {
      Tensor made = graph.addVirtual(DATA_FLOAT, with(queries, 1));
      graph.reduce(operation, x, made);
      return made;
    };
    Tensor peak = reduce(REDUCE_TENSOR_MAX, scores);
    Tensor powers = apply(POINTWISE_EXP, apply(POINTWISE_SUB, scores, peak), CuDnnGraph::none);
    Tensor sum = reduce(REDUCE_TENSOR_ADD, powers);
    // The output for a backward pass, by which engines recognise the graph; it is not written.
    Tensor logarithm = graph.addVirtual(DATA_FLOAT, with(queries, 1));
    graph.apply(POINTWISE_LOG, sum, CuDnnGraph::none, logarithm);
    graph.apply(POINTWISE_ADD, peak, logarithm, graph.addVirtual(DATA_FLOAT, with(queries, 1)));
    // The second product's operands have type `type`, not f32.
    Tensor probabilities = apply(POINTWISE_DIV, powers, sum, type);
    graph.multiply(probabilities, v, o);
  }

  /// Adds the mask with size 1 in broadcast dimensions (stride 0), as cuDNN broadcasts.
  Tensor addMask(CuDnnGraph &graph) const {
    Dims shape = with(sizes[2], sizes[3]), strides = mask;
    int64_t dense = 1;
    for (size_t i = 4; i-- > 0;) {
      if (strides[i] == 0)
        shape[i] = 1;
      strides[i] = strides[i] ? strides[i] : dense;
      dense = std::max(dense, strides[i] * shape[i]);
    }
    return graph.addOperand(maskType, shape, strides);
  }

  Tensor hideLaterKeys(CuDnnGraph &graph, Tensor scores) const {
    Dims shape = with(sizes[2], sizes[3]);
    Tensor row = graph.addVirtual(DATA_FLOAT, shape), column = graph.addVirtual(DATA_FLOAT, shape);
    graph.generateIndex(2, scores, row);
    graph.generateIndex(3, scores, column);
    Tensor seen = graph.addVirtual(DATA_BOOLEAN, shape), made = graph.addVirtual(DATA_FLOAT, shape);
    graph.apply(POINTWISE_CMP_GE, row, column, seen);
    Tensor hidden = graph.addNumber(-std::numeric_limits<float>::infinity(), 4);
    graph.apply(POINTWISE_BINARY_SELECT, scores, hidden, made, seen);
    return made;
  }

  Constant type, maskType = DATA_FLOAT;
  Dims sizes, query, key, value, out, mask;
  float scale;
  bool causal;
};

} // namespace

std::unique_ptr<CuDnnCall> createCuDnnAttention(std::shared_ptr<const CuDnn> library,
                                                const AttentionProblem &problem,
                                                std::shared_ptr<AutotuneCache> tuning) {
  std::string description = describe(problem);
  if (problem.type == DataType::F32)
    throw Error(ErrorCode::InvalidPlan, description + ": cuDNN's attention is of f16 and bf16");
  std::string key = description;
  for (std::span<const int64_t> strides :
       {problem.query, problem.key, problem.value, problem.out, problem.mask}) {
    key += " by";
    for (int64_t stride : strides)
      key += " " + std::to_string(stride);
  }
  auto attention = std::make_shared<const Attention>(problem, description);
  auto build = [attention](CuDnnGraph &graph) { attention->build(graph); };
  return std::make_unique<CuDnnCall>(std::move(library),
                                     CuDnnProblem{std::move(description),
                                                  std::move(key),
                                                  build,
                                                  sizeOf(problem.type),
                                                  problem.workspaceLimit,
                                                  {NUMERICAL_NOTE_NONDETERMINISTIC}},
                                     std::move(tuning));
}

} // namespace gridloom::rt
