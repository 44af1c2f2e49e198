//===- CodegenElementwiseTest.cpp - one element in, one out ---------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "test/unit/CodegenTesting.h"
#include "test/unit/UnaryFunctions.h"

using namespace gridloom;
using namespace gridloom::testing;

namespace {

std::string tensor(const std::string &shape, const std::string &element) {
  return "tensor<" + (shape.empty() ? "" : shape + "x") + element + ">";
}

std::string unary(const std::string &op, const std::string &type) {
  std::string name = "k_";
  for (char c : op)
    name += std::isalnum(c) ? c : '_';
  return kernelText("%x: " + type,
                    "  %0 = loom." + op + " %x : " + type + "\n  loom.yield %0 : " + type, name);
}

std::string binary(const std::string &op, const std::string &type) {
  return kernelText("%x: " + type + ", %y: " + type,
                    "  %0 = loom." + op + " %x, %y : " + type + "\n  loom.yield %0 : " + type,
                    "k_" + op);
}

const char *const kShapes[] = {"1", "7", "16", "17", "384", "1000", "3x5", "1x1", "5000", "2x3x33"};

class Shapes : public ::testing::TestWithParam<const char *> {};
INSTANTIATE_TEST_SUITE_P(, Shapes, ::testing::ValuesIn(kShapes));

} // namespace

TEST_P(Shapes, UnaryFloat) {
  std::string type = tensor(GetParam(), "f32"), text;
  for (const char *op : {"negate", "abs", "exp", "tanh", "erf", "logistic", "floor", "ceil", "sign",
                         "gelu erf", "gelu tanh"})
    text += unary(op, type);
  checkKernels(text);
}

TEST_P(Shapes, UnaryPositiveFloat) {
  std::string type = tensor(GetParam(), "f32"), text;
  for (const char *op : {"log", "sqrt", "rsqrt"})
    text += unary(op, type);
  RunOptions options;
  options.low = 0.01;
  options.high = 30;
  checkKernels(text, options);
}

TEST_P(Shapes, BinaryFloat) {
  std::string type = tensor(GetParam(), "f32"), text;
  for (const char *op : {"add", "subtract", "multiply", "maximum", "minimum"})
    text += binary(op, type);
  checkKernels(text);
  RunOptions positive;
  positive.low = 0.5;
  positive.high = 3;
  checkKernels(binary("divide", type) + binary("power", type), positive);
}

TEST_P(Shapes, Integers) {
  std::vector<const char *> elements{"i64", "i32", "i8"};
  if (GetParam() == std::string("17"))
    elements.insert(elements.end(), {"i16", "ui8", "ui16", "ui32", "ui64"});
  for (const char *element : elements) {
    std::string type = tensor(GetParam(), element), text;
    for (const char *op : {"negate", "abs", "sign", "not"})
      text += unary(op, type);
    for (const char *op : {"add", "subtract", "multiply", "maximum", "minimum", "and", "or", "xor",
                           "remainder", "shift_left", "shift_right_logical"})
      text += binary(op, type);
    checkKernels(text);
  }
}

TEST_P(Shapes, Booleans) {
  std::string type = tensor(GetParam(), "i1");
  checkKernels(unary("not", type) + binary("and", type) + binary("or", type));
}

TEST_P(Shapes, CompareAndSelect) {
  for (std::string element : {"f32", "i64", "i32", "f64", "ui8", "ui64"}) {
    std::string type = tensor(GetParam(), element), mask = tensor(GetParam(), "i1"), text;
    for (std::string direction : {"eq", "ne", "lt", "le", "gt", "ge"})
      text += kernelText("%x: " + type + ", %y: " + type,
                         "  %0 = loom.compare " + direction + " %x, %y : (" + type + ", " + type +
                             ") -> " + mask + "\n  %1 = loom.select %0, %x, %y : " + mask + ", " +
                             type + "\n  loom.yield %0, %1 : " + mask + ", " + type,
                         direction);
    checkKernels(text);
  }
}

