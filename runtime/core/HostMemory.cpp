//===- HostMemory.cpp - host memory on large pages ------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/core/HostMemory.h"

#include <algorithm>
#include <cstdlib>
#include <sys/mman.h>

void *gridloom::rt::allocateHostMemory(size_t bytes) {
  constexpr size_t line = 64, largePage = size_t(2) << 20;
  bool isLarge = bytes >= largePage;
  void *memory = nullptr;
  if (posix_memalign(&memory, isLarge ? largePage : line, std::max<size_t>(bytes, 1)))
    return nullptr;
  if (isLarge)
    madvise(memory, bytes / largePage * largePage, MADV_HUGEPAGE); // a wish
  return memory;
}
