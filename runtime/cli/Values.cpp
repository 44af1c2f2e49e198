//===- Values.cpp - making and summarising arrays -------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/cli/Values.h"

#include "runtime/core/Error.h"
#include "runtime/core/NarrowFloat.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <numbers>
#include <regex>

using namespace gridloom::rt;

double gridloom::rt::getElement(const HostArray &array, int64_t index) {
  size_t i = size_t(index);
  switch (array.getType()) {
  case DataType::F32:
    return array.as<float>()[i];
  case DataType::F64:
    return array.as<double>()[i];
  case DataType::F16:
    return float(array.as<_Float16>()[i]);
  case DataType::BF16:
    return std::bit_cast<float>(uint32_t(array.as<uint16_t>()[i]) << 16);
  case DataType::F8E4M3FN:
    return Float8E4M3FN::load(array.as<uint8_t>()[i]);
  case DataType::F8E5M2:
    return Float8E5M2::load(array.as<uint8_t>()[i]);
  case DataType::F8E4M3FNUZ:
    return Float8E4M3FNUZ::load(array.as<uint8_t>()[i]);
  case DataType::F8E5M2FNUZ:
    return Float8E5M2FNUZ::load(array.as<uint8_t>()[i]);
  case DataType::I8:
    return array.as<int8_t>()[i];
  case DataType::I16:
    return array.as<int16_t>()[i];
  case DataType::I32:
    return array.as<int32_t>()[i];
  case DataType::I64:
    return double(array.as<int64_t>()[i]);
  case DataType::U8:
  case DataType::Bool:
    return array.as<uint8_t>()[i];
  case DataType::U16:
    return array.as<uint16_t>()[i];
  case DataType::U32:
    return array.as<uint32_t>()[i];
  case DataType::U64:
    return double(array.as<uint64_t>()[i]);
  }
  return 0;
}

void gridloom::rt::setElement(HostArray &array, int64_t index, double value) {
  size_t i = size_t(index);
  switch (array.getType()) {
  case DataType::F32:
    array.as<float>()[i] = float(value);
    return;
  case DataType::F64:
    array.as<double>()[i] = value;
    return;
  case DataType::F16:
    array.as<_Float16>()[i] = _Float16(float(value));
    return;
  case DataType::BF16:
    array.as<uint16_t>()[i] = uint16_t(std::bit_cast<uint32_t>(float(value)) >> 16);
    return;
  case DataType::F8E4M3FN:
    array.as<uint8_t>()[i] = Float8E4M3FN::store(float(value));
    return;
  case DataType::F8E5M2:
    array.as<uint8_t>()[i] = Float8E5M2::store(float(value));
    return;
  case DataType::F8E4M3FNUZ:
    array.as<uint8_t>()[i] = Float8E4M3FNUZ::store(float(value));
    return;
  case DataType::F8E5M2FNUZ:
    array.as<uint8_t>()[i] = Float8E5M2FNUZ::store(float(value));
    return;
  case DataType::I8:
    array.as<int8_t>()[i] = int8_t(value);
    return;
  case DataType::I16:
    array.as<int16_t>()[i] = int16_t(value);
    return;
  case DataType::I32:
    array.as<int32_t>()[i] = int32_t(value);
    return;
  case DataType::I64:
    array.as<int64_t>()[i] = int64_t(value);
    return;
  case DataType::U8:
    array.as<uint8_t>()[i] = uint8_t(value);
    return;
  case DataType::Bool:
    array.as<uint8_t>()[i] = value != 0;
    return;
  case DataType::U16:
    array.as<uint16_t>()[i] = uint16_t(value);
    return;
  case DataType::U32:
    array.as<uint32_t>()[i] = uint32_t(value);
    return;
  case DataType::U64:
    array.as<uint64_t>()[i] = uint64_t(value);
    return;
  }
}

