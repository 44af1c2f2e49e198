//===- EquivalenceCases.h - programs of one or a few operations -*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_TEST_UNIT_EQUIVALENCECASES_H
#define GRIDLOOM_TEST_UNIT_EQUIVALENCECASES_H

#include "InterpreterTesting.h"
#include "UnaryFunctions.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/SHA256.h"

#include <filesystem>

namespace gridloom::testing {

struct Case {
  std::string name;
  /// Types of the arguments %a, %b, ...; the prefix `index ` asks for indices below 12.
  std::vector<std::string> arguments;
  /// Defines %r.
  std::string body;
  std::string result;
};

inline std::ostream &operator<<(std::ostream &stream, const Case &test) {
  return stream << test.name;
}

inline constexpr const char *kFloats = "tensor<12x24xf32>";

/// `cases`, and one for each row of kUnaryFunctions.
inline std::vector<Case> withUnaryFunctions(std::vector<Case> cases) {
  for (const UnaryFunction &function : kUnaryFunctions)
    cases.push_back({function.name,
                     {kFloats},
                     std::string("%r = loom.") + function.name + " %a : " + kFloats,
                     kFloats});
  return cases;
}

// NOLINTNEXTLINE(bugprone-throwing-static-initialization): without its table there is no test.
inline const std::vector<Case> kCases = withUnaryFunctions({
    {"negate", {kFloats}, "%r = loom.negate %a : tensor<12x24xf32>", kFloats},
    {"abs", {kFloats}, "%r = loom.abs %a : tensor<12x24xf32>", kFloats},
    {"floor", {kFloats}, "%r = loom.floor %a : tensor<12x24xf32>", kFloats},
    {"ceil", {kFloats}, "%r = loom.ceil %a : tensor<12x24xf32>", kFloats},
    {"sign", {kFloats}, "%r = loom.sign %a : tensor<12x24xf32>", kFloats},
    {"not", {"tensor<12x24xi1>"}, "%r = loom.not %a : tensor<12x24xi1>", "tensor<12x24xi1>"},
    {"add", {kFloats, kFloats}, "%r = loom.add %a, %b : tensor<12x24xf32>", kFloats},
    {"subtract", {kFloats, kFloats}, "%r = loom.subtract %a, %b : tensor<12x24xf32>", kFloats},
    {"multiply", {kFloats, kFloats}, "%r = loom.multiply %a, %b : tensor<12x24xf32>", kFloats},
    {"divide", {kFloats, kFloats}, "%r = loom.divide %a, %b : tensor<12x24xf32>", kFloats},
    {"maximum", {kFloats, kFloats}, "%r = loom.maximum %a, %b : tensor<12x24xf32>", kFloats},
    {"minimum", {kFloats, kFloats}, "%r = loom.minimum %a, %b : tensor<12x24xf32>", kFloats},
    {"power", {kFloats, kFloats}, "%r = loom.power %a, %b : tensor<12x24xf32>", kFloats},
    {"and",
     {"tensor<12xi64>", "tensor<12xi64>"},
     "%r = loom.and %a, %b : tensor<12xi64>",
     "tensor<12xi64>"},
    {"or",
     {"tensor<12xi64>", "tensor<12xi64>"},
     "%r = loom.or %a, %b : tensor<12xi64>",
     "tensor<12xi64>"},
    {"compare",
     {kFloats, kFloats},
     "%r = loom.compare lt %a, %b : (tensor<12x24xf32>, tensor<12x24xf32>) -> tensor<12x24xi1>",
     "tensor<12x24xi1>"},
    {"select",
     {"tensor<12x24xi1>", kFloats, kFloats},
     "%r = loom.select %a, %b, %c : tensor<12x24xi1>, tensor<12x24xf32>",
     kFloats},
    {"convert",
     {"tensor<12x24xi64>"},
     "%r = loom.convert %a : (tensor<12x24xi64>) -> tensor<12x24xf32>",
     kFloats},
    {"gelu_erf", {kFloats}, "%r = loom.gelu erf %a : tensor<12x24xf32>", kFloats},
    {"gelu_tanh", {kFloats}, "%r = loom.gelu tanh %a : tensor<12x24xf32>", kFloats},
    {"softmax",
     {"tensor<12x4x24xf32>"},
     "%r = loom.softmax %a dim = 1 : tensor<12x4x24xf32>",
     "tensor<12x4x24xf32>"},
    {"softmax_last", {kFloats}, "%r = loom.softmax %a dim = 1 : tensor<12x24xf32>", kFloats},
    {"layer_norm_no_bias",
     {"tensor<12x4x6xf32>", "tensor<6xf32>"},
     "%r = loom.layer_norm %a, %b epsilon = 0.5 : (tensor<12x4x6xf32>, tensor<6xf32>) -> "
     "tensor<12x4x6xf32>",
     "tensor<12x4x6xf32>"},
    {"layer_norm",
     {"tensor<12x24xf32>", "tensor<24xf32>", "tensor<24xf32>"},
     "%r = loom.layer_norm %a, %b, %c epsilon = 0.5 : (tensor<12x24xf32>, tensor<24xf32>, "
     "tensor<24xf32>) -> tensor<12x24xf32>",
     kFloats},
    {"rms_norm",
     {"tensor<12x4x6xf32>", "tensor<6xf32>"},
     "%r = loom.rms_norm %a, %b epsilon = 0.5 : (tensor<12x4x6xf32>, tensor<6xf32>) -> "
     "tensor<12x4x6xf32>",
     "tensor<12x4x6xf32>"},
    {"reduce_sum",
     {"tensor<12x4x24xf32>"},
     "%r = loom.reduce sum %a dims = [0, 2] : (tensor<12x4x24xf32>) -> tensor<4xf32>",
     "tensor<4xf32>"},
    {"reduce_max",
     {"tensor<12x4x24xf32>"},
     "%r = loom.reduce max %a dims = [0] : (tensor<12x4x24xf32>) -> tensor<4x24xf32>",
     "tensor<4x24xf32>"},
    {"reduce_min",
     {"tensor<12x24xi64>"},
     "%r = loom.reduce min %a dims = [1] : (tensor<12x24xi64>) -> tensor<12xi64>",
     "tensor<12xi64>"},
    {"reduce_prod",
     {"tensor<12x24xf32>"},
     "%r = loom.reduce prod %a dims = [1] : (tensor<12x24xf32>) -> tensor<12xf32>",
     "tensor<12xf32>"},
    {"matmul",
     {"tensor<12x24xf32>", "tensor<24x6xf32>"},
     "%r = loom.dot_general %a, %b batch = [] x [] contract = [1] x [0] : (tensor<12x24xf32>, "
     "tensor<24x6xf32>) -> tensor<12x6xf32>",
     "tensor<12x6xf32>"},
    {"batched_matmul",
     {"tensor<12x4x24xf32>", "tensor<4x12x24xf32>"},
     "%r = loom.dot_general %a, %b batch = [1] x [0] contract = [2] x [2] : (tensor<12x4x24xf32>, "
     "tensor<4x12x24xf32>) -> tensor<4x12x12xf32>",
     "tensor<4x12x12xf32>"},
    {"contract_two",
     {"tensor<12x4x6xf32>", "tensor<6x12x24xf32>"},
     "%r = loom.dot_general %a, %b batch = [] x [] contract = [0, 2] x [1, 0] : "
     "(tensor<12x4x6xf32>, tensor<6x12x24xf32>) -> tensor<4x24xf32>",
     "tensor<4x24xf32>"},
    {"broadcast",
     {"tensor<12xf32>"},
     "%r = loom.broadcast %a dims = [1] : (tensor<12xf32>) -> tensor<24x12x4xf32>",
     "tensor<24x12x4xf32>"},
    {"broadcast_unit",
     {"tensor<12x1xf32>"},
     "%r = loom.broadcast %a dims = [0, 1] : (tensor<12x1xf32>) -> tensor<12x24xf32>",
     kFloats},
    {"reshape_split",
     {"tensor<12x24xf32>"},
     "%r = loom.reshape %a : (tensor<12x24xf32>) -> tensor<12x4x6xf32>",
     "tensor<12x4x6xf32>"},
    {"reshape_merge",
     {"tensor<4x6x12xf32>"},
     "%r = loom.reshape %a : (tensor<4x6x12xf32>) -> tensor<24x12xf32>",
     "tensor<24x12xf32>"},
    {"reshape_odd",
     {"tensor<4x6xf32>"},
     "%r = loom.reshape %a : (tensor<4x6xf32>) -> tensor<6x4xf32>",
     "tensor<6x4xf32>"},
    {"reshape_unit",
     {"tensor<1x12x1x24xf32>"},
     "%r = loom.reshape %a : (tensor<1x12x1x24xf32>) -> tensor<12x1x24xf32>",
     "tensor<12x1x24xf32>"},
    {"transpose",
     {"tensor<4x6x12xf32>"},
     "%r = loom.transpose %a [2, 0, 1] : (tensor<4x6x12xf32>) -> tensor<12x4x6xf32>",
     "tensor<12x4x6xf32>"},
    {"slice",
     {"tensor<12x24xf32>"},
     "%r = loom.slice %a [0, 6] to [12, 18] by [1, 2] : (tensor<12x24xf32>) -> tensor<12x6xf32>",
     "tensor<12x6xf32>"},
    {"slice_uneven",
     {"tensor<11x22xf32>"},
     "%r = loom.slice %a [2, 3] to [11, 22] by [1, 3] : (tensor<11x22xf32>) -> tensor<9x7xf32>",
     "tensor<9x7xf32>"},
    {"slice_one",
     {"tensor<7x24xf32>"},
     "%r = loom.slice %a [6, 0] to [7, 24] by [1, 5] : (tensor<7x24xf32>) -> tensor<1x5xf32>",
     "tensor<1x5xf32>"},
    {"slice_of_product",
     {"tensor<12x24xf32>", "tensor<24x24xf32>"},
     "%p = loom.dot_general %a, %b batch = [] x [] contract = [1] x [0] : (tensor<12x24xf32>, "
     "tensor<24x24xf32>) -> tensor<12x24xf32>\n"
     "%q = loom.slice %p [0, 0] to [12, 8] by [1, 1] : (tensor<12x24xf32>) -> tensor<12x8xf32>\n"
     "%k = loom.slice %p [0, 8] to [12, 16] by [1, 1] : (tensor<12x24xf32>) -> tensor<12x8xf32>\n"
     "%v = loom.slice %p [0, 16] to [12, 24] by [1, 1] : (tensor<12x24xf32>) -> tensor<12x8xf32>\n"
     "%s = loom.dot_general %q, %k batch = [] x [] contract = [1] x [1] : (tensor<12x8xf32>, "
     "tensor<12x8xf32>) -> tensor<12x12xf32>\n"
     "%r = loom.dot_general %s, %v batch = [] x [] contract = [1] x [0] : (tensor<12x12xf32>, "
     "tensor<12x8xf32>) -> tensor<12x8xf32>",
     "tensor<12x8xf32>"},
    {"slice_of_truths",
     {"tensor<12x24xf32>", "tensor<12x24xf32>", "index tensor<4xi64>"},
     "%p = loom.compare lt %a, %b : (tensor<12x24xf32>, tensor<12x24xf32>) -> tensor<12x24xi1>\n"
     "%u = loom.slice %p [6, 0] to [10, 24] by [1, 1] : (tensor<12x24xi1>) -> tensor<4x24xi1>\n"
     "%r = loom.scatter %p, %c, %u dim = 0 : (tensor<12x24xi1>, tensor<4xi64>, tensor<4x24xi1>) "
     "-> tensor<12x24xi1>",
     "tensor<12x24xi1>"},
    {"concatenate_many",
     {"tensor<7x5xf32>", "tensor<1x5xf32>", "tensor<4x5xf32>", "tensor<2x5xf32>"},
     "%r = loom.concatenate %a, %b, %c, %d dim = 0 : (tensor<7x5xf32>, tensor<1x5xf32>, "
     "tensor<4x5xf32>, tensor<2x5xf32>) -> tensor<14x5xf32>",
     "tensor<14x5xf32>"},
    {"concatenate",
     {"tensor<12x6xf32>", "tensor<12x18xf32>"},
     "%r = loom.concatenate %a, %b dim = 1 : (tensor<12x6xf32>, tensor<12x18xf32>) -> "
     "tensor<12x24xf32>",
     kFloats},
    {"gather_rows",
     {"tensor<12x24xf32>", "index tensor<4x6xi64>"},
     "%r = loom.gather %a, %b dim = 0 : (tensor<12x24xf32>, tensor<4x6xi64>) -> tensor<4x6x24xf32>",
     "tensor<4x6x24xf32>"},
    {"gather_columns",
     {"tensor<4x12x6xf32>", "index tensor<12xi32>"},
     "%r = loom.gather %a, %b dim = 1 : (tensor<4x12x6xf32>, tensor<12xi32>) -> tensor<4x12x6xf32>",
     "tensor<4x12x6xf32>"},
    {"gather_one",
     {"tensor<12x24xf32>", "index tensor<i64>"},
     "%r = loom.gather %a, %b dim = 0 : (tensor<12x24xf32>, tensor<i64>) -> tensor<24xf32>",
     "tensor<24xf32>"},
    {"round_nearest_even",
     {kFloats},
     "%r = loom.round_nearest_even %a : tensor<12x24xf32>",
     kFloats},
    {"xor",
     {"tensor<12x24xi64>", "tensor<12x24xi64>"},
     "%r = loom.xor %a, %b : tensor<12x24xi64>",
     "tensor<12x24xi64>"},
    {"shift_left",
     {"tensor<12x24xi64>", "tensor<12x24xi64>"},
     "%r = loom.shift_left %a, %b : tensor<12x24xi64>",
     "tensor<12x24xi64>"},
    {"shift_right_logical",
     {"tensor<12x24xi64>", "tensor<12x24xi64>"},
     "%r = loom.shift_right_logical %a, %b : tensor<12x24xi64>",
     "tensor<12x24xi64>"},
    {"remainder",
     {"tensor<12x24xi64>", "tensor<12x24xi64>"},
     "%r = loom.remainder %a, %b : tensor<12x24xi64>",
     "tensor<12x24xi64>"},
    {"remainder_float",
     {kFloats, kFloats},
     "%r = loom.remainder %a, %b : tensor<12x24xf32>",
     kFloats},
    {"bitcast_convert",
     {"tensor<12x24xf32>"},
     "%r = loom.bitcast_convert %a : (tensor<12x24xf32>) -> tensor<12x24xi32>",
     "tensor<12x24xi32>"},
    {"reverse",
     {"tensor<12x24xf32>"},
     "%r = loom.reverse %a dims = [1] : tensor<12x24xf32>",
     "tensor<12x24xf32>"},
    {"reverse_two",
     {"tensor<4x6x12xf32>"},
     "%r = loom.reverse %a dims = [0, 2] : tensor<4x6x12xf32>",
     "tensor<4x6x12xf32>"},
    {"gather_elements",
     {"tensor<12x24xf32>", "index tensor<6x24xi64>"},
     "%r = loom.gather_elements %a, %b dim = 0 : (tensor<12x24xf32>, tensor<6x24xi64>) -> "
     "tensor<6x24xf32>",
     "tensor<6x24xf32>"},
    {"gather_elements_last",
     {"tensor<4x6x12xf32>", "index tensor<4x6x18xi32>"},
     "%r = loom.gather_elements %a, %b dim = 2 : (tensor<4x6x12xf32>, tensor<4x6x18xi32>) -> "
     "tensor<4x6x18xf32>",
     "tensor<4x6x18xf32>"},
    {"scatter_elements",
     {"tensor<12x24xf32>", "index tensor<6x24xi64>", "tensor<6x24xf32>"},
     "%r = loom.scatter %a, %b, %c dim = 0 : (tensor<12x24xf32>, tensor<6x24xi64>, "
     "tensor<6x24xf32>) -> tensor<12x24xf32>",
     "tensor<12x24xf32>"},
    {"scatter_sum",
     {"tensor<4x12x6xf32>", "index tensor<4x24x6xi32>", "tensor<4x24x6xf32>"},
     "%r = loom.scatter %a, %b, %c dim = 1 reduce = sum : (tensor<4x12x6xf32>, tensor<4x24x6xi32>, "
     "tensor<4x24x6xf32>) -> tensor<4x12x6xf32>",
     "tensor<4x12x6xf32>"},
    {"scatter_slices",
     {"tensor<12x24xf32>", "index tensor<4xi64>", "tensor<4x24xf32>"},
     "%r = loom.scatter %a, %b, %c dim = 0 reduce = max : (tensor<12x24xf32>, tensor<4xi64>, "
     "tensor<4x24xf32>) -> tensor<12x24xf32>",
     "tensor<12x24xf32>"},
    {"cumulative_sum",
     {"tensor<12x24xf32>"},
     "%r = loom.cumulative sum %a dim = 1 : tensor<12x24xf32>",
     "tensor<12x24xf32>"},
    {"cumulative_exclusive",
     {"tensor<12x24xf32>"},
     "%r = loom.cumulative prod %a dim = 0 exclusive : tensor<12x24xf32>",
     "tensor<12x24xf32>"},
    {"cumulative_reverse",
     {"tensor<12x24xf32>"},
     "%r = loom.cumulative sum %a dim = 0 exclusive reverse : tensor<12x24xf32>",
     "tensor<12x24xf32>"},
    {"cumulative_max",
     {"tensor<12x24xi64>"},
     "%r = loom.cumulative max %a dim = 1 reverse : tensor<12x24xi64>",
     "tensor<12x24xi64>"},
    {"arg_max",
     {"tensor<12x24xf32>"},
     "%r = loom.arg_reduce max %a dim = 1 : (tensor<12x24xf32>) -> tensor<12xi64>",
     "tensor<12xi64>"},
    {"arg_min_last",
     {"index tensor<4x12x6xi64>"},
     "%r = loom.arg_reduce min %a dim = 1 last : (tensor<4x12x6xi64>) -> tensor<4x6xi64>",
     "tensor<4x6xi64>"},
    {"argsort",
     {"index tensor<12x24xi64>"},
     "%r = loom.argsort %a dim = 1 : (tensor<12x24xi64>) -> tensor<12x24xi64>",
     "tensor<12x24xi64>"},
    {"argsort_some",
     {"index tensor<12x24xi64>"},
     "%r = loom.argsort %a dim = 0 descending : (tensor<12x24xi64>) -> tensor<4x24xi64>",
     "tensor<4x24xi64>"},
    {"top_k",
     {"tensor<12x24xf32>"},
     "%0 = loom.argsort %a dim = 1 descending : (tensor<12x24xf32>) -> tensor<12x18xi64>\n%r = "
     "loom.gather_elements %a, %0 dim = 1 : (tensor<12x24xf32>, tensor<12x18xi64>) -> "
     "tensor<12x18xf32>",
     "tensor<12x18xf32>"},
    {"iota",
     {kFloats},
     "%0 = loom.iota dim = 1 : tensor<12x24xf32>\n %r = loom.add %a, %0 : tensor<12x24xf32>",
     kFloats},
    {"iota_i32", {}, "%r = loom.iota dim = 0 : tensor<12x6xi32>", "tensor<12x6xi32>"},
    {"random_bits",
     {},
     "%0 = loom.iota dim = 0 : tensor<12x24xi64>\n"
     "%1 = loom.iota dim = 1 : tensor<12x24xi64>\n"
     "%2 = loom.constant dense<24> : tensor<12x24xi64>\n"
     "%3 = loom.multiply %0, %2 : tensor<12x24xi64>\n"
     "%4 = loom.add %3, %1 : tensor<12x24xi64>\n"
     "%r = loom.random_bits %4 seed = 7 stream = 3 : (tensor<12x24xi64>) -> tensor<12x24xui32>",
     "tensor<12x24xui32>"},
    {"dropout",
     {kFloats, "tensor<i64>"},
     "%0 = loom.iota dim = 0 : tensor<12x24xi64>\n"
     "%1 = loom.iota dim = 1 : tensor<12x24xi64>\n"
     "%2 = loom.constant dense<24> : tensor<12x24xi64>\n"
     "%3 = loom.multiply %0, %2 : tensor<12x24xi64>\n"
     "%4 = loom.add %3, %1 : tensor<12x24xi64>\n"
     "%5 = loom.broadcast %b dims = [] : (tensor<i64>) -> tensor<12x24xi64>\n"
     "%6 = loom.random_bits %4, %5 seed = -7 stream = 3 : (tensor<12x24xi64>, tensor<12x24xi64>) "
     "-> "
     "tensor<12x24xui32>\n"
     "%7 = loom.constant dense<1610612736> : tensor<12x24xui32>\n"
     "%8 = loom.compare ge %6, %7 : (tensor<12x24xui32>, tensor<12x24xui32>) -> tensor<12x24xi1>\n"
     "%9 = loom.constant dense<0.0> : tensor<12x24xf32>\n"
     "%r = loom.select %8, %a, %9 : tensor<12x24xi1>, tensor<12x24xf32>",
     kFloats},
    {"batch_statistics",
     {"tensor<12x4x6xf32>", "tensor<4xf32>"},
     "%0 = loom.reduce sum %a dims = [0, 2] : (tensor<12x4x6xf32>) -> tensor<4xf32>\n"
     "%1 = loom.constant dense<0.0138888888888888888> : tensor<4xf32>\n"
     "%2 = loom.multiply %0, %1 : tensor<4xf32>\n"
     "%3 = loom.broadcast %2 dims = [1] : (tensor<4xf32>) -> tensor<12x4x6xf32>\n"
     "%4 = loom.subtract %a, %3 : tensor<12x4x6xf32>\n"
     "%5 = loom.multiply %4, %4 : tensor<12x4x6xf32>\n"
     "%6 = loom.reduce sum %5 dims = [0, 2] : (tensor<12x4x6xf32>) -> tensor<4xf32>\n"
     "%7 = loom.multiply %6, %1 : tensor<4xf32>\n"
     "%8 = loom.rsqrt %7 : tensor<4xf32>\n"
     "%9 = loom.multiply %8, %b : tensor<4xf32>\n"
     "%10 = loom.broadcast %9 dims = [1] : (tensor<4xf32>) -> tensor<12x4x6xf32>\n"
     "%r = loom.multiply %4, %10 : tensor<12x4x6xf32>",
     "tensor<12x4x6xf32>"},
    {"constant",
     {},
     "%r = loom.constant dense<[1.0, 2.0, 3.0, 4.0, 5.5, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0]> : "
     "tensor<12xf32>",
     "tensor<12xf32>"},
    {"constant_splat", {}, "%r = loom.constant dense<1.5> : tensor<12x24xf32>", kFloats},
    {"get_weight", {}, "%r = loom.get_weight @w : tensor<24x12xf32>", "tensor<24x12xf32>"},
    {"convolution",
     {"tensor<2x4x8x6xf32>", "tensor<6x4x3x3xf32>"},
     "%r = loom.convolution %a, %b strides = [1, 1] low = [1, 1] high = [1, 1] "
     "input_dilations = [1, 1] dilations = [1, 1] groups = 1 : (tensor<2x4x8x6xf32>, "
     "tensor<6x4x3x3xf32>) -> tensor<2x6x8x6xf32>",
     "tensor<2x6x8x6xf32>"},
    {"convolution_strided",
     {"tensor<3x3x11x9xf32>", "tensor<5x3x3x2xf32>"},
     "%r = loom.convolution %a, %b strides = [2, 3] low = [1, 0] high = [0, 1] "
     "input_dilations = [1, 1] dilations = [1, 1] groups = 1 : (tensor<3x3x11x9xf32>, "
     "tensor<5x3x3x2xf32>) -> tensor<3x5x5x3xf32>",
     "tensor<3x5x5x3xf32>"},
    {"convolution_dilated",
     {"tensor<1x2x13xf32>", "tensor<2x2x3xf32>"},
     "%r = loom.convolution %a, %b strides = [1] low = [4] high = [2] "
     "input_dilations = [1] dilations = [3] groups = 1 : (tensor<1x2x13xf32>, "
     "tensor<2x2x3xf32>) -> tensor<1x2x13xf32>",
     "tensor<1x2x13xf32>"},
    {"convolution_wide_halo",
     {"tensor<1x1x9xf32>", "tensor<2x1x7xf32>"},
     "%r = loom.convolution %a, %b strides = [1] low = [3] high = [3] "
     "input_dilations = [1] dilations = [1] groups = 1 : (tensor<1x1x9xf32>, "
     "tensor<2x1x7xf32>) -> tensor<1x2x9xf32>",
     "tensor<1x2x9xf32>"},
    {"convolution_grouped",
     {"tensor<2x6x5xf32>", "tensor<4x3x3xf32>"},
     "%r = loom.convolution %a, %b strides = [1] low = [1] high = [1] "
     "input_dilations = [1] dilations = [1] groups = 2 : (tensor<2x6x5xf32>, "
     "tensor<4x3x3xf32>) -> tensor<2x4x5xf32>",
     "tensor<2x4x5xf32>"},
    {"convolution_depthwise",
     {"tensor<2x5x7xf32>", "tensor<5x1x3xf32>"},
     "%r = loom.convolution %a, %b strides = [2] low = [1] high = [1] "
     "input_dilations = [1] dilations = [1] groups = 5 : (tensor<2x5x7xf32>, "
     "tensor<5x1x3xf32>) -> tensor<2x5x4xf32>",
     "tensor<2x5x4xf32>"},
    {"convolution_transposed",
     {"tensor<2x3x5x4xf32>", "tensor<4x3x3x2xf32>"},
     "%r = loom.convolution %a, %b strides = [1, 1] low = [1, 1] high = [2, 1] "
     "input_dilations = [2, 3] dilations = [1, 1] groups = 1 : (tensor<2x3x5x4xf32>, "
     "tensor<4x3x3x2xf32>) -> tensor<2x4x10x11xf32>",
     "tensor<2x4x10x11xf32>"},
    {"convolution_pointwise",
     {"tensor<2x4x5x6xf32>", "tensor<6x4x1x1xf32>"},
     "%r = loom.convolution %a, %b strides = [1, 1] low = [0, 0] high = [0, 0] "
     "input_dilations = [1, 1] dilations = [1, 1] groups = 1 : (tensor<2x4x5x6xf32>, "
     "tensor<6x4x1x1xf32>) -> tensor<2x6x5x6xf32>",
     "tensor<2x6x5x6xf32>"},
    {"pad",
     {"tensor<7x12xf32>"},
     "%r = loom.pad %a value = 2.5 : f32 low = [1, 0] high = [3, 0] interior = [0, 0] : "
     "(tensor<7x12xf32>) -> tensor<11x12xf32>",
     "tensor<11x12xf32>"},
    {"pad_far",
     {"tensor<3x5xf32>"},
     "%r = loom.pad %a value = 0.0 : f32 low = [9, 0] high = [0, 11] interior = [0, 0] : "
     "(tensor<3x5xf32>) -> tensor<12x16xf32>",
     "tensor<12x16xf32>"},
    {"pad_interior",
     {"tensor<5x6xf32>"},
     "%r = loom.pad %a value = 1.5 : f32 low = [1, 2] high = [0, 3] interior = [2, 1] : "
     "(tensor<5x6xf32>) -> tensor<14x16xf32>",
     "tensor<14x16xf32>"},
    {"window",
     {"tensor<4x9xf32>"},
     "%r = loom.window %a dims = [1] sizes = [3] strides = [2] dilations = [1] : "
     "(tensor<4x9xf32>) -> tensor<4x4x3xf32>",
     "tensor<4x4x3xf32>"},
    {"window_two",
     {"tensor<8x3x7xf32>"},
     "%r = loom.window %a dims = [0, 2] sizes = [2, 3] strides = [1, 2] dilations = [3, 1] : "
     "(tensor<8x3x7xf32>) -> tensor<5x3x3x2x3xf32>",
     "tensor<5x3x3x2x3xf32>"},
    {"reduce_window_max",
     {"tensor<2x3x8x7xf32>"},
     "%r = loom.reduce_window max %a dims = [2, 3] sizes = [3, 2] strides = [2, 2] low = [1, 0] "
     "high = [1, 1] dilations = [1, 1] : "
     "(tensor<2x3x8x7xf32>) -> tensor<2x3x4x4xf32>",
     "tensor<2x3x4x4xf32>"},
    {"reduce_window_sum",
     {"tensor<3x10xf32>"},
     "%r = loom.reduce_window sum %a dims = [1] sizes = [4] strides = [1] low = [3] "
     "high = [3] dilations = [2] : "
     "(tensor<3x10xf32>) -> tensor<3x10xf32>",
     "tensor<3x10xf32>"},
    {"reduce_window_min",
     {"tensor<11x4xf32>"},
     "%r = loom.reduce_window min %a dims = [0] sizes = [5] strides = [5] low = [2] "
     "high = [2] dilations = [1] : "
     "(tensor<11x4xf32>) -> tensor<3x4xf32>",
     "tensor<3x4xf32>"},
    // Partial sums that linear operations may keep, and others must not.
    {"sums_of_products",
     {kFloats, "tensor<24x6xf32>"},
     "%0 = loom.dot_general %a, %b batch = [] x [] contract = [1] x [0] : (tensor<12x24xf32>, "
     "tensor<24x6xf32>) -> tensor<12x6xf32>\n"
     "%1 = loom.negate %0 : tensor<12x6xf32>\n"
     "%2 = loom.dot_general %a, %b batch = [] x [] contract = [1] x [0] : (tensor<12x24xf32>, "
     "tensor<24x6xf32>) -> tensor<12x6xf32>\n"
     "%3 = loom.add %1, %2 : tensor<12x6xf32>\n"
     "%4 = loom.subtract %3, %0 : tensor<12x6xf32>\n"
     "%5 = loom.transpose %4 [1, 0] : (tensor<12x6xf32>) -> tensor<6x12xf32>\n"
     "%6 = loom.reshape %5 : (tensor<6x12xf32>) -> tensor<6x2x6xf32>\n"
     "%r = loom.tanh %6 : tensor<6x2x6xf32>",
     "tensor<6x2x6xf32>"},
    {"bias_after_partial_sum",
     {kFloats, "tensor<24x6xf32>", "tensor<6xf32>"},
     "%0 = loom.dot_general %a, %b batch = [] x [] contract = [1] x [0] : (tensor<12x24xf32>, "
     "tensor<24x6xf32>) -> tensor<12x6xf32>\n"
     "%1 = loom.broadcast %c dims = [1] : (tensor<6xf32>) -> tensor<12x6xf32>\n"
     "%r = loom.add %0, %1 : tensor<12x6xf32>",
     "tensor<12x6xf32>"},
    {"used_twice",
     {kFloats, "tensor<24x12xf32>"},
     "%0 = loom.dot_general %a, %b batch = [] x [] contract = [1] x [0] : (tensor<12x24xf32>, "
     "tensor<24x12xf32>) -> tensor<12x12xf32>\n"
     "%1 = loom.exp %0 : tensor<12x12xf32>\n"
     "%2 = loom.transpose %0 [1, 0] : (tensor<12x12xf32>) -> tensor<12x12xf32>\n"
     "%r = loom.add %1, %2 : tensor<12x12xf32>",
     "tensor<12x12xf32>"},
    {"two_sums",
     {kFloats},
     "%0 = loom.reduce sum %a dims = [1] : (tensor<12x24xf32>) -> tensor<12xf32>\n"
     "%1 = loom.broadcast %0 dims = [0] : (tensor<12xf32>) -> tensor<12x24xf32>\n"
     "%2 = loom.subtract %a, %1 : tensor<12x24xf32>\n"
     "%3 = loom.reduce max %2 dims = [1] : (tensor<12x24xf32>) -> tensor<12xf32>\n"
     "%4 = loom.negate %3 : tensor<12xf32>\n"
     "%r = loom.reduce sum %4 dims = [0] : (tensor<12xf32>) -> tensor<f32>",
     "tensor<f32>"},
    {"convolution_pointwise_strided",
     {"tensor<4x6x5x6xf32>", "tensor<8x6x1x1xf32>"},
     "%r = loom.convolution %a, %b strides = [2, 2] low = [0, 0] high = [0, 0] input_dilations = "
     "[1, 1] dilations = [1, 1] groups = 1 : (tensor<4x6x5x6xf32>, tensor<8x6x1x1xf32>) -> "
     "tensor<4x8x3x3xf32>",
     "tensor<4x8x3x3xf32>"},
    {"convolution_of_channels_twice",
     {"tensor<4x6x6x6xf32>", "tensor<12x1x3x3xf32>"},
     "%r = loom.convolution %a, %b strides = [2, 1] low = [1, 1] high = [1, 1] input_dilations = "
     "[1, 1] dilations = [1, 1] groups = 6 : (tensor<4x6x6x6xf32>, tensor<12x1x3x3xf32>) -> "
     "tensor<4x12x3x6xf32>",
     "tensor<4x12x3x6xf32>"},
    {"convolution_line",
     {"tensor<4x6x12xf32>", "tensor<8x6x5xf32>"},
     "%r = loom.convolution %a, %b strides = [1] low = [2] high = [2] input_dilations = [1] "
     "dilations = [1] groups = 1 : (tensor<4x6x12xf32>, tensor<8x6x5xf32>) -> tensor<4x8x12xf32>",
     "tensor<4x8x12xf32>"},
    {"residual_block",
     {"tensor<4x6x6x6xf32>", "tensor<12x6x3x3xf32>", "tensor<6x12x1x1xf32>"},
     "%0 = loom.convolution %a, %b strides = [1, 1] low = [1, 1] high = [1, 1] input_dilations = "
     "[1, 1] dilations = [1, 1] groups = 1 : (tensor<4x6x6x6xf32>, tensor<12x6x3x3xf32>) -> "
     "tensor<4x12x6x6xf32>\n"
     "%1 = loom.tanh %0 : tensor<4x12x6x6xf32>\n"
     "%2 = loom.convolution %1, %c strides = [1, 1] low = [0, 0] high = [0, 0] input_dilations = "
     "[1, 1] dilations = [1, 1] groups = 1 : (tensor<4x12x6x6xf32>, tensor<6x12x1x1xf32>) -> "
     "tensor<4x6x6x6xf32>\n"
     "%r = loom.add %2, %a : tensor<4x6x6x6xf32>",
     "tensor<4x6x6x6xf32>"},
    {"embedding_of_weights",
     {"index tensor<4x6xi64>"},
     "%0 = loom.get_weight @w : tensor<24x12xf32>\n"
     "%1 = loom.gather %0, %a dim = 0 : (tensor<24x12xf32>, tensor<4x6xi64>) -> "
     "tensor<4x6x12xf32>\n"
     "%2 = loom.gather %0, %a dim = 0 : (tensor<24x12xf32>, tensor<4x6xi64>) -> "
     "tensor<4x6x12xf32>\n"
     "%3 = loom.add %1, %2 : tensor<4x6x12xf32>\n"
     "%r = loom.gelu erf %3 : tensor<4x6x12xf32>",
     "tensor<4x6x12xf32>"},
});

/// A file's SHA-256 in hexadecimal, as plans record it; empty if it cannot be read.
inline std::string getDigest(const std::filesystem::path &file) {
  auto buffer = llvm::MemoryBuffer::getFile(file.string());
  if (!buffer)
    return "";
  auto hash = llvm::SHA256::hash(llvm::arrayRefFromStringRef((*buffer)->getBuffer()));
  return llvm::toHex(hash, /*LowerCase=*/true);
}

/// A module of one function `main` with arguments a, b, ... and result `out`.
inline std::string makeText(const Case &test) {
  std::string text = "loom.weight @w : tensor<24x12xf32> from <\"\", offset = 0, bytes = "
                     "1152>\nfunc.func @main(";
  for (auto [i, type] : llvm::enumerate(test.arguments)) {
    std::string name(1, 'a' + i);
    llvm::StringRef plain(type);
    plain.consume_front("index ");
    text += (i ? ", %" : "%") + name + ": " + plain.str() + " {loom.name = \"" + name + "\"}";
  }
  return text + ") -> (" + test.result +
         " {loom.name = \"out\"}) attributes {loom.entry = \"main\", loom.dims = {}} {\n" +
         test.body + "\n return %r : " + test.result + "\n}";
}

/// Small values; indices below `indexLimit`.
inline NamedTensors makeCaseInputs(const Case &test, mlir::ModuleOp module,
                                   int64_t indexLimit = 12) {
  NamedTensors inputs;
  mlir::func::FuncOp function = *module.getOps<mlir::func::FuncOp>().begin();
  for (auto [i, type] : llvm::enumerate(function.getArgumentTypes())) {
    auto tensor = mlir::cast<mlir::RankedTensorType>(type);
    loom::ElementKind kind = *loom::getElementKind(tensor.getElementType());
    std::vector<double> values = makeUniform(i, tensor.getNumElements());
    bool index = llvm::StringRef(test.arguments[i]).starts_with("index");
    for (double &value : values)
      value = loom::isFloatKind(kind)
                  ? 4 * value - 2
                  : std::floor(value * (index                             ? indexLimit
                                        : kind == loom::ElementKind::Bool ? 2
                                                                          : 99));
    inputs[std::string(1, 'a' + i)] =
        loom::HostTensor::fromDoubles(kind, tensor.getShape(), values);
  }
  return inputs;
}

} // namespace gridloom::testing

#endif // GRIDLOOM_TEST_UNIT_EQUIVALENCECASES_H
