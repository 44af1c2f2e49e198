//===- Environment.h - environment variables --------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CORE_ENVIRONMENT_H
#define GRIDLOOM_RUNTIME_CORE_ENVIRONMENT_H

#include <cstdlib>
#include <string>

namespace gridloom::rt {

/// The value of environment variable `variable`, or `otherwise` when it is unset or empty.
inline std::string getEnvironment(const char *variable, const std::string &otherwise) {
  const char *value = std::getenv(variable);
  return value && *value ? value : otherwise;
}

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CORE_ENVIRONMENT_H