TEST_P(Shapes, Convert) {
  std::vector<std::string> elements{"f32", "f64", "f16", "bf16", "i64", "i32", "i8", "i1"};
  if (GetParam() == std::string("17"))
    elements.insert(elements.end(), {"ui8", "ui16", "ui32", "ui64"});
  std::string text;
  for (const std::string &from : elements)
    for (const std::string &to : elements)
      text +=
          kernelText("%x: " + tensor(GetParam(), from),
                     "  %0 = loom.convert %x : (" + tensor(GetParam(), from) + ") -> " +
                         tensor(GetParam(), to) + "\n  loom.yield %0 : " + tensor(GetParam(), to),
                     from + "_to_" + to);
  checkKernels(text);
}

TEST(CodegenElementwise, OtherFloats) {
  for (auto [element, tolerance] :
       {std::pair<std::string, double>{"f64", 1e-12}, {"f16", 2e-3}, {"bf16", 1.6e-2}}) {
    std::string type = tensor("37", element), text;
    for (const char *op : {"negate", "abs", "floor", "ceil", "sign", "gelu erf", "gelu tanh"})
      text += unary(op, type);
    for (const char *op : {"add", "subtract", "multiply", "maximum", "minimum"})
      text += binary(op, type);
    RunOptions options;
    options.tolerance = tolerance;
    checkKernels(text, options);
    options.low = 0.5;
    checkKernels(binary("divide", type) + binary("power", type), options);
  }
}

TEST(CodegenElementwise, SpecialFloats) {
  double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  std::vector<double> values{0.0,  -0.0, inf,   -inf,  nan,   1e-30, -1e-30, 88,
                             -87,  -100, -3e38, 3e38,  1,     -1,    0.5,    2.5,
                             -2.5, 10,   -10,   1e-8,  -1e-8, 20,    -20,    -88.5,
                             3.9,  -3.9, 0.999, 1.001, 1e10,  -1e10, 5,      -5};
  RunOptions options;
  int64_t n = values.size();
  options.inputs[0] = HostTensor::fromDoubles(ElementKind::F32, {n}, values);
  std::string type = tensor(std::to_string(n), "f32"), text;
  for (const char *op :
       {"negate", "abs", "tanh", "erf", "floor", "ceil", "sign", "exp", "logistic"})
    text += unary(op, type);
  checkKernels(text, options);
  std::reverse(values.begin(), values.end());
  options.inputs[1] = HostTensor::fromDoubles(ElementKind::F32, {n}, values);
  checkKernels(binary("maximum", type) + binary("minimum", type) + binary("add", type), options);
}

TEST(CodegenElementwise, Accuracy) {
  // The fast polynomials over the range activations have.
  std::vector<double> values(4096);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = -10 + 20.0 * static_cast<double>(i) / static_cast<double>(values.size());
  RunOptions options;
  options.inputs[0] = HostTensor::fromDoubles(ElementKind::F32, {4096}, values);
  options.tolerance = 1.5e-6;
  std::string type = "tensor<4096xf32>";
  checkKernels(unary("exp", type) + unary("tanh", type) + unary("erf", type) +
                   unary("logistic", type) + unary("gelu erf", type) + unary("gelu tanh", type),
               options);
}

TEST(CodegenElementwise, ConstantPowers) {
  std::string text, type = "tensor<19xf32>";
  for (std::string exponent : {"1.0", "2.0", "3.0", "0.5", "-1.0", "-0.5", "2.5"})
    text += kernelText("%x: " + type,
                       "  %c = loom.constant dense<" + exponent + "> : " + type +
                           "\n  %0 = loom.power %x, %c : " + type + "\n  loom.yield %0 : " + type,
                       "p" + std::to_string(text.size()));
  RunOptions options;
  options.low = 0.5;
  checkKernels(text, options);
}

