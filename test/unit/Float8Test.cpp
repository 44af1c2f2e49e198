//===- Float8Test.cpp - conversions of 8-bit floats -----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Kernels and the runtime convert by bit operations, the reference by LLVM's APFloat. Every code is
// widened; every f16 and bf16 is narrowed, and so are the f32 and f64 around every rounding
// boundary and range limit.
//
//===----------------------------------------------------------------------===//
#include "support/NarrowFloat.h"
#include "test/unit/CodegenTesting.h"

#include "mlir/AsmParser/AsmParser.h"

#include <bit>
#include <cstring>

using namespace gridloom;
using namespace gridloom::testing;

namespace {

constexpr const char *kTypes[] = {"f8E4M3FN", "f8E5M2", "f8E4M3FNUZ", "f8E5M2FNUZ"};

ElementKind kindOf(const char *type) {
  return *loom::getElementKind(mlir::parseType(type, &getContext()));
}

HostTensor allCodes(ElementKind kind) {
  HostTensor codes(kind, {256});
  for (unsigned code = 0; code < 256; ++code)
    codes.getMutableValues<uint8_t>()[code] = static_cast<uint8_t>(code);
  return codes;
}

HostTensor allOf16Bits(ElementKind kind) {
  HostTensor values(kind, {65536});
  for (unsigned bits = 0; bits < 65536; ++bits)
    values.getMutableValues<uint16_t>()[bits] = static_cast<uint16_t>(bits);
  return values;
}

/// Each code's value and the midpoints between neighbours, each with its next smaller and larger
/// number; numbers far from any code; all with both signs.
template <typename T> HostTensor edges(ElementKind of, ElementKind kind) {
  std::vector<T> values = {0,
                           std::numeric_limits<T>::denorm_min(),
                           std::numeric_limits<T>::min(),
                           std::numeric_limits<T>::max(),
                           std::numeric_limits<T>::infinity(),
                           std::numeric_limits<T>::quiet_NaN(),
                           T(1e5),
                           T(1e-9)};
  std::vector<double> steps = allCodes(of).toDoubles();
  llvm::erase_if(steps, [](double x) { return !std::isfinite(x) || std::signbit(x); });
  llvm::sort(steps);
  steps.push_back(2 * steps.back() - steps[steps.size() - 2]); // the first out of range
  for (size_t i = 0; i + 1 < steps.size(); ++i)
    for (double x : {steps[i], (steps[i] + steps[i + 1]) / 2, steps[i + 1]})
      for (T near : {std::nextafter(T(x), T(0)), T(x), std::nextafter(T(x), T(1e30))})
        values.push_back(near);
  for (size_t i = 0, count = values.size(); i < count; ++i)
    values.push_back(-values[i]);
  HostTensor result(kind, {static_cast<int64_t>(values.size())});
  llvm::copy(values, result.getMutableValues<T>().begin());
  return result;
}

std::vector<HostTensor> allSources(ElementKind of) {
  return {allOf16Bits(ElementKind::F16), allOf16Bits(ElementKind::BF16),
          edges<float>(of, ElementKind::F32), edges<double>(of, ElementKind::F64)};
}

std::string typeName(int64_t size, llvm::StringRef element) {
  return "tensor<" + std::to_string(size) + "x" + element.str() + ">";
}

std::string convertText(int64_t size, llvm::StringRef from, llvm::StringRef to, bool saturate) {
  std::string source = typeName(size, from), target = typeName(size, to);
  return kernelText("%x: " + source, std::string("  %0 = loom.convert ") +
                                         (saturate ? "" : "unsaturated ") + "%x : (" + source +
                                         ") -> " + target + "\n  loom.yield %0 : " + target);
}

template <typename Format> void compareRuntime(const char *type) {
  ElementKind kind = kindOf(type);
  HostTensor codes = allCodes(kind);
  for (auto [code, value] : llvm::enumerate(codes.toDoubles())) {
    float loaded = Format::load(static_cast<uint8_t>(code));
    EXPECT_TRUE(std::isnan(value) ? std::isnan(loaded)
                                  : loaded == value && std::signbit(loaded) == std::signbit(value))
        << type << " " << code << " is " << loaded << ", not " << value;
  }
  for (const HostTensor &source : allSources(kind)) {
    if (source.getKind() == ElementKind::F64)
      continue;
    std::vector<double> values = source.toDoubles();
    HostTensor expected = HostTensor::fromDoubles(kind, source.getShape(), values);
    for (auto [value, code] : llvm::zip_equal(values, expected.getValues<uint8_t>()))
      ASSERT_EQ(Format::store(static_cast<float>(value)), code) << type << " of " << value;
  }
}

TEST(Float8, TheRuntimeConvertsAsTheReference) {
  compareRuntime<Float8E4M3FN>("f8E4M3FN");
  compareRuntime<Float8E5M2>("f8E5M2");
  compareRuntime<Float8E4M3FNUZ>("f8E4M3FNUZ");
  compareRuntime<Float8E5M2FNUZ>("f8E5M2FNUZ");
}

/// ONNX's two tables of the results of Cast for special and out-of-range numbers.
TEST(Float8, TheReferenceFollowsOnnxTables) {
  double inf = std::numeric_limits<double>::infinity();
  std::vector<double> values = {0.0, -0.0, inf, -inf, 1e6, -1e6, 464, 465, 61440, 61439};
  auto codes = [&](const char *type, bool saturate) {
    HostTensor result = HostTensor::fromDoubles(kindOf(type), {10}, values, saturate);
    llvm::ArrayRef<uint8_t> bytes = result.getValues<uint8_t>();
    return std::vector<int>(bytes.begin(), bytes.end());
  };
  using Codes = std::vector<int>;
  EXPECT_EQ(codes("f8E4M3FN", true),
            (Codes{0, 0x80, 0x7e, 0xfe, 0x7e, 0xfe, 0x7e, 0x7e, 0x7e, 0x7e}));
  EXPECT_EQ(codes("f8E4M3FN", false),
            (Codes{0, 0x80, 0x7f, 0xff, 0x7f, 0xff, 0x7e, 0x7f, 0x7f, 0x7f}));
  EXPECT_EQ(codes("f8E5M2", true),
            (Codes{0, 0x80, 0x7b, 0xfb, 0x7b, 0xfb, 0x5f, 0x5f, 0x7b, 0x7b}));
  EXPECT_EQ(codes("f8E5M2", false),
            (Codes{0, 0x80, 0x7c, 0xfc, 0x7c, 0xfc, 0x5f, 0x5f, 0x7c, 0x7b}));
  EXPECT_EQ(codes("f8E4M3FNUZ", true),
            (Codes{0, 0, 0x7f, 0xff, 0x7f, 0xff, 0x7f, 0x7f, 0x7f, 0x7f}));
  EXPECT_EQ(codes("f8E4M3FNUZ", false),
            (Codes{0, 0, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80}));
  EXPECT_EQ(codes("f8E5M2FNUZ", true),
            (Codes{0, 0, 0x7f, 0xff, 0x7f, 0xff, 0x63, 0x63, 0x7f, 0x7f}));
  EXPECT_EQ(codes("f8E5M2FNUZ", false),
            (Codes{0, 0, 0x80, 0x80, 0x80, 0x80, 0x63, 0x63, 0x80, 0x7f}));
}

TEST(Float8, KernelsWidenEveryCode) {
  for (const char *from : kTypes)
    for (const char *to : {"f32", "f16", "bf16", "f64"}) {
      RunOptions options;
      options.isExact = true;
      options.inputs[0] = allCodes(kindOf(from));
      checkKernels(convertText(256, from, to, /*saturate=*/true), options);
    }
}

TEST(Float8, KernelsNarrowAsTheReference) {
  for (const char *to : kTypes)
    for (const HostTensor &source : allSources(kindOf(to)))
      for (bool saturate : {true, false}) {
        RunOptions options;
        options.isExact = true;
        options.inputs[0] = source;
        checkKernels(
            convertText(source.getNumElements(), loom::nameOf(source.getKind()), to, saturate),
            options);
      }
}

} // namespace
