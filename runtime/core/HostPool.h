//===- HostPool.h - reuse of host memory ------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CORE_HOSTPOOL_H
#define GRIDLOOM_RUNTIME_CORE_HOSTPOOL_H

#include "runtime/core/HostArray.h"

namespace gridloom::rt {

/// Reuses the memory of freed arrays for arrays of the same size, since the system would clear
/// every new page. It never holds more than the peak in use. Arrays may outlive it; thread-safe.
class HostPool {
public:
  HostPool();
  ~HostPool();
  HostPool(const HostPool &) = delete;
  HostPool &operator=(const HostPool &) = delete;

  /// An uninitialised array; throws as HostArray::allocate does.
  HostArray allocate(DataType type, std::vector<int64_t> shape);

private:
  struct State;
  std::shared_ptr<State> state;
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CORE_HOSTPOOL_H
