//===- SkeletonTable.h - kernels of every loop structure --------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// One row is one kernel for each of its element types and sizes. In its text $E is the element
// type; {N}, {N*2} and {N+3} are computed from the size; T(5x{N}) is tensor<5x{N}x$E>.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_TEST_UNIT_SKELETONTABLE_H
#define GRIDLOOM_TEST_UNIT_SKELETONTABLE_H

#include "test/unit/PtxTesting.h"
#include "test/unit/UnaryFunctions.h"

namespace gridloom::testing {

inline constexpr const char *kFloats = "f32 f64 f16 bf16";
inline constexpr const char *kIntegers = "i8 ui8 i16 ui16 i32 ui32 i64 ui64";
inline constexpr const char *kNumbers = "f32 f64 f16 bf16 i8 ui8 i16 ui16 i32 ui32 i64 ui64";
inline constexpr const char *kAll = "f32 f64 f16 bf16 i8 ui8 i16 ui16 i32 ui32 i64 ui64 i1";
/// Only moved and converted.
inline constexpr const char *kFloats8 = "f8E4M3FN f8E5M2 f8E4M3FNUZ f8E5M2FNUZ";
inline constexpr const char *kMoved =
    "f32 f64 f16 bf16 i8 ui8 i16 ui16 i32 ui32 i64 ui64 i1 f8E4M3FN";

/// Lengths around vectors, warps and blocks, and of more than one block.
inline constexpr const char *kLengths = "1 3 4 7 31 32 33 127 128 255 256 257 1023 1025 4099";
/// Lengths around the tiles of a transpose.
inline constexpr const char *kTiles = "7 31 32 33 63 64 65 96 100 129";
/// Rows that a warp computes, and rows that a block computes.
inline constexpr const char *kShortRows = "1 3 4 7 8 31 32 33 127 128 255 257 1023";
inline constexpr const char *kLongRows = "2048 2049 2052 4096 4099";

/// Values of an argument: floats in [low, high); integers from low to high if both are whole
/// numbers, else any integers.
struct Values {
  unsigned argument;
  double low, high;
};

struct SkeletonRow {
  std::string skeleton, name, elements, sizes;
  std::string arguments; // "%x: T(5x{N}), %i: tensor<{N}xi64>"
  std::string body;      // defines %r, and %n where there are two results
  std::string results;
  /// Tolerance in units in the last place of f32, f64 and the 16-bit floats, and Exactness::floor;
  /// 0: exact.
  double single = 0, full = 0, narrow = 0, floor = 0;
  /// Values of some arguments; the others have floats in [-2, 2) and any integers.
  std::vector<Values> values = {};
  /// Inputs contain zeros of both signs, infinities, NaN and subnormal numbers.
  bool hasSpecials = false;
  /// The sign of a zero is unspecified.
  bool ignoresZeroSign = false;

