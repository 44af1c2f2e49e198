//===- Specimens.h - programs to plant faults in --------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_TEST_MUTATION_SPECIMENS_H
#define GRIDLOOM_TEST_MUTATION_SPECIMENS_H

#include <string>
#include <vector>

namespace gridloom::testing {

/// A small program and its splits. Together the specimens have every kind of communication, sizes
/// that do not divide, and pipelines.
struct Specimen {
  const char *name;
  /// Types of the arguments %a, %b, ...; `index` for indices below 7.
  std::vector<const char *> arguments;
  std::vector<const char *> weights; ///< types of @w0, @w1, ...
  const char *body;                  ///< defines %r
  const char *result;
  const char *mesh;
  std::vector<const char *> shard, dp;
  int microbatches = 1;
};

// NOLINTNEXTLINE(bugprone-throwing-static-initialization): without its table there is no test.
inline const Specimen kSpecimens[] = {
    {"perceptron",
     {"tensor<6x10xf32>"},
     {"tensor<10x5xf32>", "tensor<5x4xf32>"},
     R"(%0 = loom.get_weight @w0 : tensor<10x5xf32> loc("w0")
        %1 = loom.dot_general %a, %0 batch = [] x [] contract = [1] x [0] : (tensor<6x10xf32>, tensor<10x5xf32>) -> tensor<6x5xf32> loc("up")
        %2 = loom.gelu erf %1 : tensor<6x5xf32> loc("gelu")
        %3 = loom.get_weight @w1 : tensor<5x4xf32> loc("w1")
        %r = loom.dot_general %2, %3 batch = [] x [] contract = [1] x [0] : (tensor<6x5xf32>, tensor<5x4xf32>) -> tensor<6x4xf32> loc("down"))",
     "tensor<6x4xf32>",
     "x=2,y=2",
     {"a=[{y},{}]", "w0=[{},{x}]", "w1=[{x},{}]", "out=[{y},{}]"},
     {}},
    {"reductions",
     {"tensor<5x7xf32>"},
     {},
     R"(%0 = loom.reduce sum %a dims = [1] : (tensor<5x7xf32>) -> tensor<5xf32> loc("sum")
        %1 = loom.reduce max %a dims = [1] : (tensor<5x7xf32>) -> tensor<5xf32> loc("max")
        %2 = loom.exp %a : tensor<5x7xf32> loc("exp")
        %3 = loom.reduce min %2 dims = [1] : (tensor<5x7xf32>) -> tensor<5xf32> loc("min")
        %4 = loom.multiply %0, %1 : tensor<5xf32> loc("multiply")
        %5 = loom.add %4, %3 : tensor<5xf32> loc("add")
        %6 = loom.reduce sum %5 dims = [0] : (tensor<5xf32>) -> tensor<f32> loc("total")
        %7 = loom.broadcast %6 dims = [] : (tensor<f32>) -> tensor<5xf32> loc("spread")
        %r = loom.subtract %5, %7 : tensor<5xf32> loc("subtract"))",
     "tensor<5xf32>",
     "x=2,y=3",
     {"a=[{x},{y}]"},
     {}},
    {"softmax",
     {"tensor<4x7xf32>", "tensor<7x3xf32>"},
     {},
     R"(%0 = loom.softmax %a dim = 1 : tensor<4x7xf32> loc("softmax")
        %r = loom.dot_general %0, %b batch = [] x [] contract = [1] x [0] : (tensor<4x7xf32>, tensor<7x3xf32>) -> tensor<4x3xf32> loc("dot"))",
     "tensor<4x3xf32>",
     "x=3",
     {"a=[{},{x}]", "b=[{x},{}]"},
     {}},
    {"layer_norm",
     {"tensor<4x10xf32>"},
     {"tensor<10xf32>", "tensor<10xf32>"},
     R"(%0 = loom.get_weight @w0 : tensor<10xf32> loc("w0")
        %1 = loom.get_weight @w1 : tensor<10xf32> loc("w1")
        %r = loom.layer_norm %a, %0, %1 epsilon = 0.5 : (tensor<4x10xf32>, tensor<10xf32>, tensor<10xf32>) -> tensor<4x10xf32> loc("norm"))",
     "tensor<4x10xf32>",
     "x=4",
     {"a=[{},{x}]", "w0=[{x}]", "out=[{},{x}]"},
     {}},
    {"attention",
     {"tensor<6x8xf32>"},
     {"tensor<8x12xf32>", "tensor<8x12xf32>", "tensor<8x12xf32>", "tensor<12x8xf32>"},
     R"(%0 = loom.get_weight @w0 : tensor<8x12xf32> loc("wq")
        %1 = loom.get_weight @w1 : tensor<8x12xf32> loc("wk")
        %2 = loom.get_weight @w2 : tensor<8x12xf32> loc("wv")
        %3 = loom.get_weight @w3 : tensor<12x8xf32> loc("wo")
        %q = loom.dot_general %a, %0 batch = [] x [] contract = [1] x [0] : (tensor<6x8xf32>, tensor<8x12xf32>) -> tensor<6x12xf32> loc("q")
        %k = loom.dot_general %a, %1 batch = [] x [] contract = [1] x [0] : (tensor<6x8xf32>, tensor<8x12xf32>) -> tensor<6x12xf32> loc("k")
        %v = loom.dot_general %a, %2 batch = [] x [] contract = [1] x [0] : (tensor<6x8xf32>, tensor<8x12xf32>) -> tensor<6x12xf32> loc("v")
        %qh = loom.reshape %q : (tensor<6x12xf32>) -> tensor<6x3x4xf32> loc("qh")
        %kh = loom.reshape %k : (tensor<6x12xf32>) -> tensor<6x3x4xf32> loc("kh")
        %vh = loom.reshape %v : (tensor<6x12xf32>) -> tensor<6x3x4xf32> loc("vh")
        %s = loom.dot_general %qh, %kh batch = [1] x [1] contract = [2] x [2] : (tensor<6x3x4xf32>, tensor<6x3x4xf32>) -> tensor<3x6x6xf32> loc("scores")
        %p = loom.softmax %s dim = 2 : tensor<3x6x6xf32> loc("softmax")
        %c = loom.dot_general %p, %vh batch = [0] x [1] contract = [2] x [0] : (tensor<3x6x6xf32>, tensor<6x3x4xf32>) -> tensor<3x6x4xf32> loc("context")
        %t = loom.transpose %c [1, 0, 2] : (tensor<3x6x4xf32>) -> tensor<6x3x4xf32> loc("transpose")
        %m = loom.reshape %t : (tensor<6x3x4xf32>) -> tensor<6x12xf32> loc("merge")
        %r = loom.dot_general %m, %3 batch = [] x [] contract = [1] x [0] : (tensor<6x12xf32>, tensor<12x8xf32>) -> tensor<6x8xf32> loc("o"))",
     "tensor<6x8xf32>",
     "x=2",
     {"w0=[{},{x}]", "w1=[{},{x}]", "w2=[{},{x}]", "w3=[{x},{}]"},
     {}},
    {"pieces",
     {"tensor<10x6xf32>", "tensor<5x6xf32>"},
     {},
     R"(%0 = loom.slice %a [1, 0] to [8, 6] by [1, 1] : (tensor<10x6xf32>) -> tensor<7x6xf32> loc("slice")
        %1 = loom.concatenate %0, %b dim = 0 : (tensor<7x6xf32>, tensor<5x6xf32>) -> tensor<12x6xf32> loc("join")
        %r = loom.exp %1 : tensor<12x6xf32> loc("exp"))",
     "tensor<12x6xf32>",
     "x=2,y=2",
     {"a=[{x},{y}]", "b=[{x},{}]", "join=[{x},{}]", "slice=[{x},{}]", "out=[{x,y},{}]"},
     {}},
    {"exchange",
     {"tensor<6x8xf32>"},
     {},
     R"(%0 = loom.exp %a : tensor<6x8xf32> loc("rows")
        %1 = loom.tanh %0 : tensor<6x8xf32> loc("columns")
        %2 = loom.transpose %1 [1, 0] : (tensor<6x8xf32>) -> tensor<8x6xf32> loc("transpose")
        %r = loom.negate %2 : tensor<8x6xf32> loc("whole"))",
     "tensor<8x6xf32>",
     "x=2,y=2",
     {"a=[{x,y},{}]", "rows=[{x,y},{}]", "columns=[{},{y,x}]", "out=[{},{}]"},
     {}},
    {"scattered",
     {"tensor<6x8xf32>", "tensor<8x6xf32>"},
     {},
     R"(%0 = loom.dot_general %a, %b batch = [] x [] contract = [1] x [0] : (tensor<6x8xf32>, tensor<8x6xf32>) -> tensor<6x6xf32> loc("dot")
        %r = loom.tanh %0 : tensor<6x6xf32> loc("tanh"))",
     "tensor<6x6xf32>",
     "x=3,y=2",
     {"a=[{},{x,y}]", "b=[{x,y},{}]", "tanh=[{x},{}]", "out=[{x},{}]"},
     {}},
    {"embedding",
     {"index tensor<4x5xi64>"},
     {"tensor<7x6xf32>"},
     R"(%0 = loom.get_weight @w0 : tensor<7x6xf32> loc("table")
        %1 = loom.gather %0, %a dim = 0 : (tensor<7x6xf32>, tensor<4x5xi64>) -> tensor<4x5x6xf32> loc("rows")
        %r = loom.exp %1 : tensor<4x5x6xf32> loc("exp"))",
     "tensor<4x5x6xf32>",
     "x=2,y=2",
     {"a=[{y},{}]", "w0=[{x},{}]"},
     {}},
    {"positions",
     {"tensor<7x6xf32>"},
     {},
     R"(%0 = loom.iota dim = 0 : tensor<7x6xf32> loc("iota")
        %1 = loom.constant dense<[1.0, 2.0, 4.0, 8.0, 16.0, 32.0]> : tensor<6xf32> loc("scale")
        %2 = loom.broadcast %1 dims = [1] : (tensor<6xf32>) -> tensor<7x6xf32> loc("spread")
        %3 = loom.multiply %0, %2 : tensor<7x6xf32> loc("multiply")
        %r = loom.add %a, %3 : tensor<7x6xf32> loc("add"))",
     "tensor<7x6xf32>",
     "x=2,y=3",
     {"a=[{x},{y}]", "out=[{x},{y}]"},
     {}},
    {"pipeline",
     {"tensor<8x6xf32>"},
     {"tensor<6x10xf32>", "tensor<10x6xf32>", "tensor<6x6xf32>"},
     R"(%0 = loom.get_weight @w0 : tensor<6x10xf32> loc("w0")
        %1 = loom.dot_general %a, %0 batch = [] x [] contract = [1] x [0] : (tensor<8x6xf32>, tensor<6x10xf32>) -> tensor<8x10xf32> loc("up")
        %2 = loom.gelu tanh %1 : tensor<8x10xf32> loc("gelu")
        %3 = loom.get_weight @w1 : tensor<10x6xf32> loc("w1")
        %4 = loom.dot_general %2, %3 batch = [] x [] contract = [1] x [0] : (tensor<8x10xf32>, tensor<10x6xf32>) -> tensor<8x6xf32> loc("down")
        %5 = loom.add %4, %a : tensor<8x6xf32> loc("residual")
        %6 = loom.tanh %5 : tensor<8x6xf32> loc("tanh")
        %7 = loom.get_weight @w2 : tensor<6x6xf32> loc("w2")
        %8 = loom.dot_general %6, %7 batch = [] x [] contract = [1] x [0] : (tensor<8x6xf32>, tensor<6x6xf32>) -> tensor<8x6xf32> loc("last")
        %r = loom.multiply %8, %5 : tensor<8x6xf32> loc("multiply"))",
     "tensor<8x6xf32>",
     "x=2,pipe=3",
     {"w0=[{},{x}]", "w1=[{x},{}]"},
     {},
     4},
    {"convolution",
     {"tensor<1x2x9x5xf32>"},
     {"tensor<3x2x3x3xf32>"},
     R"(%0 = loom.get_weight @w0 : tensor<3x2x3x3xf32> loc("w0")
        %r = loom.convolution %a, %0 strides = [1, 1] low = [1, 1] high = [1, 1] input_dilations = [1, 1] dilations = [1, 1] groups = 1
        : (tensor<1x2x9x5xf32>, tensor<3x2x3x3xf32>) -> tensor<1x3x9x5xf32> loc("conv"))",
     "tensor<1x3x9x5xf32>",
     "x=3",
     {"a=[{},{},{x},{}]", "out=[{},{},{x},{}]"},
     {}},
};

} // namespace gridloom::testing

#endif // GRIDLOOM_TEST_MUTATION_SPECIMENS_H
