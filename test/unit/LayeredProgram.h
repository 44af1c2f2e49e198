//===- LayeredProgram.h - a program of equal layers --------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_TEST_UNIT_LAYEREDPROGRAM_H
#define GRIDLOOM_TEST_UNIT_LAYEREDPROGRAM_H

#include <cstdint>
#include <string>

namespace gridloom {

inline constexpr int64_t kLayers = 14;

struct Shape {
  bool isLastWider = false; ///< the last layer has other sizes
  bool returnsSome = false; ///< two layers also return their results
  bool readsFirst = false;  ///< the end of the program also reads a middle layer's result
};

inline std::string number(const char *name, int64_t i) { return name + std::to_string(i); }

/// Layers of two products, each with a cache and a residual, between two other products.
inline std::string makeProgram(const Shape &shape) {
  std::string weights, body;
  auto weight = [&](const std::string &name, int64_t rows, int64_t columns) {
    std::string type = "tensor<" + std::to_string(rows) + "x" + std::to_string(columns) + "xf32>";
    weights += "loom.weight @" + name + " : " + type +
               " from <\"\", offset = 0, bytes = " + std::to_string(rows * columns * 4) + ">\n";
    body += "  %" + name + " = loom.get_weight @" + name + " : " + type + "\n";
  };
  auto product = [&](const std::string &result, const std::string &left, const std::string &right,
                     int64_t inner, int64_t columns) {
    body += "  %" + result + " = loom.dot_general %" + left + ", %" + right +
            " batch = [] x [] contract = [1] x [0] : (tensor<32x" + std::to_string(inner) +
            "xf32>, tensor<" + std::to_string(inner) + "x" + std::to_string(columns) +
            "xf32>) -> tensor<32x" + std::to_string(columns) + "xf32> loc(\"" + result + "\")\n";
  };
  std::string arguments, results, types;
  weight("first", 64, 64);
  product("r0", "x", "first", 64, 64);
  for (int64_t i = 0; i < kLayers; ++i) {
    int64_t wide = shape.isLastWider && i + 1 == kLayers ? 512 : 256;
    weight(number("up", i), 64, wide);
    weight(number("down", i), wide, 64);
    product(number("h", i), number("r", i), number("up", i), 64, wide);
    product(number("d", i), number("h", i), number("down", i), wide, 64);
    std::string cache = number("cache", i);
    arguments += ", %" + cache + ": tensor<32x64xf32> {loom.name = \"" + cache +
                 "\", loom.state = \"" + cache + "\"}";
    body += "  %" + number("c", i) + " = loom.add %" + cache + ", %" + number("d", i) +
            " : tensor<32x64xf32> loc(\"" + number("keep", i) + "\")\n";
    body += "  %" + number("r", i + 1) + " = loom.add %" + number("r", i) + ", %" + number("c", i) +
            " : tensor<32x64xf32> loc(\"" + number("residual", i) + "\")\n";
    results += ", %" + number("c", i);
    types += ", tensor<32x64xf32> {loom.name = \"" + number("next", i) + "\", loom.state = \"" +
             cache + "\"}";
    if (shape.returnsSome && (i == 3 || i == 7)) {
      results += ", %" + number("h", i);
      types += ", tensor<32x256xf32> {loom.name = \"" + number("seen", i) + "\"}";
    }
  }
  std::string top = number("r", kLayers);
  if (shape.readsFirst) {
    body += "  %both = loom.add %" + top + ", %r5 : tensor<32x64xf32>\n";
    top = "both";
  }
  weight("last", 64, 1024);
  product("y", top, "last", 64, 1024);
  return weights + "func.func @main(%x: tensor<32x64xf32> {loom.name = \"x\"}" + arguments +
         ") -> (tensor<32x1024xf32> {loom.name = \"y\"}" + types +
         ") attributes {loom.dims = {}, loom.entry = \"main\"} {\n" + body + "  return %y" +
         results + " : tensor<32x1024xf32>" +
         [&] {
           std::string plain;
           for (int64_t i = 0; i < kLayers; ++i) {
             plain += ", tensor<32x64xf32>";
             if (shape.returnsSome && (i == 3 || i == 7))
               plain += ", tensor<32x256xf32>";
           }
           return plain;
         }() +
         "\n}\n";
}

} // namespace gridloom

#endif // GRIDLOOM_TEST_UNIT_LAYEREDPROGRAM_H