TEST(CodegenElementwise, RootsOfExtremes) {
  std::string text, type = "tensor<6xf32>";
  for (std::string exponent : {"0.5", "-0.5"})
    text += kernelText("%x: " + type,
                       "  %c = loom.constant dense<" + exponent + "> : " + type +
                           "\n  %0 = loom.power %x, %c : " + type +
                           "\n  %1 = loom.constant dense<1.0> : " + type +
                           "\n  %2 = loom.divide %1, %0 : " + type + "\n  loom.yield %2 : " + type,
                       "p" + std::to_string(text.size()));
  double inf = std::numeric_limits<double>::infinity();
  RunOptions options;
  options.inputs[0] = HostTensor::fromDoubles(ElementKind::F32, {6}, {-inf, -0.0, 0, inf, 4, -1});
  checkKernels(text, options);
}

TEST(CodegenElementwise, IntegerPowers) {
  std::vector<int64_t> bases, exponents, unsignedExponents;
  for (int64_t base : {0, 1, -1, 2, 3, -5})
    for (int64_t exponent : {-128, -3, -1, 0, 1, 2, 7, 127}) {
      bases.push_back(base);
      exponents.push_back(exponent);
      unsignedExponents.push_back(exponent & 255);
    }
  auto n = static_cast<int64_t>(bases.size());
  std::string size = std::to_string(n);
  RunOptions options;
  options.inputs[0] = HostTensor::fromInts(ElementKind::I8, {n}, bases);
  options.inputs[1] = HostTensor::fromInts(ElementKind::I8, {n}, exponents);
  checkKernels(binary("power", tensor(size, "i8")), options);
  for (int64_t &base : bases)
    base &= 255;
  options.inputs[0] = HostTensor::fromInts(ElementKind::U8, {n}, bases);
  options.inputs[1] = HostTensor::fromInts(ElementKind::U8, {n}, unsignedExponents);
  checkKernels(binary("power", tensor(size, "ui8")), options);
  // The mask of such exponents is a number that f64 does not hold.
  options.inputs[0] = HostTensor::fromInts(ElementKind::U64, {4}, {3, 3, 5, 2});
  options.inputs[1] = HostTensor::fromInts(
      ElementKind::U64, {4}, {(1LL << 62) + 1, (1LL << 62) + 5, INT64_MIN + 3, INT64_MIN + 3});
  checkKernels(binary("power", tensor("4", "ui64")), options);
}

TEST(CodegenElementwise, IntegerDivisionDoesNotTrap) {
  RunOptions options;
  options.inputs[0] = HostTensor::fromInts(ElementKind::I32, {4}, {7, -7, INT32_MIN, 9});
  options.inputs[1] = HostTensor::fromInts(ElementKind::I32, {4}, {2, 2, -1, -4});
  checkKernels(binary("divide", "tensor<4xi32>") + binary("remainder", "tensor<4xi32>"), options);

  mlir::OwningOpRef<mlir::ModuleOp> module = parse(binary("divide", "tensor<4xi32>"));
  auto compiled = codegen::compileCpuKernels(*module);
  ASSERT_TRUE(mlir::succeeded(compiled));
  LoadedKernels loaded(compiled->sharedObject);
  int32_t x[4] = {1, 2, 3, 4}, zero[4] = {}, y[4] = {};
  void *pointers[] = {x, zero, y};
  loaded.find("k_divide")(pointers, 0, compiled->kernels[0].rows);
}

TEST(CodegenElementwise, UnaryFunctions) {
  for (auto [element, tolerance] : {std::pair<std::string, double>{"f32", 2e-6},
                                    {"f64", 1e-12},
                                    {"f16", 2e-3},
                                    {"bf16", 1.6e-2}})
    for (const UnaryFunction &function : kUnaryFunctions) {
      RunOptions options;
      options.tolerance = function.factor * tolerance;
      options.low = function.low;
      options.high = function.high;
      checkKernels(unary(function.name, tensor("37", element)), options);
    }
}

TEST(CodegenElementwise, EqualProductsCancel) {
  RunOptions options;
  options.isExact = true;
  checkKernels(kernelText("%x: tensor<100xf32>, %y: tensor<100xf32>",
                          "  %0 = loom.multiply %x, %y : tensor<100xf32>\n"
                          "  %1 = loom.multiply %x, %y : tensor<100xf32>\n"
                          "  %2 = loom.subtract %0, %1 : tensor<100xf32>\n"
                          "  loom.yield %2 : tensor<100xf32>"),
               options);
}

