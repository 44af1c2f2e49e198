//===- LenientJson.cpp - reports of any version ---------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "support/LenientJson.h"

using namespace gridloom;

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

const Json &gridloom::getList(const Json &object, const char *key) {
  static const Json none = Json::array();
  const Json &field = getField(object, key);
  return field.is_array() ? field : none;
}
