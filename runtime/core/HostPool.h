//===- HostPool.h - memory of arrays that come and go -----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CORE_HOSTPOOL_H
#define GRIDLOOM_RUNTIME_CORE_HOSTPOOL_H

#include "runtime/core/HostArray.h"

namespace gridloom::rt {

/// Gives the memory of arrays that are gone to the next of their size: the system would clear every
/// page anew. It keeps no more than was in use at once. Arrays may outlive it; any thread may call.
class HostPool {
public:
  HostPool();
  ~HostPool();
  HostPool(const HostPool &) = delete;
  HostPool &operator=(const HostPool &) = delete;

  /// An array whose elements may be anything; throws as HostArray::allocate does.
  HostArray allocate(DataType type, std::vector<int64_t> shape);

private:
  struct State;
  std::shared_ptr<State> state;
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CORE_HOSTPOOL_H
