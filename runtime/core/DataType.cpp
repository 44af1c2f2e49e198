//===- DataType.cpp - element types ---------------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/core/DataType.h"

#include <array>
#include <utility>

using namespace gridloom::rt;

static constexpr std::array<std::pair<DataType, std::string_view>, 17> names = {{
    {DataType::F32, "f32"},
    {DataType::F64, "f64"},
    {DataType::F16, "f16"},
    {DataType::BF16, "bf16"},
    {DataType::I8, "i8"},
    {DataType::I16, "i16"},
    {DataType::I32, "i32"},
    {DataType::I64, "i64"},
    {DataType::U8, "u8"},
    {DataType::Bool, "bool"},
    {DataType::U16, "u16"},
    {DataType::U32, "u32"},
    {DataType::U64, "u64"},
    {DataType::F8E4M3FN, "f8e4m3fn"},
    {DataType::F8E5M2, "f8e5m2"},
    {DataType::F8E4M3FNUZ, "f8e4m3fnuz"},
    {DataType::F8E5M2FNUZ, "f8e5m2fnuz"},
}};

std::string_view gridloom::rt::nameOf(DataType type) {
  for (auto [value, name] : names)
    if (value == type)
      return name;
  return "?";
}

std::optional<DataType> gridloom::rt::parseDataType(std::string_view name) {
  for (auto [value, spelling] : names)
    if (spelling == name)
      return value;
  return std::nullopt;
}
