//===- DataType.h - element types -------------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CORE_DATATYPE_H
#define GRIDLOOM_RUNTIME_CORE_DATATYPE_H

#include <cstddef>
#include <optional>
#include <string_view>

namespace gridloom::rt {

/// Element types. The numbers are those of schema::DataType.
enum class DataType {
  F32 = 1,
  F64,
  F16,
  BF16,
  I8,
  I16,
  I32,
  I64,
  U8,
  Bool,
  U16,
  U32,
  U64,
  F8E4M3FN,
  F8E5M2,
  F8E4M3FNUZ,
  F8E5M2FNUZ
};

/// Whether a number read from a file is a valid DataType.
constexpr bool isDataType(int number) {
  return number >= int(DataType::F32) && number <= int(DataType::F8E5M2FNUZ);
}

/// Bytes of one element.
constexpr size_t sizeOf(DataType type) {
  switch (type) {
  case DataType::I8:
  case DataType::U8:
  case DataType::Bool:
  case DataType::F8E4M3FN:
  case DataType::F8E5M2:
  case DataType::F8E4M3FNUZ:
  case DataType::F8E5M2FNUZ:
    return 1;
  case DataType::F16:
  case DataType::BF16:
  case DataType::I16:
  case DataType::U16:
    return 2;
  case DataType::F32:
  case DataType::I32:
  case DataType::U32:
    return 4;
  case DataType::F64:
  case DataType::I64:
  case DataType::U64:
    return 8;
  }
  return 0;
}

/// 8-bit floats are only moved and converted: no arithmetic is done in them.
constexpr bool isFloat8(DataType type) {
  return type >= DataType::F8E4M3FN && type <= DataType::F8E5M2FNUZ;
}

constexpr bool isFloat(DataType type) {
  return type == DataType::F32 || type == DataType::F64 || type == DataType::F16 ||
         type == DataType::BF16 || isFloat8(type);
}

/// The byte that, repeated, is a NaN of `type`; 0 for types without NaN.
constexpr unsigned char getPoisonByte(DataType type) {
  if (type == DataType::F8E4M3FNUZ || type == DataType::F8E5M2FNUZ)
    return 0x80;
  return isFloat(type) ? 0xff : 0;
}

/// The name used in manifests and messages: f32, i64, bool, ...
std::string_view nameOf(DataType type);
std::optional<DataType> parseDataType(std::string_view name);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CORE_DATATYPE_H
