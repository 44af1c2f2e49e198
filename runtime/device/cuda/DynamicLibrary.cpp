//===- DynamicLibrary.cpp - a shared library opened at run time -----------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#include "runtime/device/cuda/DynamicLibrary.h"

#include "runtime/core/Error.h"

#include <algorithm>
#include <cstdlib>
#include <dlfcn.h>
#include <mutex>

namespace gridloom::rt {

DynamicLibrary::DynamicLibrary(const std::vector<std::string> &names, const std::string &advice) {
  std::string reason;
  // Serialised, so that exactly one of several threads is the first.
  static std::mutex opening;
  std::lock_guard lock(opening);
  for (const std::string &candidate : names) {
    first = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD) == nullptr;
    handle = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle) {
      name = candidate;
      return;
    }
    if (reason.empty())
      reason = dlerror();
  }
  std::replace(reason.begin(), reason.end(), '\n', ' ');
  throw Error(ErrorCode::Unavailable,
              names.front() + " not found: " + advice + " (" + reason + ")");
}

void *DynamicLibrary::lookup(const char *symbol) const { return dlsym(handle, symbol); }

void DynamicLibrary::failMissing(const char *symbol, const char *remedy) const {
  throw Error(ErrorCode::Unavailable, name + " has no " + symbol + ": " + remedy);
}

} // namespace gridloom::rt