TEST(CodegenElementwise, ErfIsNearlyExact) {
  constexpr int64_t kCount = 100001;
  std::vector<double> values;
  for (int64_t i = 0; i < kCount; ++i)
    values.push_back(double(i - kCount / 2) / kCount * 10);
  for (double value : {0.0, -0.0, 1e-30, 1e-40, 3.92, 3.9200001, 4.0, 1e30})
    values.insert(values.end(), {value, -value});
  double infinity = std::numeric_limits<double>::infinity();
  values.insert(values.end(), {infinity, -infinity, std::nan("")});
  auto count = int64_t(values.size());
  HostTensor input = HostTensor::fromDoubles(ElementKind::F32, {count}, values);
  auto compiled =
      codegen::compileCpuKernels(*parse(unary("erf", "tensor<" + std::to_string(count) + "xf32>")));
  ASSERT_TRUE(mlir::succeeded(compiled));
  std::vector<float> out(static_cast<size_t>(count));
  void *pointers[] = {const_cast<char *>(input.getData()), out.data()};
  LoadedKernels loaded(compiled->sharedObject);
  loaded.find("k_erf")(pointers, 0, compiled->kernels[0].rows);
  std::vector<double> rounded = input.toDoubles();
  for (size_t i = 0; i < out.size(); ++i) {
    double expected = std::erf(rounded[i]);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(out[i]));
      continue;
    }
    // Below the smallest normal number steps are as large.
    ASSERT_LE(std::abs(out[i] - expected), 4e-7 * std::abs(expected) + 1e-45) << rounded[i];
    ASSERT_LE(std::abs(out[i]), 1.0F) << rounded[i];
    ASSERT_EQ(std::signbit(out[i]), std::signbit(rounded[i])) << rounded[i];
  }
}

TEST(CodegenElementwise, RoundingAndRemainder) {
  for (auto [element, tolerance] : {std::pair<std::string, double>{"f32", 2e-5},
                                    {"f64", 1e-11},
                                    {"f16", 2e-2},
                                    {"bf16", 1.6e-1}}) {
    std::string type = tensor("37", element);
    RunOptions options;
    options.tolerance = tolerance;
    options.low = 1.01;
    options.high = 30;
    checkKernels(binary("remainder", type), options);
    options.tolerance = 0;
    options.low = -9;
    options.high = 9;
    checkKernels(unary("round_nearest_even", type), options);
  }
}

TEST(CodegenElementwise, AnglesOfManyTurns) {
  std::vector<double> values(4096);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = (static_cast<double>(i) - 2048) * 16.37;
  RunOptions options;
  options.inputs[0] = HostTensor::fromDoubles(ElementKind::F32, {4096}, values);
  std::string type = "tensor<4096xf32>";
  checkKernels(unary("sine", type) + unary("cosine", type), options);
  // Infinity and NaN have no angle.
  values = {INFINITY, -INFINITY, std::nan(""), 0.0, -0.0, 1e-30, 1e6, 3e8};
  options.inputs[0] = HostTensor::fromDoubles(ElementKind::F32, {8}, values);
  checkKernels(unary("sine", "tensor<8xf32>") + unary("cosine", "tensor<8xf32>"), options);
}

