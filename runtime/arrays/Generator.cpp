//===- Generator.cpp - values for inputs from the command line ------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/arrays/Generator.h"

#include "runtime/arrays/Npy.h"
#include "runtime/arrays/Values.h"
#include "runtime/core/Error.h"
#include "support/MixBits.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numbers>

using namespace gridloom;
using namespace gridloom::rt;

const char *const gridloom::rt::kInputGrammar =
    "FILE.npy, a number, ones, zeros, randn, randn(MEAN,DEVIATION), normal(MEAN,DEVIATION), "
    "uniform(LOW,HIGH) or randint(LOW,HIGH), HIGH excluded";

static Error refuse(const std::string &text) { return {ErrorCode::InvalidArgument, text}; }

namespace {
struct Form {
  const char *name;
  Generator::Kind kind;
  const char *arguments;
  /// The generator without arguments; nullopt if it needs some.
  std::optional<Generator> alone;
};
} // namespace

static const Form forms[] = {
    {"ones", Generator::Constant, nullptr, Generator{Generator::Constant, 1, 0}},
    {"zeros", Generator::Constant, nullptr, Generator{Generator::Constant, 0, 0}},
    {"randn", Generator::Normal, "(MEAN,DEVIATION)", Generator{Generator::Normal, 0, 1}},
    {"normal", Generator::Normal, "(MEAN,DEVIATION)", Generator{Generator::Normal, 0, 1}},
    {"uniform", Generator::Uniform, "(LOW,HIGH)", std::nullopt},
    {"randint", Generator::Integers, "(LOW,HIGH)", std::nullopt},
};

/// All of `text`, with space around it, as a number.
static std::optional<double> readNumber(const std::string &text) {
  size_t first = text.find_first_not_of(' ');
  if (first == std::string::npos)
    return std::nullopt;
  std::string word = text.substr(first, text.find_last_not_of(' ') + 1 - first);
  char *end = nullptr;
  double value = strtod(word.c_str(), &end);
  if (*end != 0 || word.find_first_of("xX") != std::string::npos)
    return std::nullopt;
  return value;
}

static bool isWhole(double value) {
  return std::floor(value) == value && std::abs(value) <= 0x1p53;
}

/// The two numbers of "NAME(A,B)".
static Generator readArguments(const Form &form, const std::string &text, size_t open) {
  size_t comma = text.find(',', open), close = text.rfind(')');
  std::optional<double> first, second;
  if (form.arguments && comma != std::string::npos && close == text.size() - 1 && comma < close) {
    first = readNumber(text.substr(open + 1, comma - open - 1));
    second = readNumber(text.substr(comma + 1, close - comma - 1));
  }
  if (!first || !second)
    throw refuse("'" + text + "' is not " + form.name + (form.arguments ? form.arguments : ""));
  bool integers = form.kind == Generator::Integers;
  if (form.kind == Generator::Normal) {
    if (!std::isfinite(*first) || !std::isfinite(*second) || *second < 0)
      throw refuse("'" + text + "' needs two numbers, the second not negative");
  } else if (!(*first < *second) || !std::isfinite(*second - *first) ||
             (integers && !(isWhole(*first) && isWhole(*second)))) {
    throw refuse("'" + text + "' needs two " + (integers ? "whole " : "") +
                 "numbers, the first below the second");
  }
  return {form.kind, *first, *second};
}

std::optional<Generator> Generator::parse(const std::string &text) {
  if (std::optional<double> number = readNumber(text))
    return Generator{Constant, *number, 0};
  size_t open = text.find('(');
  std::string name = text.substr(0, open);
  for (const Form &form : forms) {
    if (name != form.name)
      continue;
    if (open != std::string::npos)
      return readArguments(form, text, open);
    return form.alone; // without one, a file may have this name
  }
  return std::nullopt;
}

/// In [0, 1).
static double toUnit(uint64_t bits) { return double(bits >> 11) * 0x1p-53; }

std::pair<double, double> gridloom::rt::getRange(DataType type) {
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

/// Throws unless elements of `type` are what the generator makes.
static void checkType(const Generator &generator, const std::string &name, DataType type) {
  std::string subject = "input " + name + " is " + std::string(nameOf(type));
  if (isFloat(type) && generator.kind != Generator::Integers)
    return;
  if (generator.kind == Generator::Normal || generator.kind == Generator::Uniform)
    throw refuse(subject + "; randn, normal and uniform make floats only; use randint(LOW,HIGH)");
  auto [least, most] = getRange(type);
  bool integers = generator.kind == Generator::Integers;
  double low = generator.first, high = integers ? generator.second - 1 : generator.first;
  if (low >= least && high <= most && isWhole(low))
    return;
  char number[32];
  snprintf(number, sizeof number, "%.17g", generator.first);
  throw refuse(subject + ", which does not hold " +
               (integers ? "all numbers of the generator's range" : std::string(number)));
}

/// Lowers an element that was rounded to `high` or above to the type's next number below.
static void keepBelow(HostArray &array, int64_t index, double high) {
  if (!std::isfinite(getElement(array, index)))
    return; // the type does not reach that far
  double step = std::max(std::abs(high) * 0x1p-54, 0x1p-1074);
  // 8-bit floats have no number below some ranges: they store their least one.
  while (getElement(array, index) >= high && std::isfinite(step)) {
    setElement(array, index, high - step);
    step *= 2;
  }
}

HostArray gridloom::rt::generate(const Generator &generator, const std::string &name, DataType type,
                                 const std::vector<int64_t> &shape, uint64_t seed) {
  checkType(generator, name, type);
  uint64_t key = mixBits(seed);
  for (unsigned char c : name)
    key = mixBits(key ^ c);
  HostArray array = HostArray::allocate(type, shape);
  double span = generator.second - generator.first;
  for (int64_t i = 0; i < array.getNumElements(); ++i) {
    double unit = toUnit(mixBits(key + 2 * uint64_t(i)));
    double value = generator.first;
    if (generator.kind == Generator::Uniform)
      value += unit * span;
    if (generator.kind == Generator::Integers)
      value += std::floor(unit * span);
    if (generator.kind == Generator::Normal) // Box and Muller
      value += generator.second * std::sqrt(-2 * std::log1p(-unit)) *
               std::cos(2 * std::numbers::pi * toUnit(mixBits(key + 2 * uint64_t(i) + 1)));
    setElement(array, i, value);
    if (generator.kind == Generator::Uniform)
      keepBelow(array, i, generator.second);
  }
  return array;
}

HostArray gridloom::rt::readInput(const std::string &text,
                                  std::vector<std::shared_ptr<const MappedFile>> *files) {
  std::error_code error;
  if (!text.ends_with(".npy") && !std::filesystem::exists(text, error))
    throw refuse("there is no file '" + text + "'; the value of an input is " + kInputGrammar);
  return readNpy(text, files);
}

HostArray gridloom::rt::adaptInput(const HostArray &array, const std::string &text,
                                   const std::string &name, DataType type,
                                   const std::vector<int64_t> &shape) {
  bool isCodes = array.getType() == DataType::U8 && isFloat8(type);
  if ((array.getType() != type && !isCodes) || array.getShape() != shape)
    throw refuse(text + " holds " + std::string(nameOf(array.getType())) + " " +
                 formatShape(array.getShape()) + ", but the plan takes " + name + " " +
                 std::string(nameOf(type)) + " " + formatShape(shape) +
                 (array.getType() != type
                      ? "; convert it with numpy's astype"
                      : "; compile the model for this shape, with --dim if it is symbolic"));
  return isCodes ? HostArray::share(type, shape, array.getData(), array.getOwner()) : array;
}
