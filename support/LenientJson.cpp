//===- LenientJson.cpp - reports of any version ---------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "support/LenientJson.h"

#include "support/JsonDepth.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

using namespace gridloom;

Json gridloom::readJson(std::istream &stream, std::string &error) {
  std::string text;
  char block[1 << 14];
  while (stream.read(block, sizeof block), stream.gcount() > 0)
    text.append(block, size_t(stream.gcount()));
  if (stream.bad()) { // as of a folder, which can be opened
    error = std::string("cannot be read: ") + strerror(errno);
    return Json();
  }
  error = isDeepJson(text) ? "has " + describeDeepJson() : "";
  Json value = error.empty() ? Json::parse(text, nullptr, /*allow_exceptions=*/false) : Json();
  if (value.is_discarded())
    error = "is not JSON";
  return error.empty() ? value : Json();
}

const Json &gridloom::getField(const Json &object, const char *key) {
  static const Json none;
  auto found = object.find(key); // the end for what is no object
  return found == object.end() ? none : *found;
}

static std::string toText(const Json &value) {
  return value.is_string() ? value.get<std::string>() : value.is_null() ? "" : value.dump();
}

std::string gridloom::getText(const Json &object, const char *key) {
  const Json &field = getField(object, key);
  if (!field.is_array())
    return toText(field);
  std::string joined;
  for (const Json &element : field)
    joined += (joined.empty() ? "" : ".") + toText(element);
  return joined;
}

double gridloom::getNumber(const Json &object, const char *key) {
  const Json &field = getField(object, key);
  return field.is_number() ? field.get<double>() : 0;
}

int64_t gridloom::getInteger(const Json &object, const char *key) {
  constexpr double most = 1LL << 53;
  return int64_t(std::clamp(getNumber(object, key), -most, most));
}

uint64_t gridloom::getSize(const Json &object, const char *key) {
  return uint64_t(std::max<int64_t>(0, getInteger(object, key)));
}

const Json &gridloom::getList(const Json &object, const char *key) {
  static const Json none = Json::array();
  const Json &field = getField(object, key);
  return field.is_array() ? field : none;
}