TEST(CodegenElementwise, UnsignedNumbersAboveTheSignedOnes) {
  for (auto [kind, element, most] : {std::tuple{ElementKind::U8, "ui8", int64_t(255)},
                                     {ElementKind::U16, "ui16", int64_t(65535)},
                                     {ElementKind::U32, "ui32", int64_t(4294967295)},
                                     {ElementKind::U64, "ui64", int64_t(-1)}}) {
    RunOptions options;
    options.tolerance = 0;
    options.inputs[0] = HostTensor::fromInts(kind, {6}, {most, 1, most - 4, most / 2, 7, most});
    options.inputs[1] = HostTensor::fromInts(kind, {6}, {2, most, most - 5, 3, 70, most});
    std::string type = tensor("6", element), text;
    for (const char *op : {"divide", "remainder", "maximum", "minimum", "shift_left",
                           "shift_right_logical", "add", "multiply"})
      text += binary(op, type);
    text += kernelText(
        "%x: " + type + ", %y: " + type,
        "  %0 = loom.compare lt %x, %y : (" + type + ", " + type +
            ") -> tensor<6xi1>\n  %1 = loom.convert %x : (" + type +
            ") -> tensor<6xf64>\n  %2 = loom.reduce max %x dims = [0] : (" + type + ") -> tensor<" +
            element + ">\n  %3 = loom.reduce min %y dims = [0] : (" + type + ") -> tensor<" +
            element + ">\n  loom.yield %0, %1, %2, %3 : tensor<6xi1>, tensor<6xf64>, tensor<" +
            element + ">, tensor<" + element + ">",
        "others");
    checkKernels(text, options);
    checkKernels(unary("abs", type) + unary("sign", type) + unary("not", type), options);
  }
}

TEST(CodegenElementwise, RandomBits) {
  int64_t least = std::numeric_limits<int64_t>::min(), most = std::numeric_limits<int64_t>::max();
  std::vector<int64_t> indices{0, 1, 2, 3, 4, most, least, -1}, iterations{0, 1, most, least, -1};
  while (indices.size() < 37)
    indices.push_back(static_cast<int64_t>(
        static_cast<uint64_t>(indices.back()) * 6364136223846793005U + 1442695040888963407U));
  while (iterations.size() < 37)
    iterations.push_back(static_cast<int64_t>(iterations.size()));
  RunOptions options;
  options.tolerance = 0;
  options.inputs[0] = HostTensor::fromInts(ElementKind::I64, {37}, indices);
  options.inputs[1] = HostTensor::fromInts(ElementKind::I64, {37}, iterations);
  std::string type = tensor("37", "i64"), text;
  for (const char *key : {"seed = 0 stream = 0", "seed = -1 stream = 4294967295",
                          "seed = 81985529216486895 stream = 4000000000"})
    text += kernelText("%x: " + type + ", %y: " + type,
                       std::string("  %0 = loom.random_bits %x, %y ") + key + " : (" + type + ", " +
                           type + ") -> tensor<37xui32>\n  %1 = loom.random_bits %y " + key +
                           " : (" + type +
                           ") -> tensor<37xui32>\n  loom.yield %0, %1 : tensor<37xui32>, "
                           "tensor<37xui32>",
                       "random" + std::to_string(text.size()));
  checkKernels(text, options);
}

TEST(CodegenElementwise, BitcastConvert) {
  RunOptions options;
  options.tolerance = 0;
  std::string text;
  for (auto [from, to] : {std::pair<std::string, std::string>{"f32", "i32"},
                          {"f32", "ui32"},
                          {"f64", "i64"},
                          {"i16", "ui16"},
                          {"f16", "i16"},
                          {"bf16", "f16"}})
    text += kernelText("%x: " + tensor("33", from),
                       "  %0 = loom.bitcast_convert %x : (" + tensor("33", from) + ") -> " +
                           tensor("33", to) + "\n  loom.yield %0 : " + tensor("33", to),
                       from + "_" + to);
  checkKernels(text, options);
}

TEST(CodegenElementwise, FusedChainMayRunInPlace) {
  auto compiled = checkKernels(
      kernelText("%x: tensor<8x48xf32>, %b: tensor<48xf32>",
                 "  %0 = loom.broadcast %b dims = [1] : (tensor<48xf32>) -> tensor<8x48xf32>\n"
                 "  %1 = loom.add %x, %0 : tensor<8x48xf32>\n"
                 "  %2 = loom.gelu erf %1 : tensor<8x48xf32>\n"
                 "  loom.yield %2 : tensor<8x48xf32>"));
  ASSERT_EQ(compiled.kernels.size(), 1u);
  EXPECT_EQ(compiled.kernels[0].skeleton, plan::Skeleton::Elementwise);
  EXPECT_EQ(compiled.kernels[0].rows, 8);
  ASSERT_EQ(compiled.kernels[0].inPlace.size(), 1u);
  EXPECT_EQ(compiled.kernels[0].inPlace[0], std::make_pair(0u, 0u));
}

