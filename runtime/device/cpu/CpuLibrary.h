//===- CpuLibrary.h - kernels loaded from memory ----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_DEVICE_CPU_CPULIBRARY_H
#define GRIDLOOM_RUNTIME_DEVICE_CPU_CPULIBRARY_H

#include <cstddef>
#include <span>
#include <string>

namespace gridloom::rt {

/// A shared object loaded from memory, without a file on disk.
class CpuLibrary {
public:
  /// Throws InvalidPlan with the loader's reason.
  CpuLibrary(const std::string &name, std::span<const std::byte> code);
  ~CpuLibrary();
  CpuLibrary(const CpuLibrary &) = delete;
  CpuLibrary &operator=(const CpuLibrary &) = delete;

  /// Throws InvalidPlan when there is no such symbol.
  void *find(const std::string &symbol) const;

private:
  std::string name;
  // Stays open: the loader identifies objects by path, so a reused descriptor number would be taken
  // for this object.
  int file = -1;
  void *handle = nullptr;
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_DEVICE_CPU_CPULIBRARY_H
