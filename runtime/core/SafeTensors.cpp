//===- SafeTensors.cpp - find tensors in a .safetensors file --------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/core/SafeTensors.h"

#include "runtime/core/Error.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

using namespace gridloom::rt;
using nlohmann::json;

static constexpr std::array<std::pair<DataType, std::string_view>, 17> types = {{
    {DataType::F32, "F32"},
    {DataType::F64, "F64"},
    {DataType::F16, "F16"},
    {DataType::BF16, "BF16"},
    {DataType::I8, "I8"},
    {DataType::I16, "I16"},
    {DataType::I32, "I32"},
    {DataType::I64, "I64"},
    {DataType::U8, "U8"},
    {DataType::Bool, "BOOL"},
    {DataType::U16, "U16"},
    {DataType::U32, "U32"},
    {DataType::U64, "U64"},
    {DataType::F8E4M3FN, "F8_E4M3"},
    {DataType::F8E5M2, "F8_E5M2"},
    {DataType::F8E4M3FNUZ, "F8_E4M3FNUZ"},
    {DataType::F8E5M2FNUZ, "F8_E5M2FNUZ"},
}};

static std::optional<DataType> getType(std::string_view name) {
  for (auto [type, itsName] : types)
    if (itsName == name)
      return type;
  return std::nullopt;
}

static std::string_view getTypeName(DataType type) {
  for (auto [itsType, name] : types)
    if (itsType == type)
      return name;
  return "";
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

SafeTensorsParts gridloom::rt::layOutSafeTensors(const std::map<std::string, HostArray> &tensors) {
  std::vector<std::pair<std::string, HostArray>> order(tensors.begin(), tensors.end());
  std::stable_sort(order.begin(), order.end(), [](const auto &a, const auto &b) {
    return sizeOf(a.second.getType()) > sizeOf(b.second.getType());
  });
  json header = json::object();
  size_t end = 0;
  SafeTensorsParts parts;
  for (const auto &[name, array] : order) {
    size_t begin = end;
    end += array.getNumBytes();
    header[name] = {{"dtype", getTypeName(array.getType())},
                    {"shape", array.getShape()},
                    {"data_offsets", {begin, end}}};
    parts.data.emplace_back(reinterpret_cast<const char *>(array.getData()), array.getNumBytes());
  }
  std::string text = header.dump(-1, ' ', false, json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  uint64_t headerBytes = text.size();
  parts.header.resize(sizeof(headerBytes));
  std::memcpy(parts.header.data(), &headerBytes, sizeof(headerBytes));
  parts.header += text;
  return parts;
}

std::vector<std::string_view> SafeTensorsParts::getAll() const {
  std::vector<std::string_view> all = {header};
  all.insert(all.end(), data.begin(), data.end());
  return all;
}

size_t SafeTensorsParts::getNumBytes() const {
  size_t bytes = header.size();
  for (std::string_view part : data)
    bytes += part.size();
  return bytes;
}