TEST(CodegenElementwise, EitherInputMayBeWrittenOver) {
  auto compiled =
      checkKernels(kernelText("%x: tensor<40xf32>, %y: tensor<40xi32>, %z: tensor<40xf64>",
                              "  %0 = loom.convert %y : (tensor<40xi32>) -> tensor<40xf32>\n"
                              "  %1 = loom.convert %z : (tensor<40xf64>) -> tensor<40xf32>\n"
                              "  %2 = loom.add %x, %0 : tensor<40xf32>\n"
                              "  %3 = loom.add %2, %1 : tensor<40xf32>\n"
                              "  loom.yield %3 : tensor<40xf32>"));
  std::vector<std::pair<unsigned, unsigned>> pairs{{0, 0}, {0, 1}};
  EXPECT_EQ(compiled.kernels[0].inPlace, pairs);
}

/// Both outputs read both inputs, and each takes the memory of one.
TEST(CodegenElementwise, SeveralOutputsMayBeWrittenOverWhatAllRead) {
  auto compiled = checkKernels(kernelText("%x: tensor<3x41xf32>, %y: tensor<3x41xf32>",
                                          "  %0 = loom.add %x, %y : tensor<3x41xf32>\n"
                                          "  %1 = loom.subtract %x, %y : tensor<3x41xf32>\n"
                                          "  loom.yield %0, %1 : tensor<3x41xf32>, "
                                          "tensor<3x41xf32>"));
  std::vector<std::pair<unsigned, unsigned>> pairs{{0, 0}, {0, 1}, {1, 0}, {1, 1}};
  EXPECT_EQ(compiled.kernels[0].inPlace, pairs);
}

TEST(CodegenElementwise, EqualModulesGiveEqualBytes) {
  std::string text = unary("gelu erf", "tensor<100x30xf32>") +
                     kernelText("%x: tensor<9x65xf32>",
                                "  %0 = loom.softmax %x dim = 1 : tensor<9x65xf32>\n"
                                "  loom.yield %0 : tensor<9x65xf32>",
                                "softmax");
  auto first = codegen::compileCpuKernels(*parse(text));
  auto second = codegen::compileCpuKernels(*parse(text));
  ASSERT_TRUE(mlir::succeeded(first) && mlir::succeeded(second));
  EXPECT_EQ(first->sharedObject, second->sharedObject);
}

TEST(CodegenElementwise, ErrorsNameTheNodes) {
  std::string message;
  mlir::ScopedDiagnosticHandler handler(&getContext(), [&](mlir::Diagnostic &diagnostic) {
    message += diagnostic.str();
    return mlir::success();
  });
  std::string text =
      "plan.kernel @k {\n^bb0(%x: tensor<4x4xf32>):\n"
      "  %y = loom.add %x, %x : tensor<4x4xf32>\n"
      "  %0 = loom.cumulative sum %y dim = 1 : tensor<4x4xf32> loc(\"/layer/CumSum\")\n"
      "  loom.yield %0 : tensor<4x4xf32>\n}\n";
  EXPECT_TRUE(mlir::failed(codegen::compileCpuKernels(*parse(text))));
  EXPECT_EQ(message,
            "kernel k (ONNX nodes /layer/CumSum): loom.cumulative has no kernel code; keep it out "
            "of kernels");
}

TEST(CodegenElementwise, UnknownProcessor) {
  std::string message;
  mlir::ScopedDiagnosticHandler handler(&getContext(), [&](mlir::Diagnostic &diagnostic) {
    message += diagnostic.str();
    return mlir::success();
  });
  codegen::CpuOptions options;
  options.arch = "pentium-of-tomorrow";
  EXPECT_TRUE(
      mlir::failed(codegen::compileCpuKernels(*parse(unary("exp", "tensor<4xf32>")), options)));
  EXPECT_EQ(message,
            "unknown CPU 'pentium-of-tomorrow'; use x86-64, x86-64-v2, x86-64-v3 or x86-64-v4");
}
