//===- Values.cpp - elements and summaries of arrays ----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/arrays/Values.h"

#include "support/NarrowFloat.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

using namespace gridloom;
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
    return BFloat::load(array.as<uint16_t>()[i]);
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
    array.as<uint16_t>()[i] = BFloat::store(float(value));
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
