//===- DynamicLibrary.h - a shared library opened at run time ---*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_DEVICE_CUDA_DYNAMICLIBRARY_H
#define GRIDLOOM_RUNTIME_DEVICE_CUDA_DYNAMICLIBRARY_H

#include <initializer_list>
#include <string>

namespace gridloom::rt {

/// A shared library, closed with this object. One binary runs with and without CUDA because the
/// CUDA libraries are opened this way and never linked.
class DynamicLibrary {
public:
  /// Opens the first of `names` that the loader finds. When it finds none, throws Unavailable:
  /// "<first name> not found: <advice> (<the loader's reason>)".
  DynamicLibrary(std::initializer_list<std::string> names, const std::string &advice);
  ~DynamicLibrary();
  DynamicLibrary(const DynamicLibrary &) = delete;
  DynamicLibrary &operator=(const DynamicLibrary &) = delete;

  /// Sets `entry` to `symbol`; false when the library lacks it.
  template <typename Function> bool find(Function *&entry, const char *symbol) const {
    entry = reinterpret_cast<Function *>(lookup(symbol));
    return entry != nullptr;
  }

  /// As find; throws Unavailable naming library, symbol and `remedy` when the library lacks it.
  template <typename Function>
  void require(Function *&entry, const char *symbol, const char *remedy) const {
    if (!find(entry, symbol))
      failMissing(symbol, remedy);
  }

  const std::string &getName() const { return name; }

private:
  void *lookup(const char *symbol) const;
  [[noreturn]] void failMissing(const char *symbol, const char *remedy) const;

  std::string name;
  void *handle = nullptr;
};

/// The value of environment variable `variable`, or `otherwise` when it is unset or empty.
std::string getEnvironment(const char *variable, const std::string &otherwise);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_DEVICE_CUDA_DYNAMICLIBRARY_H
