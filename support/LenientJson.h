//===- LenientJson.h - reports of any version -------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Fields of a JSON object that may be absent or of another type, and the object may be none.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_SUPPORT_LENIENTJSON_H
#define GRIDLOOM_SUPPORT_LENIENTJSON_H

#include <nlohmann/json.hpp>

#include <string>

namespace gridloom {

using Json = nlohmann::ordered_json;

/// null where it is absent.
const Json &getField(const Json &object, const char *key);
/// A number as it is written, the elements of a list with points between them ("data.model"); ""
/// where it is absent.
std::string getText(const Json &object, const char *key);
/// 0 where it is no number.
double getNumber(const Json &object, const char *key);
/// Empty where it is no list.
const Json &getList(const Json &object, const char *key);

} // namespace gridloom

#endif // GRIDLOOM_SUPPORT_LENIENTJSON_H