bool Generator::parse(const std::string &text, Generator &generator) {
  if (text == "ones" || text == "zeros" || text == "randn") {
    generator.kind = text == "ones" ? Ones : text == "zeros" ? Zeros : Normal;
    return true;
  }
  bool integers = text.starts_with("randint");
  if (!integers && !text.starts_with("uniform"))
    return false;
  static const std::regex form(R"((randint|uniform)\(\s*([-+.\deE]+)\s*,\s*([-+.\deE]+)\s*\))");
  std::smatch match;
  char *lowEnd = nullptr, *highEnd = nullptr;
  if (!std::regex_match(text, match, form)) {
    if (text.find('(') == std::string::npos)
      return false; // a file whose name begins so
    throw Error(ErrorCode::InvalidArgument,
                "generator '" + text + "' is not " + text.substr(0, 7) + "(LOW,HIGH)");
  }
  std::string low = match[2], high = match[3];
  generator.kind = integers ? Integers : Uniform;
  generator.low = strtod(low.c_str(), &lowEnd);
  generator.high = strtod(high.c_str(), &highEnd);
  bool whole = std::floor(generator.low) == generator.low &&
               std::floor(generator.high) == generator.high && std::abs(generator.low) <= 0x1p53 &&
               std::abs(generator.high) <= 0x1p53;
  if (*lowEnd || *highEnd || !(generator.low < generator.high) || (integers && !whole))
    throw Error(ErrorCode::InvalidArgument, "generator '" + text + "' needs two " +
                                                (integers ? "whole " : "") +
                                                "numbers, the first below the second");
  return true;
}

/// A well-mixed number for each argument (splitmix64's finaliser).
static uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

/// In [0, 1).
static double toUnit(uint64_t bits) { return double(bits >> 11) * 0x1p-53; }

/// The whole numbers a type holds, as far as doubles count exactly.
static std::pair<double, double> getRange(DataType type) {
  if (type == DataType::Bool)
    return {0, 1};
  if (type == DataType::U8 || type == DataType::U16 || type == DataType::U32)
    return {0, std::ldexp(1, int(sizeOf(type)) * 8) - 1};
  if (type == DataType::U64)
    return {0, 0x1p53};
  if (isFloat(type) || type == DataType::I64)
    return {-0x1p53, 0x1p53};
  double half = std::ldexp(1, int(sizeOf(type)) * 8 - 1);
  return {-half, half - 1};
}

HostArray gridloom::rt::generate(const Generator &generator, const std::string &name, DataType type,
                                 const std::vector<int64_t> &shape, uint64_t seed) {
  bool fractions = generator.kind == Generator::Normal || generator.kind == Generator::Uniform;
  if (fractions && !isFloat(type))
    throw Error(ErrorCode::InvalidArgument, "input " + name + " is " + std::string(nameOf(type)) +
                                                "; randn and uniform make floats only; use "
                                                "randint(LOW,HIGH)");
  auto [least, most] = getRange(type);
  if (generator.kind == Generator::Integers && (generator.low < least || generator.high - 1 > most))
    throw Error(ErrorCode::InvalidArgument,
                "input " + name + " is " + std::string(nameOf(type)) +
                    ", which does not hold all numbers of the generator's range");
  uint64_t key = mix(seed);
  for (unsigned char c : name)
    key = mix(key ^ c);
  HostArray array = HostArray::allocate(type, shape);
  for (int64_t i = 0; i < array.getNumElements(); ++i) {
    double unit = toUnit(mix(key + 2 * uint64_t(i)));
    double value = generator.kind == Generator::Ones ? 1 : 0;
    if (generator.kind == Generator::Uniform)
      value = generator.low + unit * (generator.high - generator.low);
    if (generator.kind == Generator::Integers)
      value = generator.low + std::floor(unit * (generator.high - generator.low));
    if (generator.kind == Generator::Normal)
      value = std::sqrt(-2 * std::log1p(-unit)) *
              std::cos(2 * std::numbers::pi * toUnit(mix(key + 2 * uint64_t(i) + 1)));
    setElement(array, i, value);
  }
  return array;
}

static std::string formatNumber(double value) {
  char text[32];
  snprintf(text, sizeof text, "%.6g", value);
  return text;
}

std::string gridloom::rt::summarize(const HostArray &array) {
  std::string text = std::string(nameOf(array.getType())) + " " + formatShape(array.getShape());
  int64_t count = array.getNumElements();
  if (count == 0)
    return text + "  empty";
  double least = INFINITY, most = -INFINITY, sum = 0;
  int64_t notNumbers = 0;
  for (int64_t i = 0; i < count; ++i) {
    double value = getElement(array, i);
    if (std::isnan(value)) {
      ++notNumbers;
      continue;
    }
    least = std::min(least, value);
    most = std::max(most, value);
    sum += value;
  }
  if (notNumbers < count)
    text += "  min " + formatNumber(least) + "  max " + formatNumber(most) + "  mean " +
            formatNumber(sum / double(count - notNumbers));
  if (notNumbers != 0)
    text += "  NaN " + std::to_string(notNumbers) + " of " + std::to_string(count);
  text += "  first";
  for (int64_t i = 0; i < std::min<int64_t>(count, 4); ++i)
    text += " " + formatNumber(getElement(array, i));
  return text;
}
