//===- HostMemory.h - host memory on large pages ----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CORE_HOSTMEMORY_H
#define GRIDLOOM_RUNTIME_CORE_HOSTMEMORY_H

#include <cstddef>

namespace gridloom::rt {

/// Memory for std::free, aligned to 64 bytes; null where there is none. What is as long as pages of
/// 2 MiB lies on such, where the system has them: weights are read once a run, and with pages of
/// 4 KiB every page costs a walk through the page table. The rest has small pages, so that no more
/// is resident than was asked for.
void *allocateHostMemory(size_t bytes);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CORE_HOSTMEMORY_H
