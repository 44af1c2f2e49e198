//===- DynamicLibrary.h - a shared library opened at run time ---*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_DEVICE_CUDA_DYNAMICLIBRARY_H
#define GRIDLOOM_RUNTIME_DEVICE_CUDA_DYNAMICLIBRARY_H

#include <string>
#include <vector>

namespace gridloom::rt {

/// A shared library, loaded once and never closed: CUDA's libraries have threads and exit handlers
/// that outlive a session. CUDA libraries are loaded this way and never linked, so that one binary
/// runs with and without CUDA.
class DynamicLibrary {
public:
  /// Loads the first of `names` that the loader finds. If it finds none, throws Unavailable:
  /// "<first name> not found: <advice> (<the loader's reason>)".
  DynamicLibrary(const std::vector<std::string> &names, const std::string &advice);

  /// Sets `entry` to `symbol`; false if the library lacks it.
  template <typename Function> bool find(Function *&entry, const char *symbol) const {
    entry = reinterpret_cast<Function *>(lookup(symbol));
    return entry != nullptr;
  }

  /// As find; throws Unavailable naming library, symbol and `remedy` if the library lacks it.
  template <typename Function>
  void require(Function *&entry, const char *symbol, const char *remedy) const {
    if (!find(entry, symbol))
      failMissing(symbol, remedy);
  }

  const std::string &getName() const { return name; }
  /// The loader's handle, equal for all objects that open this library.
  const void *getHandle() const { return handle; }
  /// Whether this object loaded the library; otherwise other code may have used it already.
  bool isFirst() const { return first; }

private:
  void *lookup(const char *symbol) const;
  [[noreturn]] void failMissing(const char *symbol, const char *remedy) const;

  std::string name;
  void *handle = nullptr;
  bool first = false;
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_DEVICE_CUDA_DYNAMICLIBRARY_H
