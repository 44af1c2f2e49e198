//===- SmallPrograms.h - random programs of a few operations -----*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_TEST_UNIT_SMALLPROGRAMS_H
#define GRIDLOOM_TEST_UNIT_SMALLPROGRAMS_H

#include "cluster/Presets.h"
#include "dialects/dist/MachineAttr.h"
#include "dialects/loom/Loom.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"

#include <random>
#include <string>

namespace gridloom::testing {

/// Writes a function of products, elementwise operations, reductions and moves of matrices, with
/// sizes that numbers of devices divide and sizes that they do not. Weights are read once.
class SmallProgram {
public:
  SmallProgram(uint64_t seed, int operations) : random(seed) {
    values.push_back(addInput({pickSize(), pickSize()}));
    for (int i = 0; i < operations; ++i)
      addOperation();
    write();
  }
  const std::string &getText() const { return text; }

private:
  struct Value {
    std::string name;
    std::vector<int64_t> shape;
    bool isRead = false;
  };

  int64_t pick(int64_t count) { return static_cast<int64_t>(random() % count); }
  int64_t pickSize() {
    static constexpr int64_t sizes[] = {2, 3, 5, 6, 8, 12, 64, 96, 250, 512, 1024, 4096};
    return sizes[pick(std::size(sizes))];
  }
  static std::string typeOf(const std::vector<int64_t> &shape) {
    std::string type = "tensor<";
    for (int64_t size : shape)
      type += std::to_string(size) + "x";
    return type + "f32>";
  }
  static std::string list(const std::vector<int64_t> &numbers) {
    std::string all;
    for (int64_t number : numbers)
      all += (all.empty() ? "" : ", ") + std::to_string(number);
    return "[" + all + "]";
  }
  std::string makeName() { return "%v" + std::to_string(next++); }

  Value addInput(const std::vector<int64_t> &shape) {
    Value input{makeName(), shape};
    arguments += (arguments.empty() ? "" : ", ") + input.name + ": " + typeOf(shape) +
                 " {loom.name = \"" + input.name.substr(1) + "\"}";
    return input;
  }
  Value addWeight(const std::vector<int64_t> &shape) {
    Value weight{makeName(), shape};
    std::string symbol = "@w" + weight.name.substr(2);
    int64_t bytes = 4;
    for (int64_t size : shape)
      bytes *= size;
    weights += "loom.weight " + symbol + " : " + typeOf(shape) +
               " from <\"\", offset = 0, bytes = " + std::to_string(bytes) + ">\n";
    body += "  " + weight.name + " = loom.get_weight " + symbol + " : " + typeOf(shape) + "\n";
    return weight;
  }
  /// An input or a weight.
  Value addParameter(const std::vector<int64_t> &shape) {
    return pick(3) ? addWeight(shape) : addInput(shape);
  }
  Value &read(size_t index) {
    values[index].isRead = true;
    return values[index];
  }
  void emit(const std::string &operation, const std::vector<int64_t> &shape) {
    values.push_back({makeName(), shape});
    body += "  " + values.back().name + " = loom." + operation + "\n";
  }

