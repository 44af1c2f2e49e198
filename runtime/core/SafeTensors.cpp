//===- SafeTensors.cpp - find tensors in a .safetensors file --------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/core/SafeTensors.h"

#include "runtime/core/Error.h"
#include "runtime/core/HostArray.h"

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

using namespace gridloom::rt;
using nlohmann::json;

static std::optional<DataType> getType(const std::string &name) {
  static const std::map<std::string, DataType> types = {{"F32", DataType::F32},
                                                        {"F64", DataType::F64},
                                                        {"F16", DataType::F16},
                                                        {"BF16", DataType::BF16},
                                                        {"I8", DataType::I8},
                                                        {"I16", DataType::I16},
                                                        {"I32", DataType::I32},
                                                        {"I64", DataType::I64},
                                                        {"U8", DataType::U8},
                                                        {"BOOL", DataType::Bool},
                                                        {"U16", DataType::U16},
                                                        {"U32", DataType::U32},
                                                        {"U64", DataType::U64},
                                                        {"F8_E4M3", DataType::F8E4M3FN},
                                                        {"F8_E5M2", DataType::F8E5M2},
                                                        {"F8_E4M3FNUZ", DataType::F8E4M3FNUZ},
                                                        {"F8_E5M2FNUZ", DataType::F8E5M2FNUZ}};
  auto found = types.find(name);
  return found == types.end() ? std::nullopt : std::optional(found->second);
}

std::vector<SafeTensor> gridloom::rt::readSafeTensors(std::span<const std::byte> contents,
                                                      const std::string &file) {
  auto fail = [&](const std::string &message) {
    throw Error(ErrorCode::InvalidPlan, file + ": " + message);
  };
  uint64_t headerBytes = 0;
  if (contents.size() < sizeof(headerBytes))
    fail("has " + std::to_string(contents.size()) + " bytes, a .safetensors file at least 8");
  std::memcpy(&headerBytes, contents.data(), sizeof(headerBytes));
  if (headerBytes > contents.size() - sizeof(headerBytes))
    fail("declares a header of " + std::to_string(headerBytes) + " bytes; the file has " +
         std::to_string(contents.size()));
  const char *text = reinterpret_cast<const char *>(contents.data()) + sizeof(headerBytes);
  json header = json::parse(text, text + headerBytes, nullptr, /*allow_exceptions=*/false);
  if (!header.is_object())
    fail("has a header that is not a JSON object");
  uint64_t dataStart = sizeof(headerBytes) + headerBytes, room = contents.size() - dataStart;

  std::vector<SafeTensor> tensors;
  for (auto &[name, value] : header.items()) {
    if (name == "__metadata__")
      continue;
    auto isSizes = [](const json &list) {
      if (!list.is_array())
        return false;
      for (const json &size : list)
        if (!size.is_number_unsigned() || size.get<uint64_t>() > uint64_t(INT64_MAX))
          return false;
      return true;
    };
    if (!value.is_object() || !value.contains("dtype") || !value["dtype"].is_string() ||
        !value.contains("shape") || !isSizes(value["shape"]) || !value.contains("data_offsets") ||
        !isSizes(value["data_offsets"]) || value["data_offsets"].size() != 2)
      fail("describes tensor '" + name + "' without dtype, shape or data_offsets");
    std::optional<DataType> type = getType(value["dtype"].get<std::string>());
    if (!type)
      continue;
    auto shape = value["shape"].get<std::vector<int64_t>>();
    uint64_t begin = value["data_offsets"][0].get<uint64_t>(),
             end = value["data_offsets"][1].get<uint64_t>();
    uint64_t needed =
        uint64_t(checkedBytes(shape, sizeOf(*type), file + ": tensor '" + name + "'"));
    if (begin > end || end > room || end - begin != needed)
      fail("puts tensor '" + name + "' of " + std::to_string(needed) + " bytes at " +
           std::to_string(begin) + " to " + std::to_string(end) + " of " + std::to_string(room));
    tensors.push_back({name, *type, std::move(shape), dataStart + begin, needed});
  }
  return tensors;
}
