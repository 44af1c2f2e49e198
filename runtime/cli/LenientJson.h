//===- LenientJson.h - reports of any version -------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CLI_LENIENTJSON_H
#define GRIDLOOM_RUNTIME_CLI_LENIENTJSON_H

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace gridloom::rt {

/// A JSON object whose fields may be absent or of another type.
class LenientJson {
public:
  explicit LenientJson(const nlohmann::json &object) : object(object) {}
  bool has(const char *key) const { return object.is_object() && object.contains(key); }
  std::string text(const char *key) const {
    if (!has(key))
      return "";
    const nlohmann::json &value = object[key];
    if (value.is_string())
      return value;
    if (!value.is_array())
      return value.is_null() ? "" : value.dump();
    std::string joined;
    for (const nlohmann::json &element : value)
      joined += (joined.empty() ? "" : ".") +
                (element.is_string() ? element.get<std::string>() : element.dump());
    return joined;
  }
  double number(const char *key) const {
    return has(key) && object[key].is_number() ? object[key].get<double>() : 0;
  }
  std::vector<nlohmann::json> list(const char *key) const {
    if (!has(key) || !object[key].is_array())
      return {};
    return {object[key].begin(), object[key].end()};
  }
  const nlohmann::json &get(const char *key) const {
    static const nlohmann::json none;
    return has(key) ? object[key] : none;
  }

private:
  const nlohmann::json &object;
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CLI_LENIENTJSON_H