  void addOperation() {
    // Later values are likelier: deep programs rather than wide ones.
    size_t index = pick(3) ? values.size() - 1 : pick(static_cast<int64_t>(values.size()));
    std::vector<int64_t> shape = read(index).shape;
    std::string name = values[index].name, type = typeOf(shape);
    bool isMatrix = shape.size() == 2;
    switch (pick(isMatrix ? 8 : 4)) {
    case 0:
      return emit("gelu erf " + name + " : " + type, shape);
    case 1: { // with another value of the shape
      for (size_t i = values.size(); i-- > 0;)
        if (i != index && values[i].shape == shape)
          return emit("add " + name + ", " + read(i).name + " : " + type, shape);
      return emit("negate " + name + " : " + type, shape);
    }
    case 2:
      if (shape.size() > 1)
        return emit("softmax " + name + " dim = " + std::to_string(shape.size() - 1) + " : " + type,
                    shape);
      return emit("negate " + name + " : " + type, shape);
    case 3: {
      if (shape.size() == 3) { // joins heads
        std::vector<int64_t> joined{shape[0], shape[1] * shape[2]};
        return emit("reshape " + name + " : (" + type + ") -> " + typeOf(joined), joined);
      }
      if (isMatrix && shape[1] % 2 == 0) {
        std::vector<int64_t> heads{shape[0], 2, shape[1] / 2};
        return emit("reshape " + name + " : (" + type + ") -> " + typeOf(heads), heads);
      }
      return emit("negate " + name + " : " + type, shape);
    }
    case 4: {
      std::vector<int64_t> turned{shape[1], shape[0]};
      return emit("transpose " + name + " [1, 0] : (" + type + ") -> " + typeOf(turned), turned);
    }
    case 5: {
      int64_t dim = pick(2);
      std::vector<int64_t> reduced{shape[1 - dim]};
      return emit("reduce " + std::string(pick(3) ? "sum " : "max ") + name +
                      " dims = " + list({dim}) + " : (" + type + ") -> " + typeOf(reduced),
                  reduced);
    }
    default: {
      Value other = addParameter({shape[1], pickSize()});
      std::vector<int64_t> product{shape[0], other.shape[1]};
      return emit("dot_general " + name + ", " + other.name +
                      " batch = [] x [] contract = [1] x [0] : (" + type + ", " +
                      typeOf(other.shape) + ") -> " + typeOf(product),
                  product);
    }
    }
  }

  void write() {
    std::string results, types;
    for (const Value &value : values) {
      if (value.isRead)
        continue;
      results += (results.empty() ? "" : ", ") + value.name;
      types += (types.empty() ? "" : ", ") + typeOf(value.shape);
    }
    std::string named;
    for (const Value &value : values)
      if (!value.isRead)
        named += (named.empty() ? "" : ", ") + typeOf(value.shape) + " {loom.name = \"r" +
                 value.name.substr(2) + "\"}";
    text = weights + "func.func @main(" + arguments + ") -> (" + named + ") {\n" + body +
           "  return " + results + " : " + types + "\n}\n";
  }

  std::mt19937_64 random;
  int64_t next = 0;
  std::vector<Value> values;
  std::string arguments, weights, body, text;
};

/// The mesh operation "x=2,y=3" that begins a program.
inline std::string writeMesh(const std::vector<int64_t> &sizes) {
  std::string axes;
  for (size_t i = 0; i < sizes.size(); ++i)
    axes += (i ? ", \"" : "\"") + std::string(1, "xyzw"[i]) + "\" = " + std::to_string(sizes[i]);
  return "dist.mesh @mesh <[" + axes + "]>\n";
}

/// A machine of the first `devices` devices of hosts of the preset.
inline cluster::Machine makeTestMachine(const char *preset, int64_t devices) {
  return cluster::makeMachine(cluster::makeHosts(*cluster::findPreset(preset), devices), devices);
}

/// A product of a few rows and columns over a long sum, with a residual: splitting the sum is the
/// fastest, and its all_reduce takes the residual out of the product's call.
inline constexpr const char *kLongSum = R"(
loom.weight @w : tensor<4194304x64xf32> from <"", offset = 0, bytes = 1073741824>
func.func @main(%x: tensor<64x4194304xf32> {loom.name = "x"},
                %r: tensor<64x64xf32> {loom.name = "r"}) -> tensor<64x64xf32> {
  %w = loom.get_weight @w : tensor<4194304x64xf32>
  %0 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0]
       : (tensor<64x4194304xf32>, tensor<4194304x64xf32>) -> tensor<64x64xf32>
  %1 = loom.add %0, %r : tensor<64x64xf32>
  return %1 : tensor<64x64xf32>
}
)";

} // namespace gridloom::testing

#endif // GRIDLOOM_TEST_UNIT_SMALLPROGRAMS_H
