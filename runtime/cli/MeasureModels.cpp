//===- MeasureModels.cpp - models for timing a machine --------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Each node has its own inputs, so that none is fused with another. What a step computes and moves
// is taken from the plan, not from the model: a node may become several steps.
//
//===----------------------------------------------------------------------===//
#include "runtime/cli/MeasureModels.h"

#include "runtime/cli/model.pb.h"

using namespace gridloom;
using namespace gridloom::rt;

namespace {

/// ONNX's numbers of element types.
enum ElementType : int32_t { Float = 1, Double = 11 };

/// Stands for dimension "n" in a shape.
constexpr int64_t kN = -1;
using Shape = std::vector<int64_t>;

class ModelBuilder {
public:
  explicit ModelBuilder(ElementType type) : type(type) {
    model.set_ir_version(9);
    model.set_producer_name("gridloom");
    model.mutable_graph()->set_name("measure");
    model.add_opset_import()->set_version(20);
  }
  /// Adds a node with inputs of these shapes; its output, of shape `out`, becomes a model output.
  onnx::Node &add(const std::string &op, const std::vector<Shape> &inputs, const Shape &out);
  std::string write() const { return model.SerializeAsString(); }

private:
  void describe(onnx::Value &value, const std::string &name, const Shape &shape) const;

  ElementType type;
  onnx::Model model;
};

} // namespace

void ModelBuilder::describe(onnx::Value &value, const std::string &name, const Shape &shape) const {
  value.set_name(name);
  onnx::TensorType &tensor = *value.mutable_type()->mutable_tensor_type();
  tensor.set_elem_type(type);
  for (int64_t size : shape) {
    onnx::Dimension &dim = *tensor.mutable_shape()->add_dim();
    if (size == kN)
      dim.set_dim_param("n");
    else
      dim.set_dim_value(size);
  }
}

onnx::Node &ModelBuilder::add(const std::string &op, const std::vector<Shape> &inputs,
                              const Shape &out) {
  onnx::Graph &graph = *model.mutable_graph();
  std::string name = op + std::to_string(graph.node_size());
  onnx::Node &node = *graph.add_node();
  node.set_name(name);
  node.set_op_type(op);
  for (const Shape &shape : inputs) {
    std::string input = name + ".in" + std::to_string(node.input_size());
    describe(*graph.add_input(), input, shape);
    node.add_input(input);
  }
  node.add_output(name + ".out");
  describe(*graph.add_output(), name + ".out", out);
  return node;
}

/// Products [n, k] x [k, m] as in projections, and batched ones as in attention.
static std::string makeProducts(ElementType type, int64_t largest) {
  ModelBuilder builder(type);
  for (int64_t k = 64; k <= largest; k *= 4)
    builder.add("MatMul", {{kN, k}, {k, k}}, {kN, k});
  builder.add("MatMul", {{kN, largest / 2}, {largest / 2, largest * 2}}, {kN, largest * 2});
  builder.add("MatMul", {{8, kN, 32}, {8, 32, 128}}, {8, kN, 128});
  return builder.write();
}

static std::string makeConvolutions(ElementType type) {
  ModelBuilder builder(type);
  for (int64_t channels : {16, 64}) {
    auto add = [&](int64_t window, int64_t border) {
      onnx::Node &node =
          builder.add("Conv", {{1, channels, kN, kN}, {channels, channels, window, window}},
                      {1, channels, kN, kN});
      onnx::Attribute &pads = *node.add_attribute();
      pads.set_name("pads");
      pads.set_type(onnx::Attribute::INTS);
      for (int side = 0; side < 4; ++side)
        pads.add_ints(border);
    };
    add(1, 0);
    add(3, 1);
  }
  return builder.write();
}

/// Kernels with one pass over rows, as fusion creates them.
static std::string makeRows(ElementType type) {
  ModelBuilder builder(type);
  for (int64_t width : {64, 256, 1024}) {
    Shape rows = {kN, width};
    builder.add("Add", {rows, rows}, rows);
    builder.add("Softmax", {rows}, rows);
    builder.add("Gelu", {rows}, rows);
    builder.add("LayerNormalization", {rows, {width}, {width}}, rows);
  }
  return builder.write();
}

/// Little arithmetic on much memory.
static std::string makeTraffic(ElementType type) {
  ModelBuilder builder(type);
  builder.add("Add", {{kN}, {kN}}, {kN});
  builder.add("Relu", {{kN}}, {kN});
  return builder.write();
}

/// A geometric sequence from `from` up to `to`.
static std::vector<int64_t> makeSizes(int64_t from, int64_t to, int64_t factor) {
  std::vector<int64_t> sizes;
  for (int64_t size = from; size <= to; size *= factor)
    sizes.push_back(size);
  return sizes;
}

std::vector<MeasuredModel> gridloom::rt::makeMeasuredModels(bool quick) {
  int64_t step = quick ? 16 : 4;
  std::vector<MeasuredModel> models = {
      {"products", "matrix multiplications, f32", makeProducts(Float, 1024),
       makeSizes(1, 1024, quick ? 32 : 4), "f32"},
      {"traffic", "memory", makeTraffic(Float), makeSizes(1 << 8, 1 << 22, step), "f32"},
      {"rows", "kernels, f32", makeRows(Float), makeSizes(quick ? 16 : 4, 1024, step), "f32"},
      {"convolutions", "convolutions, f32", makeConvolutions(Float),
       makeSizes(8, 128, quick ? 16 : 2), "f32"}};
  if (quick)
    return models;
  for (const char *precision : {"bf16", "f16"})
    models.push_back({std::string("products-") + precision,
                      std::string("matrix multiplications, ") + precision,
                      makeProducts(Float, 1024), makeSizes(16, 256, 4), precision});
  models.push_back({"products-f64", "matrix multiplications, f64", makeProducts(Double, 256),
                    makeSizes(16, 256, 4), "f32"});
  return models;
}