  SkeletonRow within(double ulpsOfF32, double ulpsOfF64, double ulpsOf16Bits, double least = 0) && {
    single = ulpsOfF32;
    full = ulpsOfF64;
    narrow = ulpsOf16Bits;
    floor = least;
    return std::move(*this);
  }
  SkeletonRow draw(std::vector<Values> drawn) && {
    values = std::move(drawn);
    return std::move(*this);
  }
  SkeletonRow withSpecials(bool ignoresSign = false) && {
    hasSpecials = true;
    ignoresZeroSign = ignoresSign;
    return std::move(*this);
  }
};

using SkeletonRows = std::vector<SkeletonRow>;

inline SkeletonRow unary(const std::string &op, const std::string &elements) {
  return {"elementwise", op, elements, kLengths, "%x: T({N})", "%r = loom." + op + " %x : T({N})",
          "T({N})"};
}

inline SkeletonRow binary(const std::string &op, const std::string &elements) {
  return {"elementwise",
          op,
          elements,
          kLengths,
          "%x: T({N}), %y: T({N})",
          "%r = loom." + op + " %x, %y : T({N})",
          "T({N})"};
}

/// Elementwise operations with exact results.
inline SkeletonRows elementwiseRows() {
  SkeletonRows rows;
  for (const char *op : {"negate", "abs"})
    rows.push_back(unary(op, kNumbers).withSpecials());
  rows.push_back(unary("sign", kNumbers).withSpecials(/*ignoresSign=*/true));
  for (const char *op : {"floor", "ceil", "round_nearest_even"})
    rows.push_back(unary(op, kFloats).draw({{0, -50, 50}}).withSpecials());
  rows.push_back(unary("not", "i8 ui16 i32 i64 i1"));
  for (const char *op : {"add", "subtract", "multiply"})
    rows.push_back(binary(op, kNumbers).withSpecials());
  for (const char *op : {"maximum", "minimum"})
    rows.push_back(binary(op, kNumbers).withSpecials(/*ignoresSign=*/true));
  for (const char *op : {"and", "or", "xor"})
    rows.push_back(binary(op, "i8 ui16 i32 ui64 i1"));
  for (const char *op : {"shift_left", "shift_right_logical"})
    rows.push_back(binary(op, kIntegers).draw({{1, 0, 70}}));
  for (const char *op : {"remainder", "divide"})
    rows.push_back(binary(op, kIntegers).draw({{1, 1, 100}}));
  return rows;
}

/// Functions that are rounded or approximated.
inline SkeletonRows functionRows() {
  SkeletonRows rows;
  for (const UnaryFunction &row : kUnaryFunctions)
    rows.push_back(unary(row.name, kFloats)
                       .draw({{0, row.gpuLow, row.gpuHigh}})
                       .within(row.single, row.full, row.narrow));
  rows.push_back(unary("gelu erf", kFloats).draw({{0, -1, 2}}).within(8, 6, 1));
  rows.push_back(unary("gelu tanh", kFloats).draw({{0, -1, 2}}).within(12, 6, 1));
  rows.push_back(binary("divide", kFloats).draw({{0, -9, 9}, {1, 0.5, 3}}).within(2, 1, 1));
  rows.push_back(binary("power", kFloats).draw({{0, 0.5, 3}, {1, -3, 3}}).within(9, 3, 1));
  return rows;
}

/// Comparisons, broadcasts and iota.
inline SkeletonRows mixedRows() {
  SkeletonRows rows;
  auto add = [&](SkeletonRow row) { rows.push_back(std::move(row)); };
  std::string two = "%x: T({N}), %y: T({N})", mask = "tensor<{N}xi1>";
  std::string compare = " %x, %y : (T({N}), T({N})) -> " + mask;
  std::vector<Values> close = {{0, -2, 2}, {1, -2, 2}};
  add(SkeletonRow{"elementwise", "compare", kNumbers, kLengths, two,
                  "%r = loom.compare ge" + compare, mask}
          .draw(close)
          .withSpecials());
  add(SkeletonRow{"elementwise", "compare and select", kNumbers, kLengths, two,
                  "%p = loom.compare lt" + compare + "\n%r = loom.select %p, %x, %y : " + mask +
                      ", T({N})",
                  "T({N})"}
          .draw(close)
          .withSpecials());
  add({"elementwise", "bias of columns", kNumbers, kLengths, "%x: T(5x{N}), %b: T({N})",
       "%0 = loom.broadcast %b dims = [1] : (T({N})) -> T(5x{N})\n%r = loom.add %x, %0 : T(5x{N})",
       "T(5x{N})"});
  add({"elementwise", "bias of rows", kNumbers, kLengths, "%x: T({N}x6), %b: T({N})",
       "%0 = loom.broadcast %b dims = [0] : (T({N})) -> T({N}x6)\n%r = loom.add %x, %0 : T({N}x6)",
       "T({N}x6)"});
  add({"elementwise", "iota", "i32 i64 f32", kLengths, "%x: T(3x{N})",
       "%0 = loom.iota dim = 1 : T(3x{N})\n%r = loom.add %x, %0 : T(3x{N})", "T(3x{N})"});
  add({"elementwise", "random bits", "i64", kLengths, "%i: T(3x{N}), %t: T(3x{N})",
       "%r = loom.random_bits %i, %t seed = 81985529216486895 stream = 4000000000 : (T(3x{N}), "
       "T(3x{N})) -> tensor<3x{N}xui32>",
       "tensor<3x{N}xui32>"});
  add({"constants", "table", "f32 bf16 i8 i64", "7", "%x: T(3x{N})",
       "%c = loom.constant dense<[1, 2, 3, 5, 7, 11, 13]> : tensor<{N}xi64>\n"
       "%e = loom.convert %c : (tensor<{N}xi64>) -> T({N})\n"
       "%b = loom.broadcast %e dims = [1] : (T({N})) -> T(3x{N})\n%r = loom.multiply %x, %b : "
       "T(3x{N})",
       "T(3x{N})"});
  add({"in place", "add", kNumbers, kLengths, "%x: T({N}x4), %y: T({N}x4)",
       "%r = loom.add %x, %y : T({N}x4)", "T({N}x4)"});
  add({"in place", "negate and keep", kNumbers, kLengths, two,
       "%n = loom.negate %y : T({N})\n%r = loom.maximum %x, %n : T({N})", "T({N})"});
  return rows;
}

/// Elements that only move.
inline SkeletonRows moveRows() {
  SkeletonRows rows;
  auto add = [&](SkeletonRow row) { rows.push_back(std::move(row)); };
  auto transpose = [&](const char *name, const std::string &sizes, const std::string &from,
                       const std::string &order, const std::string &to) {
    add({"transpose", name, kMoved, sizes, "%x: T(" + from + ")",
         "%r = loom.transpose %x [" + order + "] : (T(" + from + ")) -> T(" + to + ")",
         "T(" + to + ")"});
  };
  transpose("of few columns", kLengths, "{N}x5", "1, 0", "5x{N}");
  transpose("of tiles", kTiles, "{N}x66", "1, 0", "66x{N}");
  transpose("of tiles, batched", kTiles, "2x40x{N}", "0, 2, 1", "2x{N}x40");
  transpose("of heads", kShortRows, "2x3x4x{N}", "0, 2, 1, 3", "2x4x3x{N}");
  transpose("turned around", kTiles, "6x{N}x35", "2, 1, 0", "35x{N}x6");
  add({"transpose", "and add", kNumbers, kTiles, "%x: T({N}x70), %y: T(70x{N})",
       "%0 = loom.transpose %x [1, 0] : (T({N}x70)) -> T(70x{N})\n%r = loom.add %0, %y : T(70x{N})",
       "T(70x{N})"});
  add(SkeletonRow{"gather", "rows", kMoved, kLengths, "%t: T(10x{N}), %i: tensor<2x3xi64>",
                  "%r = loom.gather %t, %i dim = 0 : (T(10x{N}), tensor<2x3xi64>) -> T(2x3x{N})",
                  "T(2x3x{N})"}
          .draw({{1, 0, 9}}));
  add(SkeletonRow{"gather", "columns", kMoved, kLengths, "%t: T(4x11), %i: tensor<{N}xi32>",
                  "%r = loom.gather %t, %i dim = 1 : (T(4x11), tensor<{N}xi32>) -> T(4x{N})",
                  "T(4x{N})"}
          .draw({{1, 0, 10}}));
  add(SkeletonRow{"gather", "elements", kMoved, kLengths, "%t: T(3x12), %i: tensor<3x{N}xi64>",
                  "%r = loom.gather_elements %t, %i dim = 1 : (T(3x12), tensor<3x{N}xi64>) -> "
                  "T(3x{N})",
                  "T(3x{N})"}
          .draw({{1, 0, 11}}));
  add({"move", "concatenate rows", kMoved, kLengths, "%x: T(3x{N}), %y: T(2x{N})",
       "%r = loom.concatenate %x, %y dim = 0 : (T(3x{N}), T(2x{N})) -> T(5x{N})", "T(5x{N})"});
  add({"move", "concatenate columns", kMoved, kLengths, "%x: T(4x{N}), %y: T(4x5)",
       "%r = loom.concatenate %x, %y dim = 1 : (T(4x{N}), T(4x5)) -> T(4x{N+5})", "T(4x{N+5})"});
  std::string around = " low = [1, 2] high = [0, 3] interior = [0, 0] : (T(3x{N})) -> T(4x{N+5})";
  add({"move", "pad", "f32 f64 f16 bf16 f8E4M3FN f8E5M2", kLengths, "%x: T(3x{N})",
       "%r = loom.pad %x value = 0.5 : $E" + around, "T(4x{N+5})"});
  add({"move", "pad with numbers", kIntegers, kLengths, "%x: T(3x{N})",
       "%r = loom.pad %x value = 3 : $E" + around, "T(4x{N+5})"});
  add({"move", "slice", kMoved, kLengths, "%x: T(6x{N+4})",
       "%r = loom.slice %x [1, 3] to [6, {N+3}] by [2, 1] : (T(6x{N+4})) -> T(3x{N})", "T(3x{N})"});
  add({"move", "slice by two", kMoved, kLengths, "%x: T(2x{N*2})",
       "%r = loom.slice %x [0, 0] to [2, {N*2}] by [1, 2] : (T(2x{N*2})) -> T(2x{N})", "T(2x{N})"});
  add({"move", "reverse", kMoved, kLengths, "%x: T(3x{N})",
       "%r = loom.reverse %x dims = [1] : T(3x{N})", "T(3x{N})"});
  return rows;
}

/// Computations on several slices or transposed inputs.
inline SkeletonRows viewRows() {
  SkeletonRows rows;
  auto add = [&](SkeletonRow row) { rows.push_back(std::move(row)); };
  std::string half = "T(2x3x{N})", whole = "T(2x3x{N*2})", cut = " by [1, 1, 1] : (" + whole;
  std::string halves = "%l = loom.slice %x [0, 0, 0] to [2, 3, {N}]" + cut + ") -> " + half +
                       "\n%h = loom.slice %x [0, 0, {N}] to [2, 3, {N*2}]" + cut + ") -> " + half;
  add({"view", "rotary", kFloats, kLengths, "%x: " + whole + ", %c: T(3x{N*2}), %s: T(3x{N*2})",
       halves + "\n%n = loom.negate %h : " + half + "\n%t = loom.concatenate %n, %l dim = 2 : (" +
           half + ", " + half + ") -> " + whole +
           "\n%0 = loom.broadcast %c dims = [1, 2] : (T(3x{N*2})) -> " + whole +
           "\n%1 = loom.broadcast %s dims = [1, 2] : (T(3x{N*2})) -> " + whole +
           "\n%2 = loom.multiply %x, %0 : " + whole + "\n%3 = loom.multiply %t, %1 : " + whole +
           "\n%r = loom.add %2, %3 : " + whole,
       whole});
  rows.back() = std::move(rows.back()).within(1, 1, 1, 8);
  add({"view", "maximum of halves", kNumbers, kLengths, "%x: " + whole,
       halves + "\n%r = loom.maximum %l, %h : " + half, half});
  add({"view", "pieces computed", kNumbers, kLengths, "%x: T(2x{N}), %y: T(2x5)",
       "%0 = loom.negate %x : T(2x{N})\n%1 = loom.maximum %y, %y : T(2x5)\n"
       "%2 = loom.concatenate %0, %1 dim = 1 : (T(2x{N}), T(2x5)) -> T(2x{N+5})\n"
       "%r = loom.negate %2 : T(2x{N+5})",
       "T(2x{N+5})"});
  add(SkeletonRow{"view", "computed indices", kMoved, kLengths, "%t: T(9x{N}), %i: tensor<4xi64>",
                  "%z = loom.constant dense<0> : tensor<4xi64>\n"
                  "%m = loom.constant dense<9> : tensor<4xi64>\n"
                  "%p = loom.compare lt %i, %z : (tensor<4xi64>, tensor<4xi64>) -> tensor<4xi1>\n"
                  "%w = loom.add %i, %m : tensor<4xi64>\n"
                  "%j = loom.select %p, %w, %i : tensor<4xi1>, tensor<4xi64>\n"
                  "%r = loom.gather %t, %j dim = 0 : (T(9x{N}), tensor<4xi64>) -> T(4x{N})",
                  "T(4x{N})"}
          .draw({{1, -9, 8}}));
  return rows;
}

/// Five rows, reduced or normalised by a warp or a block each. The reference rounds, too: long sums
/// of f64 differ in their last bits.
inline SkeletonRows rowRows(const std::string &skeleton, const std::string &sizes) {
  SkeletonRows rows;
  std::string matrix = "%x: T(5x{N})", to = " dims = [1] : (T(5x{N})) -> T(5)";
  auto add = [&](const char *name, const std::string &elements, const std::string &more,
                 const std::string &body, const std::string &results) {
    rows.push_back({skeleton, name, elements, sizes, matrix + more, body, results});
    return std::move(rows.back());
  };
  auto keep = [&](SkeletonRow row) { rows.back() = std::move(row); };
  keep(add("sum", kNumbers, "", "%r = loom.reduce sum %x" + to, "T(5)")
           .draw({{0, 0.5, 1.5}})
           .within(16, 64, 1));
  keep(add("max", kNumbers, "", "%r = loom.reduce max %x" + to, "T(5)"));
  keep(add("any", "i1", "", "%r = loom.reduce max %x" + to, "T(5)"));
  keep(add("softmax", kFloats, "", "%r = loom.softmax %x dim = 1 : T(5x{N})", "T(5x{N})")
           .within(16, 64, 1));
  keep(add("layer norm", kFloats, ", %s: T({N}), %b: T({N})",
           "%r = loom.layer_norm %x, %s, %b epsilon = 1.0e-5 : (T(5x{N}), T({N}), T({N})) -> "
           "T(5x{N})",
           "T(5x{N})")
           .within(64, 64, 1.5, 1));
  keep(add("rms norm", kFloats, ", %s: T({N})",
           "%r = loom.rms_norm %x, %s epsilon = 1.0e-5 : (T(5x{N}), T({N})) -> T(5x{N})",
           "T(5x{N})")
           .within(64, 64, 1.5, 1));
  keep(add("root of squares", "f32 f64", ", %c: T(5)",
           "%0 = loom.multiply %x, %x : T(5x{N})\n%1 = loom.reduce sum %0" + to +
               "\n%2 = loom.add %1, %c : T(5)\n%3 = loom.rsqrt %2 : T(5)\n"
               "%4 = loom.broadcast %3 dims = [0] : (T(5)) -> T(5x{N})\n"
               "%r = loom.multiply %x, %4 : T(5x{N})",
           "T(5x{N})")
           .draw({{1, 0.5, 1}})
           .within(16, 64, 1));
  keep(add("arg max", kNumbers, "",
           "%r = loom.arg_reduce max %x dim = 1 : (T(5x{N})) -> tensor<5xi64>", "tensor<5xi64>")
           .draw({{0, 0, 3}}));
  return rows;
}

/// Reductions of dimensions other than the last.
inline SkeletonRows reductionRows() {
  SkeletonRows rows;
  auto column = [&](const char *name, const std::string &sizes, const std::string &from,
                    const std::string &dims, const std::string &to) {
    rows.push_back(SkeletonRow{"column", name, kNumbers, sizes, "%x: T(" + from + ")",
                               "%r = loom.reduce sum %x dims = [" + dims + "] : (T(" + from +
                                   ")) -> T(" + to + ")",
                               "T(" + to + ")"}
                       .draw({{0, 0.5, 1.5}})
                       .within(16, 64, 1));
  };
  column("sum of the first dim", kLengths, "{N}x36", "0", "36");
  column("sum of few", kLengths, "9x{N}", "0", "{N}");
  column("sum of the middle", kShortRows, "3x{N}x10", "1", "3x10");
  rows.push_back(SkeletonRow{"reduction", "product of all", kNumbers, kShortRows, "%x: T(3x{N})",
                             "%r = loom.reduce prod %x dims = [0, 1] : (T(3x{N})) -> tensor<$E>",
                             "tensor<$E>"}
                     .draw({{0, 0.95, 1.05}})
                     .within(64, 64, 1));
  rows.push_back({"reduction", "min of the outer dims", kNumbers, kShortRows, "%x: T(4x3x{N})",
                  "%r = loom.reduce min %x dims = [0, 2] : (T(4x3x{N})) -> T(3)", "T(3)"});
  // The reduced value is computed in the kernel, as for the variance of a batch norm and its
  // gradients.
  for (auto [name, from, dims, to, dim] :
       {std::tuple("variance of channels", "4x5x{N}", "0, 2", "5", "1"),
        {"variance of columns", "6x3x{N}", "0, 1", "{N}", "2"}})
    rows.push_back(SkeletonRow{"reduction", name, "f32 f64", kShortRows,
                               std::string("%x: T(") + from + "), %m: T(" + to + ")",
                               std::string("%0 = loom.broadcast %m dims = [") + dim + "] : (T(" +
                                   to + ")) -> T(" + from + ")\n%1 = loom.subtract %x, %0 : T(" +
                                   from + ")\n%2 = loom.multiply %1, %1 : T(" + from +
                                   ")\n%r = loom.reduce sum %2 dims = [" + dims + "] : (T(" + from +
                                   ")) -> T(" + to + ")",
                               std::string("T(") + to + ")"}
                       .within(16, 64, 1));
  rows.push_back(SkeletonRow{"reduction", "softmax of columns", kFloats, kShortRows, "%x: T(7x{N})",
                             "%r = loom.softmax %x dim = 0 : T(7x{N})", "T(7x{N})"}
                     .within(16, 16, 1));
  rows.push_back({"reduction", "windows", kNumbers, "7 31 32 33 127 257", "%x: T(3x{N})",
                  "%0 = loom.window %x dims = [1] sizes = [3] strides = [1] dilations = [1] : "
                  "(T(3x{N})) -> T(3x{N-2}x3)\n"
                  "%r = loom.reduce max %0 dims = [2] : (T(3x{N-2}x3)) -> T(3x{N-2})",
                  "T(3x{N-2})"});
  rows.push_back({"nests", "outputs of two shapes", kNumbers, kShortRows, "%x: T(5x{N})",
                  "%n = loom.negate %x : T(5x{N})\n"
                  "%r = loom.reduce max %x dims = [1] : (T(5x{N})) -> T(5)",
                  "T(5), T(5x{N})"});
  return rows;
}

/// Few rows times matrices that are contiguous along the sums, or across them. The reference sums
/// in order; sums of whole numbers are exact in any order.
inline SkeletonRows productRows() {
  SkeletonRows rows;
  auto add = [&](const char *name, const std::string &sizes, const std::string &left,
                 const std::string &right, const std::string &dims, const std::string &to) {
    std::string arguments = "%x: T(" + left + "), %w: T(" + right + "), %b: T(" + to + ")";
    std::string body = "%0 = loom.dot_general %x, %w " + dims + " : (T(" + left + "), T(" + right +
                       ")) -> T(" + to + ")\n%r = loom.add %0, %b : T(" + to + ")";
    SkeletonRow row{"product", name, kNumbers, sizes, arguments, body, "T(" + to + ")"};
    rows.push_back(
        std::move(row).draw({{0, 0.5, 1.5}, {1, 0.5, 1.5}, {2, 0.5, 1.5}}).within(16, 64, 1));
  };
  std::string along = "batch = [] x [] contract = [1] x [1]",
              across = "batch = [] x [] contract = [1] x [0]",
              batched = "batch = [0] x [0] contract = [2] x [1]";
  add("along the sum", kLengths, "1x{N}", "5x{N}", along, "1x5");
  add("of three rows along the sum", kLengths, "3x{N}", "6x{N}", along, "3x6");
  add("of many columns along the sum", kLengths, "2x24", "{N}x24", along, "2x{N}");
  add("across the sum", kLengths, "1x40", "40x{N}", across, "1x{N}");
  add("of few columns across the sum", kLengths, "1x{N}", "{N}x24", across, "1x24");
  add("of four rows across the sum", kLengths, "4x{N}", "{N}x40", across, "4x40");
  add("of batches across the sum", kShortRows, "3x2x{N}", "3x{N}x20", batched, "3x2x20");
  add("of more rows", kShortRows, "5x{N}", "{N}x24", across, "5x24");
  return rows;
}

/// Operations along a dimension: scans, sorts, gathers and scatters. Sums of 16-bit floats into
/// memory are rounded after each element, in another order than the reference's.
inline SkeletonRows laneRows() {
  SkeletonRows rows;
  auto add = [&](SkeletonRow row) { rows.push_back(std::move(row)); };
  add(SkeletonRow{"cumulative", "sum", kNumbers, kLengths, "%x: T(3x{N})",
                  "%r = loom.cumulative sum %x dim = 1 : T(3x{N})", "T(3x{N})"}
          .draw({{0, 0.5, 1.5}})
          .within(16, 64, 1));
  add({"cumulative", "max, reversed", kNumbers, kLengths, "%x: T(3x{N})",
       "%r = loom.cumulative max %x dim = 1 exclusive reverse : T(3x{N})", "T(3x{N})"});
  add(SkeletonRow{"cumulative", "sum of columns", kNumbers, kShortRows, "%x: T({N}x5)",
                  "%r = loom.cumulative sum %x dim = 0 exclusive : T({N}x5)", "T({N}x5)"}
          .draw({{0, 0.5, 1.5}})
          .within(16, 64, 1));
  add(SkeletonRow{"argsort", "rows", kNumbers, kLengths, "%x: T(3x{N})",
                  "%r = loom.argsort %x dim = 1 : (T(3x{N})) -> tensor<3x{N}xi64>",
                  "tensor<3x{N}xi64>"}
          .draw({{0, 0, 9}})
          .withSpecials());
  add(SkeletonRow{
      "argsort", "the first of columns", kNumbers, "4 7 31 32 33 127 257", "%x: T({N}x3)",
      "%r = loom.argsort %x dim = 0 descending : (T({N}x3)) -> tensor<4x3xi64>", "tensor<4x3xi64>"}
          .draw({{0, 0, 9}}));
  add(SkeletonRow{"scatter", "slices", kMoved, kLengths,
                  "%x: T(9x{N}), %i: tensor<4xi64>, %u: T(4x{N})",
                  "%r = loom.scatter %x, %i, %u dim = 0 : (T(9x{N}), tensor<4xi64>, T(4x{N})) -> "
                  "T(9x{N})",
                  "T(9x{N})"}
          .draw({{1, 0, 8}}));
  add(SkeletonRow{"scatter", "sum of elements", kNumbers, kLengths,
                  "%x: T(3x12), %i: tensor<3x{N}xi64>, %u: T(3x{N})",
                  "%r = loom.scatter %x, %i, %u dim = 1 reduce = sum : (T(3x12), "
                  "tensor<3x{N}xi64>, T(3x{N})) -> T(3x12)",
                  "T(3x12)"}
          .draw({{0, 0.5, 1.5}, {1, 0, 11}, {2, 0.5, 1.5}})
          .within(64, 64, 8));
  return rows;
}

/// Every pair of element types, with values that both can represent: out-of-range results are
/// unspecified.
inline SkeletonRows conversionRows() {
  SkeletonRows rows;
  llvm::SmallVector<llvm::StringRef> elements;
  llvm::StringRef(kAll).split(elements, ' ');
  for (llvm::StringRef to : elements) {
    std::string type = "tensor<{N}x" + to.str() + ">";
    rows.push_back(SkeletonRow{"convert", "to " + to.str(), kAll, kLengths, "%x: T({N})",
                               "%r = loom.convert %x : (T({N})) -> " + type, type}
                       .draw({{0, 0, 100}}));
  }
  return rows;
}

/// Conversions to and from 8-bit floats, also of everything near and beyond the ends of their
/// ranges.
inline SkeletonRows float8Rows() {
  SkeletonRows rows;
  llvm::SmallVector<llvm::StringRef> elements, wide;
  llvm::StringRef(kFloats8).split(elements, ' ');
  llvm::StringRef("f32 f64 f16 bf16 i8 ui8 i32 i64 i1").split(wide, ' ');
  for (llvm::StringRef to : wide) {
    std::string type = "tensor<{N}x" + to.str() + ">";
    rows.push_back(SkeletonRow{"float8", "to " + to.str(), kFloats8, kLengths, "%x: T({N})",
                               "%r = loom.convert %x : (T({N})) -> " + type, type}
                       .draw({{0, to.starts_with("f") ? -100.0 : 0.0, 100}}));
    if (to.starts_with("f"))
      rows.back() = std::move(rows.back()).withSpecials();
  }
  for (llvm::StringRef to : elements) {
    std::string type = "tensor<{N}x" + to.str() + ">";
    for (const char *form : {"", "unsaturated "})
      for (double most : {0.03, 700.0, 64000.0}) {
        std::string name = "to " + std::string(form) + to.str() + " below " + std::to_string(most);
        rows.push_back(
            SkeletonRow{"float8", name, kFloats, kLengths, "%x: T({N})",
                        "%r = loom.convert " + std::string(form) + "%x : (T({N})) -> " + type, type}
                .draw({{0, -most, most}})
                .withSpecials());
      }
    rows.push_back({"float8", "numbers to " + to.str(), kIntegers, kLengths, "%x: T({N})",
                    "%r = loom.convert %x : (T({N})) -> " + type, type});
  }
  rows.push_back(SkeletonRow{"float8", "select", kFloats8, kLengths, "%x: T({N}), %y: T({N})",
                             "%0 = loom.convert %x : (T({N})) -> tensor<{N}xf32>\n"
                             "%1 = loom.convert %y : (T({N})) -> tensor<{N}xf32>\n"
                             "%p = loom.compare lt %0, %1 : (tensor<{N}xf32>, tensor<{N}xf32>) -> "
                             "tensor<{N}xi1>\n%r = loom.select %p, %x, %y : tensor<{N}xi1>, T({N})",
                             "T({N})"}
                     .withSpecials());
  rows.push_back({"float8", "bits", kFloats8, kLengths, "%x: T({N})",
                  "%r = loom.bitcast_convert %x : (T({N})) -> tensor<{N}xui8>", "tensor<{N}xui8>"});
  return rows;
}

inline SkeletonRows allSkeletonRows() {
  SkeletonRows rows;
  for (const SkeletonRows &part :
       {elementwiseRows(), functionRows(), mixedRows(), moveRows(), viewRows(),
        rowRows("row-warp", kShortRows), rowRows("row-block", kLongRows), reductionRows(),
        productRows(), laneRows(), conversionRows(), float8Rows()})
    rows.insert(rows.end(), part.begin(), part.end());
  return rows;
}

} // namespace gridloom::testing

#endif // GRIDLOOM_TEST_UNIT_SKELETONTABLE_H
