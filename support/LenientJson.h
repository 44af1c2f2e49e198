//===- LenientJson.h - reports of any version -------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Reads fields of a JSON object that may be missing or of another type; the value need not be an
// object.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_SUPPORT_LENIENTJSON_H
#define GRIDLOOM_SUPPORT_LENIENTJSON_H

#include <nlohmann/json.hpp>

#include <cstdint>
#include <istream>
#include <string>

namespace gridloom {

using Json = nlohmann::ordered_json;

/// Reads a file. If it cannot be read, is not JSON, or nests too deeply to be copied and printed
/// (JsonDepth.h), `error` is "is not JSON" or the like; else "".
Json readJson(std::istream &stream, std::string &error);

/// null if it is absent.
const Json &getField(const Json &object, const char *key);
/// A number as it is written; the elements of a list joined by points ("data.model"); "" if it is
/// absent.
std::string getText(const Json &object, const char *key);
/// 0 where it is no number.
double getNumber(const Json &object, const char *key);
/// The number without its fraction, at most 2^53 either way: a cast of more is undefined.
int64_t getInteger(const Json &object, const char *key);
/// For sizes and counts: 0 for a negative number.
uint64_t getSize(const Json &object, const char *key);
/// Empty where it is no list.
const Json &getList(const Json &object, const char *key);

} // namespace gridloom

#endif // GRIDLOOM_SUPPORT_LENIENTJSON_H
